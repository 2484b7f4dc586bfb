"""Compiled code is kept for the same sources and the same processor, and told when it is made."""

import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import tracer
from models import families
from tracer.interpreter import compiled_code
from tracer.interpreter.compiled_code import NO_MEMORY

USE = """
import numpy as np
from tracer.interpreter import compiled_code as loading

with loading.announced(lambda done, total, what: print(done, total, what, sep=", ")):
    probe, tiles = loading.loaded("probe"), loading.loaded("tile_code")
    for _ in range(2):
        assert probe.doubled(np.float32(2)) == 4
    tiles.task(tiles.NOTHING, tiles.FLOATS, np.dtype(np.float32), 32, 2, 1)
print(*loading.notes())
"""
PROBE = """
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels import argument_types as types

@entry(lambda x: True, types.float32(types.float32))
def doubled(x):
    return x + x

@entry(lambda x: True, types.float32(types.float32))
def unused(x):
    return x
"""
BEYOND = """
import numpy as np
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels import argument_types as types

@entry(lambda x, at: True, types.int64(types.NUMBERS, types.int64))
def element(x, at):
    return x[at]

numbers = np.arange(3) + 7
print(element(numbers, 2))
try:
    element(numbers, 3)
except MemoryError as error:
    print(error)
"""
STEPS = """
import numpy as np
from tracer.accumulators.kernels import loaded as of_sums
from tracer.interpreter import compiled_code as loading

steps, tiles = of_sums("steps"), loading.loaded("tile_code")
with loading.announced(lambda done, total, what: print(done)):
    for rule in ("wrap", "zero", "saturate"):
        for step in (steps.limiting(rule), steps.counting(rule)):
            tiles.task(step, tiles.FLOATS, np.dtype(np.float32), 32, 2, 1)
"""
ARM = """
import numpy as np
from llvmlite import binding

binding.initialize_all_targets()
binding.initialize_all_asmprinters()
binding.get_process_triple = lambda: "aarch64-unknown-linux-gnu"
from tracer.accumulators.kernels import loaded as of_sums
from tracer.interpreter import compiled_code as loading

class Engine:
    def __init__(self, *arguments): ...
    def add_object_file(self, file): ...
    def finalize_object(self): ...
    def get_function_address(self, name): return 0

tiles = loading.loaded("tile_code")
steps, tallies = of_sums("steps"), of_sums("tally_stores")
binding.create_mcjit_compiler = Engine  # for no code of another processor
for bits in (32, 64):
    for step, store in (
        (steps.limiting("wrap"), steps.VALUES), (steps.limiting("zero"), steps.BYTES),
        (steps.counting("saturate"), steps.COUNTS), (steps.EXTREMES, steps.SUMS_AND_EXTREMES),
        (steps.EXTREMES, steps.rare_counts("saturate", True)),
        (steps.EXTREMES, tallies.tally("saturate", True)),
    ):
        tiles.task(step, store, np.dtype(np.int8), bits, 4, 2).code
"""
ONCE = "compiling kernels for this processor, once"
EACH_TIME = "compiling kernels for this processor"


