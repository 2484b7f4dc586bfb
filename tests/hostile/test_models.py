"""Every command meets every hostile model with a documented exit code and one named line."""

import pytest

import tracer.cli
from tests.hostile import attributes, bombs, declared, structure  # noqa: F401 - they fill CASES
from tests.hostile.corpus import CASES

DOCUMENTED = (0, 3, 4)
"""Exit codes of a model that is fine, that is refused, and that needs too much."""


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


@pytest.mark.parametrize("name", CASES)
def test_count(name, stored, capfd):
    file = stored(name)
    code, line = met(["count", file], capfd)
    assert code == 0 or str(file) in line
