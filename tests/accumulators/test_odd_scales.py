"""Quantised nodes of odd scales and zero points: narrow sums fail only where plain ones do."""

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tests.examples import examples
from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import TracerError
from tracer.graph import loading
from tracer.interpreter.interpreter import Interpreter

SHAPES = {"Conv": ((2, 4, 4, 4), (4, 4, 2, 2)), "ConvTranspose": ((2, 4, 4, 4), (4, 4, 2, 2)),
          "Gemm": ((3, 4), (4, 4)), "MatMul": ((3, 4), (4, 4))}  # fmt: skip
SCALES = (0.5, 0.0, -0.1, np.inf, np.nan, 1e-45, 3e38)
WIDE = 40
"""Bits that hold every sum of these."""


@st.composite
def dequantized(draw, name, shape):
    """Nodes and stored tensors of `name`, a DequantizeLinear of integers of that shape."""
    size = draw(st.sampled_from(((), (), (1,), (4,), (4,), (5,), (1, 4), (0,))))
    dtype = draw(st.sampled_from((np.int8, np.uint8, np.int8, np.uint8, np.int16, np.int32)))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    scale = draw(st.sampled_from(SCALES)) if draw(st.booleans()) else rng.random(size) + 0.01
    stored = {
        f"{name}_q": rng.integers(0, 100, shape).astype(dtype),
        f"{name}_s": np.asarray(scale, np.float32),
    }
    if draw(st.booleans()):
        other = draw(st.sampled_from((np.shape(scale), np.shape(scale), (), (3,))))
        stored[f"{name}_z"] = rng.integers(0, 100, other).astype(dtype)
    axis = {"axis": draw(st.sampled_from((0, 1, -1, 2)))} if draw(st.booleans()) else {}
    return helper.make_node("DequantizeLinear", list(stored), [name], **axis), stored


@st.composite
def models(draw):
    op_type = draw(st.sampled_from(sorted(SHAPES)))
    x, w = SHAPES[op_type]
    rows = draw(st.sampled_from((x[0], x[0], 1, 0)))
    parts = [draw(dequantized("x", (rows, *x[1:]))), draw(dequantized("w", w))]
    if op_type != "MatMul" and draw(st.booleans()):
        parts.append(draw(dequantized("b", draw(st.sampled_from(((4,), (4,), (1,), ()))))))
    names = [node.output[0] for node, _ in parts]
    nodes = [*(node for node, _ in parts), helper.make_node(op_type, names, ["y"])]
    weights = [numpy_helper.from_array(v, n) for _, stored in parts for n, v in stored.items()]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [], [output], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def computed(model, wrap_kernel=None):
    with np.errstate(all="ignore"):
        return Interpreter(model, wrap_kernel=wrap_kernel).run(None, {})[0]


@examples(150)
@given(models())
def test_wide_sums_are_those_of_the_plain_interpreter(proto):
    try:
        model = loading.from_proto(proto)
        emulation = AccumulatorEmulation(model, parse_policy(str(WIDE)))
        expected = computed(model)
    except TracerError as error:  # it has no integers, or the plain interpreter refuses it, too
        assert str(error)
        return
    found = computed(model, emulation.wrap)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if np.isfinite(expected).all():
        largest = np.abs(expected).max(initial=1e-37)  # below, floats have fewer digits
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * largest)
