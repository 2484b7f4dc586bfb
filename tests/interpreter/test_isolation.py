"""A node in isolation: a wrong kernel is told from the rounding that other nodes pass on."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.interpreter.models import parsed
from tracer.graph.loading import from_proto
from tracer.graph.operators import precisions
from tracer.interpreter.fallback import instantiate
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import Isolation, Recorder, named_tensors
from tracer.support.tolerance import TF32_SHARE, Tolerance

CANCELLING = """
<ir_version: 9, opset_import: ["" : 18]>
main (float[4, 600] x, float[600, 8] w) => (float[4, 8] y) <float k = {3.0}, int64[1] last = {1}> {
  [product] p = MatMul (x, w)
  [mean] m = ReduceMean (p, last)
  [rest] r = Sub (p, m)
  [scaled] y = Mul (r, k)
}
"""
ROUNDING = """
<ir_version: 9, opset_import: ["" : 18]>
main (float[3] x) => (float[3] y) <float s = {0.5}, uint8 z = {128}> {
  [quantised] q = QuantizeLinear (x, s, z)
  [back] d = DequantizeLinear (q, s, z)
  [root] y = Sqrt (d)
}
"""
RANDOM = """
<ir_version: 9, opset_import: ["" : 18]>
main (float[3] x) => (float[3] y) {
  [noise] n = RandomNormalLike (x)
  [sum] y = Add (x, n)
}
"""


def f32(*numbers):
    return np.array(numbers, np.float32)


def compared(text, feeds, expected):
    """Differences by node: as the model runs, and each node on the `expected` values."""
    model = from_proto(parsed(text))
    isolation = Isolation(model, expected, Tolerance())
    recorder = Recorder(expected=expected, precisions=precisions(model, expected))
    interpreter = Interpreter(model)
    interpreter.with_observers(recorder).run(None, feeds)
    interpreter.with_observers(isolation).run(None, feeds)
    faults = {key: record.difference.fault for key, record in recorder.records.items()}
    own = {key: difference.fault for key, difference in isolation.differences.items()}
    return faults, own


@pytest.fixture
def cancelling():
    """Feeds of `CANCELLING`, and the tensors of a runtime that is off by 40 roundings in `p`."""
    rng = np.random.default_rng(0)
    x = rng.random((4, 600), np.float32) + 1
    w = (rng.random((600, 1)) + 1 + 1e-5 * rng.standard_normal((600, 8))).astype(np.float32)
    exact = x.astype(float) @ w.astype(float)
    p = (exact * (1 + 5e-6 * rng.uniform(-1, 1, exact.shape))).astype(np.float32)
    m = p.mean(axis=1, keepdims=True)
    return {"x": x, "w": w}, {"p": p, "m": m, "r": p - m, "y": (p - m) * np.float32(3)}


def test_rounding_that_a_difference_magnifies_is_no_fault_of_a_node(cancelling):
    faults, own = compared(CANCELLING, *cancelling)
    assert own == dict.fromkeys(("product", "mean", "rest", "scaled"), "")
    assert [key for key, fault in faults.items() if fault] == ["rest", "scaled"]


def test_a_wrong_kernel_is_the_only_node_at_fault(cancelling):
    feeds, expected = cancelling
    expected["r"] = expected["r"] * np.float32(1.001)
    expected["y"] = expected["r"] * np.float32(3)
    faults, own = compared(CANCELLING, feeds, expected)
    assert [key for key, fault in own.items() if fault] == ["rest"]
    assert own["rest"] == "the largest error is 0.001 of the largest value (allowed: 0.00012)"
    assert faults["scaled"]


@pytest.mark.parametrize(("off", "fault"), [(1, ""), (2, "the largest error is 2 (allowed: 1)")])
def test_a_rounded_integer_may_be_one_step_off_and_what_follows_is_judged_by_that(off, fault):
    q = np.array([129, 150, 230], np.uint8)
    d = (q.astype(np.float32) - 128) / 2
    x = f32(0.5, 11, 51)
    q[2] += off
    d[2] += off / 2
    expected = {"q": q, "d": d, "y": np.sqrt(d)}
    faults, own = compared(ROUNDING, {"x": x}, expected)
    assert own == {"quantised": fault, "back": "", "root": ""}
    assert (faults["back"] == "") == (off == 1)  # a step is 1 % of 51, and 1.1 % is allowed


def test_random_operators_are_not_compared():
    expected = {"n": f32(1, 2, 3), "y": f32(2, 4, 6)}
    _, own = compared(RANDOM, {"x": f32(1, 2, 3)}, expected)
    assert own == {"sum": ""}


def test_a_tensor_inside_an_operator_is_none_of_the_graph():
    """The standard defines Mish by other operators, whose result is called Y."""
    model = from_proto(parsed("""
    <ir_version: 9, opset_import: ["" : 18]>
    main (float[2] x) => (float[2] Y) { [called] Y = Mish (x) }
    """))  # fmt: skip
    body = onnx.defs.get_schema("Mish", 18).function_body
    inner = instantiate(body, model.nodes[0], 18)
    assert inner.nodes[-1].outputs == ("Y",)
    assert not any(list(named_tensors(node, [f32(1)])) for node in inner.nodes)
    assert dict(named_tensors(model.nodes[0], [f32(1)])) == {"Y": f32(1)}


def test_a_product_in_tf32_is_no_fault_of_a_device_that_computes_in_it():
    """The factors are rounded to 11 bits, as a card does; the sums are exact."""

    def tf32(values):
        bits = values.view(np.uint32) + np.uint32(1 << 12)
        return (bits & ~np.uint32((1 << 13) - 1)).view(np.float32).astype(float)

    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((4, 600), np.float32), rng.standard_normal((600, 8), np.float32)
    p = (tf32(x) @ tf32(w)).astype(np.float32)
    m = p.mean(axis=1, keepdims=True)
    expected = {"p": p, "m": m, "r": p - m, "y": (p - m) * np.float32(3)}
    model = from_proto(parsed(CANCELLING))
    for products, faulty in (({}, {"product"}), ({"MatMul": TF32_SHARE}, set())):
        isolation = Isolation(model, expected, Tolerance(), products)
        Interpreter(model, observers=[isolation]).run(None, {"x": x, "w": w})
        assert {key for key, each in isolation.differences.items() if each.fault} == faulty
    after = precisions(model, expected, products={"MatMul": TF32_SHARE})
    assert after["y"].share == TF32_SHARE > precisions(model, expected)["y"].share


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_onnxruntime_cuts_off_an_integer_between_two_pixels(dtype):
    """The interpreter rounds it, as ONNX does: each is one step off at most."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
      g ({dtype}[1,1,5,5] x) => ({dtype}[1,1,9,9] y) <float[4] scales = {{1.0, 1.0, 1.8, 1.8}}> {{
        [r] y = Resize <mode = "linear"> (x, , scales)
      }}"""
    feeds = {"x": np.random.default_rng(0).integers(0, 100, (1, 1, 5, 5)).astype(dtype)}
    session = ort.InferenceSession(
        parsed(text).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = {"y": session.run(None, feeds)[0]}
    assert compared(text, feeds, expected) == ({"r": ""}, {"r": ""})
    assert compared(text, feeds, {"y": expected["y"] + 2})[1] != {"r": ""}
