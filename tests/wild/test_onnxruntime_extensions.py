"""The library of custom operators of onnxruntime-extensions, in every command that takes one."""

import numpy as np
import onnx
import pytest

import tracer
from tests.interpreter.models import parsed
from tracer.api.compare import SideSettings
from tracer.errors import ModelError
from tracer.executors.registry import find_fallback
from tracer.interpreter.interpreter import Interpreter
from tracer.support.tolerance import Tolerance

extensions = pytest.importorskip(
    "onnxruntime_extensions", reason="onnxruntime-extensions is not installed"
)
LIBRARY = [extensions.get_library_path()]
HEADER = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.contrib" : 1]> '
MODEL = HEADER + (
    "graph (float[4,8] x) => (float[4,8] z) { [square] y = Mul (x, x)"
    " [split] n, p = ai.onnx.contrib.NegPos (x) [sum] s = Add (y, p) [turn] z = Neg (s) }"
)


@pytest.fixture
def path(tmp_path):
    onnx.save(parsed(MODEL), tmp_path / "custom.onnx")
    return tmp_path / "custom.onnx"


def test_a_profile_in_a_child_process_has_a_row_for_the_operator(path):
    trace = tracer.profile(path, runs=3, register=LIBRARY)
    row = trace.nodes.set_index("node").loc["split"]
    assert row["time_us"] > 0 and row["domain"] == "ai.onnx.contrib"
    assert trace.settings["register"] == LIBRARY


def test_fusions_are_confirmed_by_values(path):
    """Random inputs are positive, so the positive part has the values of its input."""
    result = tracer.fusions(path, register=LIBRARY, in_process=True)
    verdicts = {row.nodes: row.verdict for row in result.kernels}
    assert verdicts.pop(("split",)) == "not distinguishable"
    assert verdicts == dict.fromkeys([("square",), ("sum",), ("turn",)], "confirmed")


def test_sides_agree(path):
    settings = SideSettings(register=LIBRARY, sessions=2, precision=0.9)
    result = tracer.compare(
        [str(path), f"{path}@ort:none"], settings=settings, tolerance=Tolerance(), in_process=True
    )
    assert [numbers.differ for numbers in result.numbers] == [0]


def test_the_interpreter_computes_its_formula(path):
    x = np.random.default_rng(0).normal(0, 1, (4, 8)).astype(np.float32)
    interpreter = Interpreter(parsed(MODEL), fallback=find_fallback("ort", LIBRARY))
    (computed,) = interpreter.run(None, {"x": x})
    np.testing.assert_allclose(computed, -(x * x + np.maximum(x, 0)), rtol=1e-6)
    trace = tracer.interpret(path, fallback="ort", against="ort", register=LIBRARY, runs=1)
    assert (trace.nodes["difference_max"].dropna() < 1e-6).all()


def test_an_operator_that_the_library_lacks(tmp_path):
    onnx.save(parsed(MODEL.replace("NegPos", "Nothing")), tmp_path / "nothing.onnx")
    with pytest.raises(ModelError, match=r"no operator Nothing in the domain 'ai\.onnx"):
        tracer.profile(tmp_path / "nothing.onnx", runs=1, register=LIBRARY, in_process=True)
    with pytest.raises(ModelError, match=r"'split'[\s\S]*no operator Nothing"):
        tracer.interpret(
            tmp_path / "nothing.onnx", fallback="ort", register=LIBRARY, in_process=True
        )
