"""Every command meets every hostile model with a documented exit code and one named line."""

import numpy as np
import pytest

import tracer.cli
from tests.examples import at_night
from tests.hostile import attributes, bombs, declared, large, structure  # noqa: F401 - they fill CASES
from tests.hostile.corpus import CASES, ENDLESS

DOCUMENTED = (0, 3, 4)
"""Exit codes of a model that is fine, that is refused, and that needs too much."""
SMALL = ("--max-tensor", 16, "--max-live", 64, "--max-trips", 200, "--max-seconds", 20)
"""Limits that make what is too much little."""
RUN = [name for name in CASES if name not in ENDLESS]


def met(args, capfd):
    """The exit code of a command, which told an error in one line on stderr, or none."""
    code = tracer.cli.main([str(arg) for arg in args])
    lines = capfd.readouterr().err.splitlines()
    assert code in DOCUMENTED, lines
    errors = [line for line in lines if line.startswith("tracer: error: ")]
    assert len(errors) == (code != 0), lines
    return code, "".join(errors)


@pytest.fixture
def stored(tmp_path):
    def store(name):
        made = CASES[name]()
        file = tmp_path / "m.onnx"
        file.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
        return file

    return store


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    "name", at_night([*CASES][::4], but=[*CASES][::12])
)  # the interpreter loads them all
def test_count(name, stored, capfd):
    file = stored(name)
    code, line = met(["count", file], capfd)
    assert code == 0 or str(file) in line


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", RUN)
def test_interpret(name, stored, capfd):
    file = stored(name)
    code, line = met(["interpret", file, "--runs", 1, *SMALL], capfd)
    assert code == 0 or str(file) in line


SUMS = [name for name in RUN if any(op in name for op in ("Conv", "weight", "external", "Einsum"))]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", SUMS)
def test_narrow_sums(name, stored, capfd):
    file = stored(name)
    code, line = met(["interpret", file, "--accumulator", 16, *SMALL], capfd)
    assert code == 0 or str(file) in line


@pytest.mark.parametrize("name", SUMS[::4])
def test_whatif(name, stored, capfd, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 3), np.float32))
    args = ["whatif", stored(name), "--accumulator", "14:15", "--data", tmp_path / "x.npz"]
    met([*args, *SMALL], capfd)


@pytest.mark.parametrize("name", SUMS[::4])
def test_quantize(name, stored, capfd, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 3), np.float32))
    args = ["quantize", stored(name), "--calibrate", tmp_path / "x.npz"]
    met([*args, "-o", tmp_path / "q.onnx"], capfd)