def use(folder, program=USE, **variables):
    """What a process says that uses a compiled kernel and a tile of the packages in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment | variables, cwd=folder,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def kinds(folder):
    """The files of compiled code below a folder, by their endings."""
    return sorted(path.suffix for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def package(tmp_path):
    """A copy of the package without compiled code, and its folder for compiled code."""
    source, target = Path(tracer.__file__).parent, tmp_path / "copy" / "tracer"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "interpreter/kernels/probe.py").write_text(PROBE)
    return target


def test_an_edit_of_what_kernels_share_compiles_them_anew_and_drops_the_old_code(package):
    compiled = package / "__pycache__/compiled"
    told = [f"0, 1, {ONCE}", f"1, 1, {ONCE}", f"1, 2, {ONCE}", f"2, 2, {ONCE}", ""]
    assert use(package.parent) == told
    (first,) = compiled.iterdir()
    assert kinds(first) == [".o", ".o"]
    with (package / "interpreter/kernels/task_team.py").open("a") as file:
        file.write("# another line\n")
    assert use(package.parent) == told
    (second,) = compiled.iterdir()
    assert second != first


@pytest.mark.nightly
def test_a_tile_is_kept_for_its_step_and_the_sources_of_the_step(package):
    kept = package / "__pycache__/compiled"
    assert len(use(package.parent, STEPS)) == 2 * 6  # begin and end of each
    assert kinds(kept) == [".o"] * 6
    assert use(package.parent, STEPS) == []
    with (package / "accumulators/kernels/steps.py").open("a") as file:
        file.write("# another line\n")
    assert len(use(package.parent, STEPS)) == 2 * 6
    assert kinds(kept) == [".o"] * 6


def test_an_index_beyond_an_array_is_an_error_where_numba_checks(package):
    (package / "interpreter/kernels/beyond.py").write_text(BEYOND)
    program = "import tracer.interpreter.kernels.beyond"
    assert use(package.parent, program, NUMBA_BOUNDSCHECK="1") == ["9", NO_MEMORY]


@pytest.mark.nightly
def test_an_installation_that_cannot_be_written_keeps_code_in_the_users_cache_or_not_at_all(
    package, tmp_path
):
    file = package / "__pycache__"
    file.write_text("no folder can be made here, not even by an administrator")
    cache = tmp_path / "cache"
    assert ONCE in use(package.parent, XDG_CACHE_HOME=str(cache))[0]
    assert use(package.parent, XDG_CACHE_HOME=str(cache)) == [""]
    assert kinds(cache) == [".o", ".o"]
    *told, note = use(package.parent, XDG_CACHE_HOME=str(file))
    assert told == [f"{n}, {EACH_TIME}" for n in ("0, 1", "1, 1", "1, 2", "2, 2")]
    assert "set NUMBA_CACHE_DIR to a folder that can be written" in note


@pytest.mark.nightly
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names an x86 processor")
def test_code_for_one_processor_is_never_used_on_another(package, tmp_path):
    root, kept = package.parent, tmp_path / "kept"
    old = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "+sse2"}
    variables = {"NUMBA_CACHE_DIR": str(kept)}
    assert ONCE in use(root, **variables)[0]
    assert ONCE in use(root, **variables, **old)[0]
    assert kinds(kept) == [".o"] * 4
    assert use(root, **variables) == [""]  # nothing is compiled


def test_tiles_compile_for_arm(tmp_path):
    """An instruction of x86 that no condition guards is an error of LLVM there."""
    kept = tmp_path / "kept"
    arm = {"NUMBA_CPU_NAME": "neoverse-n1", "NUMBA_CPU_FEATURES": "+neon"}
    use(Path(tracer.__file__).parents[1], ARM, NUMBA_CACHE_DIR=str(kept), **arm)
    codes = [path.read_bytes().partition(b"\n")[2] for path in kept.rglob("*.o")]
    assert len(codes) == 2 * 6
    assert {struct.unpack_from("<H", code, 18) for code in codes} == {(183,)}  # EM_AARCH64 of ELF


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_the_code_is_loaded(number, monkeypatch):
    def end(*_):
        raise KeyboardInterrupt

    before, steps = signal.signal(number, end), []
    try:
        with pytest.raises(KeyboardInterrupt), compiled_code.loading():
            signal.raise_signal(number)
            steps.append("loaded")
        assert steps == ["loaded"]
        assert signal.getsignal(number) is end
    finally:
        signal.signal(number, before)


LENET = families.shipped("lenet", "torch")
LATE = """
import sys
import numpy as np
from tests.interpreter.models import single
from tracer.interpreter.interpreter import Interpreter

feeds = {name: np.ones((1024, 1024), np.float32) for name in "ab"}
interpreter = Interpreter(single("MatMul", feeds), late_kernels=True)
for _ in range(6):
    (product,) = interpreter.run(None, feeds)
    assert (product == 1024).all()
    print("llvmlite" in sys.modules)
"""


@pytest.mark.nightly
def test_kernels_are_loaded_late_where_numpy_has_cost_as_much():
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True)
    assert done.stdout.split() == ["False"] * 4 + ["True"] * 2, done.stderr


@pytest.mark.one_in(2)
@pytest.mark.parametrize("command", [["profile", "--runs", "3"], ["fusions"]])
def test_a_command_that_only_compares_values_of_a_small_model_loads_no_compiler(command):
    done = subprocess.run(
        [sys.executable, "-m", "tracer", command[0], str(LENET), *command[1:]],
        env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "onnxruntime" in done.stderr and "llvmlite" not in done.stderr
