"""Libraries of custom operators that onnxruntime loads: what is refused, and how.

`tests/wild/test_onnxruntime_extensions.py` runs a real library.
"""

import numpy as np
import onnx
import pytest

import tracer
from tests.interpreter.models import parsed
from tracer.api.compare import SideSettings
from tracer.errors import InputError, ModelError, UsageError

WITHOUT_ENTRY = np._core._multiarray_umath.__file__
CUSTOM = '<ir_version: 10, opset_import: ["" : 21, "mine" : 1]> graph (float[2,3] x) => '
CUSTOM += "(float[2,3] y) { [whirl] a = mine.Whirl (x) [clip] y = Relu (a) }"


@pytest.fixture
def path(tmp_path):
    onnx.save(parsed(CUSTOM), tmp_path / "custom.onnx")
    return tmp_path / "custom.onnx"


def _runs(path, register):
    """Each of the calls that take libraries."""
    settings = SideSettings(register=register)
    yield lambda: tracer.profile(path, runs=1, register=register, in_process=True)
    yield lambda: tracer.fusions(path, register=register, in_process=True)
    yield lambda: tracer.compare([str(path), str(path)], settings=settings, in_process=True)
    yield lambda: tracer.interpret(path, fallback="ort", register=register, in_process=True)


def test_a_file_that_is_not_there(path, tmp_path):
    for run in _runs(path, [tmp_path / "none.so"]):
        with pytest.raises(InputError, match=r"none\.so: no such file"):
            run()


def test_a_file_that_is_no_library(path, tmp_path):
    (tmp_path / "junk.so").write_bytes(bytes(4096))
    for run in _runs(path, [tmp_path / "junk.so"]):
        with pytest.raises(InputError, match=r"junk\.so cannot be loaded as a library: .*header"):
            run()


def test_a_library_without_operators(path):
    for run in _runs(path, [WITHOUT_ENTRY]):
        with pytest.raises(InputError, match="it has no function RegisterCustomOps"):
            run()


def test_an_operator_that_nothing_has_is_told_with_the_way_out(path):
    with pytest.raises(ModelError, match="no operator Whirl in the domain 'mine'") as caught:
        tracer.profile(path, runs=1, in_process=True)
    assert "register=FILE.so" in caught.value.hint


def test_a_library_that_nothing_would_run_is_refused(path):
    with pytest.raises(UsageError, match="nothing runs it here"):
        tracer.interpret(path, register=[WITHOUT_ENTRY], in_process=True)
    with pytest.raises(UsageError, match=r"settings\.register would do nothing"):
        sides = [f"{path}@interpreter", f"{path}@interpreter"]
        tracer.compare(sides, settings=SideSettings(register=[WITHOUT_ENTRY]), in_process=True)


def test_what_is_no_list_of_paths():
    with pytest.raises(UsageError, match="a list of paths"):
        SideSettings(register="library.so")
