"""How the kernels of each operator are revealed and replayed: one file for each family.

A module declares `REPLAYS`: replays by operator, which is `domain:type`, or the type alone in
ONNX's own domain. An operator without one is replayed by tracer's interpreter, which computes
moves, Add … with the bits of any IEEE machine. `of_floats` leaves other types than float32 to it.
`WithActivation` replays functions of one element that onnxruntime fuses at the end of a kernel.

`KnownRules` keeps what was revealed in the cache folder: a file for each processor, release of
onnxruntime and state of the sources of `tracer.arithmetic`. A rule is that of kernels with the same
operator, attributes, shapes, types, threads and small constants, whatever their weights.
"""

import hashlib
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import onnxruntime as ort
from onnx import helper

from tracer.arithmetic.kernel import Facts, Inputs, Kernel, NotKnown, Replay, Rule, reveal
from tracer.errors import ModelError
from tracer.interpreter.compiled_code import loaded
from tracer.support.files import cached_file, read_cached, store_in_cache
from tracer.support.types import Array

ROUNDED = Rule("each result is rounded once, or moved")


def replay_of(domain: str, op_type: str) -> Replay:
    """Returns how kernels of an operator are revealed and replayed."""
    return _replays().get(f"{domain}:{op_type}" if domain else op_type, INTERPRETED)


@cache
def _replays() -> Mapping[str, Replay]:
    found: dict[str, Replay] = {}
    for module in pkgutil.iter_modules(__path__):
        declared = importlib.import_module(f"{__name__}.{module.name}")
        found |= getattr(declared, "REPLAYS", {})
    return found


class _Interpreted:
    """The interpreter's own order of operations: sums, such as Einsum's, are rounded many times."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        yield Rule("moved, or computed as tracer interpret does")

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        return kernel.interpret(inputs)


INTERPRETED = _Interpreted()


@dataclass(frozen=True)
class Floats:
    """A replay for float32; the interpreter replays other types, and tensors without numbers."""

    replay_of_floats: Replay

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        """Yields rules by the kernel's type, which are those of computed data if it is stored."""
        name, replay = kernel.node.input[0], self._choose(kernel)
        if name in kernel.constants:
            constants = dict(kernel.constants)
            stored = constants.pop(name)
            inputs = {name: (stored.dtype, stored.shape), **kernel.inputs}
            kernel = replace(kernel, inputs=inputs, constants=constants)
        return replay.candidates(kernel)

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        """Returns the outputs by the replay for the kernel's type."""
        with np.errstate(all="ignore"):
            return self._choose(kernel).replay(kernel, facts, inputs)

    def _choose(self, kernel: Kernel) -> Replay:
        name = kernel.node.input[0]
        stored = kernel.constants.get(name)
        dtype = kernel.inputs[name][0] if stored is None else stored.dtype
        is_empty = 0 in (kernel.shape(0) or ())
        return self.replay_of_floats if dtype == np.float32 and not is_empty else INTERPRETED


def of_floats(replays: Mapping[str, Replay]) -> dict[str, Replay]:
    """Returns replays by operator that hold for float32 alone."""
    return {name: Floats(replay) for name, replay in replays.items()}


@dataclass(frozen=True)
class WithActivation:
    """A replay of sums, and of the function at their end, whose facts are `activation`.

    Without the function, a kernel is of the type `plain` of ONNX, or of its own.
    """

    sums: Replay
    plain: str = ""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        """Yields the rules of the sums, with that of the function."""
        if not kernel.attributes.get("activation"):
            yield from self.sums.candidates(kernel)
            return
        bare = self._bare(kernel)
        function = _function(kernel, kernel.run(kernel.draw(np.random.default_rng(0)))[0])
        last = reveal(replay_of("", function.op_type), function)
        for rule in self.sums.candidates(bare):
            facts = {**rule.facts, "activation": last.facts}
            yield Rule(f"{rule.text}, then {function.op_type}: {last.text}", facts)

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        """Returns the sums, or the function of them."""
        if not kernel.attributes.get("activation"):
            return self.sums.replay(kernel, facts, inputs)
        (sums,) = self.sums.replay(self._bare(kernel), facts, inputs)
        function = _function(kernel, sums)
        replay = replay_of("", function.op_type)
        return replay.replay(function, facts["activation"], {"x": sums})

    def _bare(self, kernel: Kernel) -> Kernel:
        names = (name for name in kernel.attributes if name.startswith("activation"))
        bare = kernel.without_attributes(*names)
        if self.plain:
            bare.node.op_type, bare.node.domain = self.plain, ""
        return bare


def _function(kernel: Kernel, sums: Array) -> Kernel:
    """Returns the kernel of the function of `sums`, its input "x"."""
    values = kernel.attributes
    numbers = values.get("activation_params", [])
    limits = zip(("low", "high"), numbers if values["activation"] == "Clip" else [], strict=False)
    stored = {name: np.array(number, np.float32) for name, number in limits}
    given = dict(zip(("alpha", "beta"), [] if stored else numbers, strict=False))
    for name in ("alpha", "beta", "gamma"):
        if f"activation_{name}" in values:
            given[name] = values[f"activation_{name}"]
    node = helper.make_node(values["activation"], ["x", *stored], ["y"], **given)
    inputs = {"x": (sums.dtype, sums.shape)}
    return Kernel(node, inputs, stored, {"": 17}, kernel.threads)


class KnownRules:
    """The rule of each kernel; `announce` is called before one is revealed.

    The rules that are stored are left aside with `anew`. `folder` defaults to the user's cache
    folder.
    """

    def __init__(
        self,
        folder: Path | None = None,
        anew: bool = False,
        announce: Callable[[Kernel], None] = lambda kernel: None,
    ) -> None:
        target = loaded("machine_code").target()  # instructions as cpuid tells them
        sources = sorted(Path(__file__).parents[1].rglob("*.py"))
        method = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
        key = (method, target, ort.__version__)
        self._file, self._announce = cached_file("rules", key, folder), announce
        self._rules = {} if anew else _read(self._file)
        self._found: dict[str, Rule] = {}
        self._unknown: dict[str, str] = {}

    def of(self, kernel: Kernel) -> Rule:
        """Returns the rule of a kernel. Raises NotKnown, with the reason, if none is found."""
        key = kernel.key
        if key in self._unknown:
            raise NotKnown(self._unknown[key])
        if key not in self._rules:
            self._announce(kernel)
            try:
                self._rules[key] = self._found[key] = _reveal(replace(kernel))
            except NotKnown as reason:
                self._unknown[key] = str(reason)
                raise
        return self._rules[key]

    def store(self) -> None:
        """Adds the rules that were found to those that are stored."""
        if self._found:
            store_in_cache(self._file, msgspec.json.encode({**_read(self._file), **self._found}))


def _reveal(kernel: Kernel) -> Rule:
    """Returns the rule of a kernel, whose session ends with it."""
    try:
        return reveal(replay_of(kernel.node.domain, kernel.op_type), kernel)
    except ModelError as error:
        raise NotKnown(f"tracer's interpreter cannot compute it: {error.what}") from error
    except (ValueError, LookupError) as error:
        raise NotKnown(f"no rule fits its attributes and shapes: {error}") from error


def _read(file: Path) -> dict[str, Rule]:
    data = read_cached(file)
    try:
        return {} if data is None else msgspec.json.decode(data, type=dict[str, Rule])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
