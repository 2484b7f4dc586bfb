"""Code for this processor: the folder that keeps it, and functions that LLVM compiles.

numba compiles kernels (`numba_code`); loops that must keep a tile of sums in registers are written
with `Vectors`, because compilers spill them. Machine code of both is kept, and read without numba.
"""

import hashlib
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite
import numpy as np
from llvmlite import binding, ir

from tracer.interpreter.compiled_code import compiling
from tracer.interpreter.kernels.argument_types import Emitted, Helper
from tracer.support import files

_TRACER = Path(__file__).parents[2]
INDEX = ir.IntType(64)
_WORD = ir.IntType(32)
_SMALLER_MAGNITUDE = _WORD(2)
"""VRANGEPS: the operand of the smaller magnitude, with the sign of the first operand."""
_ROUND_AS_SET = _WORD(4)

_BYTES = ir.IntType(8).as_pointer()
_SETTINGS = ("BOUNDSCHECK", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE")
"""Of numba, which change the code that it compiles."""
_ENGINES: list[Any] = []
"""LLVM engines. Compiled functions are freed with them, so they are never dropped."""


@cache
def target() -> tuple[str, str, str]:
    """Returns the triple, processor and features that code is compiled for, as numba finds them."""
    processor = os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        host = binding.get_host_cpu_features()
        if os.environ.get("NUMBA_ENABLE_AVX") == "0":
            host |= {name: False for name in host if name.startswith("avx")}
        features = host.flatten()
    return binding.get_process_triple(), processor, features


def _has(feature: str) -> bool:
    return f"+{feature}" in target()[2].split(",")


_X86 = target()[0].startswith("x86_64")
REGISTER = 512 if _has("avx512f") else 256 if _has("avx") else 128
"""Bits of a vector register."""
_REGISTERS = 16 if _X86 and REGISTER < 512 else 32
VECTORS = _REGISTERS // 8
"""Vectors of columns that a row of a tile usually has."""
ROOM = _REGISTERS * 3 // 4
"""Vectors of sums and state in a tile: the others hold columns, a factor and limits."""
MOST_ROWS = 8
"""More rows save no loads."""
LATENCY = 8
"""Vectors of sums that are in flight at once; fewer do not take less time."""
HAS_RANGE = _has("avx512dq")
"""Whether one instruction brings a vector within a symmetric range."""


def instruction_set() -> str:
    """Returns which vectors sums use, and how they are limited: 'AVX-512, range'."""
    if not _X86:
        return f"{REGISTER}-bit vectors, min and max"
    name = {512: "AVX-512", 256: "AVX2" if _has("fma") else "AVX", 128: "SSE2"}[REGISTER]
    return f"{name}, {'range' if HAS_RANGE else 'min and max'}"


@dataclass(frozen=True)
class Vectors:
    """Code for vectors of floats of `bits`."""

    builder: Any
    bits: int

    @property
    def count(self) -> int:
        """Lanes of a vector."""
        return REGISTER // self.bits

    @property
    def scalar(self) -> Any:
        """The type of a lane."""
        return ir.FloatType() if self.bits == 32 else ir.DoubleType()

    @property
    def kind(self) -> Any:
        """The type of a vector."""
        return ir.VectorType(self.scalar, self.count)

    @property
    def integers(self) -> Any:
        """The type of a vector of integers of the same width."""
        return ir.VectorType(ir.IntType(self.bits), self.count)

    def at(self, base: Any, index: Any) -> Any:
        """The address of an element."""
        return self.builder.gep(base, [index if isinstance(index, ir.Value) else INDEX(index)])

    def load(self, address: Any, kind: Any = None) -> Any:
        """Loads a vector from an address of any alignment."""
        to = (kind or self.kind).as_pointer()
        loaded = self.builder.load(self.builder.bitcast(address, to))
        loaded.align = 1
        return loaded

    def store(self, value: Any, address: Any) -> None:
        """Stores a vector at an address of any alignment."""
        to = self.builder.bitcast(address, value.type.as_pointer())
        self.builder.store(value, to).align = 1

    def prefetch(self, address: Any) -> None:
        """Fetches the line of an address, which need not be valid, into the caches."""
        module, word = self.builder.module, _WORD
        place = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [place, word, word, word])
        name = "llvm.prefetch.p0i8"
        function = module.globals.get(name) or ir.Function(module, kind, name)
        self.builder.call(function, [self.builder.bitcast(address, place), *map(word, (0, 3, 1))])

    def spread(self, number: Any) -> Any:
        """The number in every lane."""
        undefined = ir.Constant(ir.VectorType(number.type, self.count), ir.Undefined)
        single = self.builder.insert_element(undefined, number, _WORD(0))
        lanes = ir.Constant(ir.VectorType(_WORD, self.count), [0] * self.count)
        return self.builder.shuffle_vector(single, undefined, lanes)

    def constant(self, number: float) -> Any:
        """A constant in every lane."""
        return ir.Constant(self.kind, [number] * self.count)

    def rounded(self, values: Any, rule: str = "rint") -> Any:
        """Integers: the nearest, of two the even one; LLVM's `round`, `floor` and `trunc` too."""
        return self._call(f"llvm.{rule}.v{self.count}f{self.bits}", values)

    def turned(self, rows: Sequence[Any]) -> Sequence[Any]:
        """The columns of a square of numbers, given its rows.

        Row n is interleaved with row n + half, as often as the half fits.
        """
        count, half = len(rows), len(rows) // 2
        low = [n // 2 + count * (n % 2) for n in range(count)]
        masks = [ir.Constant(ir.VectorType(_WORD, count), [start + n for n in low])
                 for start in (0, half)]  # fmt: skip
        for _ in range(count.bit_length() - 1):
            rows = [self.builder.shuffle_vector(rows[n // 2], rows[n // 2 + half], masks[n % 2])
                    for n in range(count)]  # fmt: skip
        return rows

    def add_product(self, factor: Any, values: Any, sums: Any) -> Any:
        """sums + factor * values, rounded once where the processor can."""
        return self._call(f"llvm.fmuladd.v{self.count}f{self.bits}", factor, values, sums)

    def least(self, a: Any, b: Any) -> Any:
        """The lower of each two lanes, neither NaN."""
        return self.builder.select(self.builder.fcmp_ordered("<", a, b), a, b)

    def greatest(self, a: Any, b: Any) -> Any:
        """The higher of each two lanes, neither NaN."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def greatest_from_zero(self, a: Any, b: Any) -> Any:
        """The higher of each two lanes, `a` at least 0: floats then compare as their bits do.

        Beside `least`, it keeps units for integers busy as well as those for floats.
        """
        if self.bits == 64 and REGISTER < 512:  # without such an instruction
            return self.greatest(a, b)
        mine, other = (self.builder.bitcast(each, self.integers) for each in (a, b))
        higher = self.builder.select(self.builder.icmp_signed(">", mine, other), mine, other)
        return self.builder.bitcast(higher, self.kind)

    def limited(self, values: Any, limit: Any) -> Any:
        """The values brought within [-limit, limit]."""
        if not HAS_RANGE:
            return self.greatest(self.least(values, limit), self.builder.fneg(limit))
        name = f"llvm.x86.avx512.mask.range.p{'s' if self.bits == 32 else 'd'}.512"
        all_lanes = ir.IntType(self.count)(-1)
        return self._call(name, values, limit, _SMALLER_MAGNITUDE, values, all_lanes, _ROUND_AS_SET)

    def _call(self, name: str, *operands: Any) -> Any:
        kind = ir.FunctionType(self.kind, [each.type for each in operands])
        module = self.builder.module
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(function, operands)

    def least_index(self, a: Any, b: Any) -> Any:
        """The lower of two indices."""
        return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)

    def loop(
        self, stop: Any, start: Sequence[Any], step: Callable[[Any, list[Any]], list[Any]],
        stride: Any = 1, unrolled: bool = True,
    ) -> list[Any]:  # fmt: skip
        """Runs `step(k, carried)` for k = 0, stride, ... below `stop`; returns `carried`.

        The first step is always taken. The compiler puts several steps in a row if `unrolled`.
        """
        b, before = self.builder, self.builder.block
        body, done = (b.function.append_basic_block(name) for name in ("body", "done"))
        b.branch(body)
        b.position_at_end(body)
        k = b.phi(INDEX)
        k.add_incoming(INDEX(0), before)
        carried = [b.phi(value.type) for value in start]
        for phi, value in zip(carried, start, strict=True):
            phi.add_incoming(value, before)
        after = step(k, carried)
        following = b.add(k, stride if isinstance(stride, ir.Value) else INDEX(stride))
        k.add_incoming(following, b.block)
        for phi, value in zip(carried, after, strict=True):
            phi.add_incoming(value, b.block)
        repeat = b.cbranch(b.icmp_signed("<", following, stop), body, done)
        if not unrolled:
            rule = b.module.add_metadata(["llvm.loop.unroll.disable"])
            loop = ir.values.MDValue(b.module, [], str(len(b.module.metadata)))
            loop.operands = (loop, rule)  # the first part is the loop itself
            repeat.set_metadata("llvm.loop", loop)
        b.position_at_end(done)
        return after

    def when(self, condition: Any, values: list[Any], code: Callable[[], list[Any]]) -> list[Any]:
        """What `code` computes from the values if the condition is true, else the values."""
        b, before = self.builder, self.builder.block
        with b.if_then(condition):
            others, after = code(), b.block
        chosen = [b.phi(value.type) for value in values]
        for phi, value, other in zip(chosen, values, others, strict=True):
            phi.add_incoming(value, before)
            phi.add_incoming(other, after)
        return chosen

    def for_each(self, stop: Any, step: Callable[[Any], None], stride: Any = 1) -> None:
        """Runs `step(k)` for k = 0, stride, ... below `stop`; the first step is always taken."""

        def carrying(k: Any, carried: list[Any]) -> list[Any]:
            step(k)
            return carried

        self.loop(stop, [], carrying, stride)


def compile_task(
    write: Callable[[Any, Sequence[Any]], Iterable[str]], *of: Any
) -> tuple[int, frozenset[str]]:
    """Compiles a task that `write` writes, given its words and its block.

    Returns its address, and the names that `write` returns.
    Nothing but `of` decides what it writes.
    """

    def make() -> tuple[str, bytes]:
        module, kinds = ir.Module(), (_BYTES, _BYTES, INDEX.as_pointer(), INDEX)
        function = ir.Function(module, ir.FunctionType(_WORD, kinds), "written")
        builder = ir.IRBuilder(function.append_basic_block())
        names = write(builder, function.args[2:])
        builder.ret(_WORD(0))
        parsed, machine = binding.parse_assembly(str(module)), _machine()
        options = binding.create_pipeline_tuning_options(2)
        passes = binding.create_pass_builder(machine, options)
        passes.getModulePassManager().run(parsed, passes)
        return " ".join(("written", *sorted(names))), machine.emit_object(parsed)

    return keep_code(make, *of)


def keep_code(make: Callable[[], tuple[str, bytes]], *of: Any) -> tuple[int, frozenset[str]]:
    """Returns the address of a compiled function, and names that belong to it.

    `make` compiles it: it returns its name and those names as a text, and the machine code. It
    compiles nothing else for the same `of`, so what an earlier process compiled is read. One thread
    at a time may call it.
    """
    packages = {__package__}
    spelled = _spell(of, packages)
    folder = kept_in(*sorted(packages))
    path = None if folder is None else folder / f"{hashlib.sha256(spelled.encode()).hexdigest()}.o"
    stored = None if path is None else files.read_cached(path)
    if not stored:
        with compiling(folder is not None):
            told, machine_code = make()
            stored = told.encode() + b"\n" + machine_code
        if path is not None:
            files.store_in_cache(path, stored)
    line, _, machine_code = stored.partition(b"\n")
    name, *names = line.decode().split()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _machine())
    engine.add_object_file(binding.ObjectFileRef.from_data(machine_code))
    engine.finalize_object()
    _ENGINES.append(engine)
    return int(engine.get_function_address(name)), frozenset(names)


def _spell(value: Any, packages: set[str]) -> str:
    """Returns a text that differs for what writes other code; adds the packages of its functions.

    A function is told by where it stands and what it holds: the sources of its package are told by
    the folder. Raises TypeError for what might hold anything.
    """
    if isinstance(value, FunctionType) and "." in value.__module__:
        packages |= _packages(value.__module__)
        holds = [cell.cell_contents for cell in value.__closure__ or ()]
        place = (value.__module__, value.__qualname__, repr([*value.__code__.co_positions()]))
        return _spell((*place, value.__defaults__, value.__kwdefaults__, *holds), packages)
    if isinstance(value, partial):
        return _spell((value.func, value.args, value.keywords), packages)
    if is_dataclass(value):
        held = [getattr(value, each.name) for each in fields(value)]
        return f"{type(value).__qualname__}{_spell(held, packages)}"
    if isinstance(value, dict):
        value = [*value.items()]
    if isinstance(value, list | tuple):
        return f"({', '.join(_spell(each, packages) for each in value)})"
    if isinstance(value, str | int | float | np.dtype | ir.Type | None):
        return repr(value)
    raise TypeError(f"code that depends on {value!r} cannot be kept")


@cache
def _packages(module: str) -> frozenset[str]:
    """The packages of a module and of what its functions call."""
    names, left = set(), [module]
    while left:
        if (name := left.pop()) not in names:
            names.add(name)
            left += {value.function.__module__ for value in vars(sys.modules[name]).values()
                     if isinstance(value, Helper | Emitted)}  # fmt: skip
    return frozenset(name.rpartition(".")[0] for name in names)


@cache
def _machine() -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    triple, processor, features = target()
    machine = binding.Target.from_triple(triple)
    return machine.create_target_machine(cpu=processor, features=features, opt=3, jit=True)


@cache
def place() -> Path | None:
    """Returns the folder that keeps compiled code; None if none can be written.

    It is NUMBA_CACHE_DIR, else beside the sources, else in the user's cache folder.
    """
    beside = _TRACER / "__pycache__" / "compiled"
    elsewhere = files.cache_folder() / f"compiled-{_digest(str(_TRACER).encode())}"
    configured = os.environ.get("NUMBA_CACHE_DIR")
    for folder in (Path(configured),) if configured else (beside, elsewhere):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
    return None


@cache
def kept_in(*packages: str) -> Path | None:
    """Returns the folder that keeps the compiled code of packages; None if none can be written.

    Its name holds the sources. Code of earlier sources is deleted. A folder within is for one
    processor, one version of the compilers, and the settings of numba.
    """
    within = place()
    if within is None:
        return None
    folders = (Path(*importlib.import_module(package).__path__) for package in packages)
    sources = [path for each in folders for path in sorted(each.glob("*.py"))]
    name = "+".join(packages)
    folder = within / f"{name}-{_digest(*(path.read_bytes() for path in sources))}"
    if not os.environ.get("NUMBA_CACHE_DIR"):
        for old in set(within.glob(f"{name}-*")) - {folder}:
            shutil.rmtree(old, ignore_errors=True)
    settings = [os.environ.get(f"NUMBA_{name}") for name in _SETTINGS]
    made_by = metadata.version("numba"), llvmlite.__version__, settings
    return folder / f"{target()[1]}-{_digest(repr((target(), made_by)).encode())}"


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]
