"""Tensors with an axis of size 0, in many operators: onnxruntime is the oracle.

Detectors that find nothing have them. Left out is where onnxruntime ends the process (GRU and LSTM
of no sequences, Unique along another axis), never ends (Conv of no channels with padding), returns
memory that nobody wrote (integer products without terms) or 0 times it, which may be NaN (Conv of
no channels), or refuses the model.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.interpreter.models import onnxruntime, single
from tracer.interpreter.interpreter import Interpreter

SHAPES = [(0,), (0, 4), (3, 0), (2, 0, 3), (0, 0)]
UNARY = (
    "Abs", "Ceil", "Elu", "Erf", "Exp", "Gelu", "HardSwish", "Identity", "IsNaN", "LeakyRelu",
    "Log", "Mish", "Neg", "NonZero", "Relu", "Round", "Shape", "Shrink", "Sigmoid", "Sign", "Size",
    "Softplus", "Sqrt", "Tanh", "Transpose", "Flatten", "Dropout", "Unique",
)  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mean", "Sum", "Equal", "Less", "PRelu")
FOLDS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip
PRODUCTS = [
    ((0, 4), (4, 0)), ((3, 0), (0, 4)), ((0, 4), (4, 5)), ((2, 3, 0), (0, 5)), ((0, 0), (0, 0)),
    ((2, 3, 0), (2, 0, 5)), ((0, 3, 4), (0, 4, 5)), ((0, 3, 4), (4, 5)), ((0,), (0, 3)),
]  # fmt: skip
IMAGES = [(0, 2, 4, 4), (1, 0, 4, 4), (0, 2, 5)]


def floats(*shape):
    return np.linspace(-2, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def ints(*values):
    return np.array(values, np.int64)


def of_any_shape():
    for shape in SHAPES:
        x = floats(*shape)
        for op_type in UNARY:
            yield op_type, (x,), {}
        for op_type in BINARY:
            yield op_type, (x, x), {}
            yield op_type, (x, floats(1)), {}
        yield "Where", (np.zeros(shape, bool), x, x), {}
        yield "Clip", (x, np.float32(0), np.float32(1)), {}
        yield "Cast", (x,), {"to": 7}
        yield "QuantizeLinear", (x, np.float32(1), np.uint8(0)), {}
        yield "DynamicQuantizeLinear", (x,), {"outputs": 3}
        yield "Expand", (x, ints(2, *shape)), {}
        yield "Tile", (x, ints(*[2] * len(shape))), {}
        yield "Pad", (x, ints(*[1] * 2 * len(shape))), {}
        yield "Slice", (x, ints(0), ints(1)), {}
        yield "GatherND", (x, np.zeros((0, 1), np.int64)), {}
        yield "GatherND", (x, np.zeros((2, 0), np.int64)), {}
        yield "ScatterND", (x, np.zeros((0, 1), np.int64), floats(0, *shape[1:])), {}
        for axis, size in enumerate(shape):
            yield from of_axis(x, axis, size)


def of_axis(x, axis, size):
    for op_type in ("Softmax", "LogSoftmax", "Hardmax"):
        yield op_type, (x,), {"axis": axis}
        yield op_type, (x,), {"axis": axis, "opset": 11}
    for op_type in FOLDS:
        yield op_type, (x, ints(axis)), {}
    for op_type in ("ArgMax", "ArgMin"):
        yield op_type, (x,), {"axis": axis}
    yield "CumSum", (x, np.array(axis)), {}
    yield "TopK", (x, ints(0)), {"axis": axis, "outputs": 2}
    yield "Concat", (x, x), {"axis": axis}
    yield "Split", (x, ints(size)), {"axis": axis}
    yield "SplitToSequence", (x,), {"axis": axis}
    yield "Gather", (x, ints()), {"axis": axis}
    yield "GatherElements", (x, np.zeros(x.shape, np.int64)), {"axis": axis}
    yield "ScatterElements", (x, np.zeros(x.shape, np.int64), x), {"axis": axis}
    yield "LpNormalization", (x,), {"axis": axis}
    yield "Compress", (x, np.zeros(size, bool)), {"axis": axis}
    weights = floats(*x.shape[axis:])
    yield "LayerNormalization", (x, weights, weights), {"axis": axis}
    scales = np.ones(size, np.float32)
    yield "DequantizeLinear", (x.astype(np.uint8), scales), {"axis": axis}


def of_products():
    for a, b in PRODUCTS:
        for dtype in (np.float32, np.float64, np.float16):
            yield "MatMul", (floats(*a).astype(dtype), floats(*b).astype(dtype)), {}
        if len(a) == len(b) == 2:
            yield "Gemm", (floats(*a), floats(*b)), {}
            yield "Gemm", (floats(*a), floats(*b), floats(1)), {}
            yield "Einsum", (floats(*a), floats(*b)), {"equation": "ij,jk->ik"}
    for x, w in [((0, 1, 3, 3), (1, 1, 2, 2)), ((1, 1, 3, 3), (0, 1, 2, 2)),
                 ((0, 64, 20, 20), (64, 64, 3, 3))]:  # fmt: skip
        yield "Conv", (floats(*x), floats(*w)), {}
        yield "Conv", (floats(*x), floats(*w), floats(w[0])), {}
    yield "ConvTranspose", (floats(0, 2, 3, 3), floats(2, 3, 2, 2)), {}


def of_images():
    for shape in IMAGES:
        x, kernel, channels = floats(*shape), [2] * (len(shape) - 2), floats(shape[1])
        for op_type in ("MaxPool", "AveragePool"):
            yield op_type, (x,), {"kernel_shape": kernel}
        yield "MaxPool", (x,), {"kernel_shape": kernel, "outputs": 2}
        yield "GlobalAveragePool", (x,), {}
        yield "BatchNormalization", (x, channels, channels, channels, channels + 3), {}
        yield "InstanceNormalization", (x, channels, channels), {}
        yield "GroupNormalization", (x, channels, channels), {"num_groups": 1}
        if len(shape) == 4:
            yield "Resize", (x, None, np.array([1, 1, 2, 2], np.float32)), {}
            yield "Resize", (x, None, None, ints(*shape[:2], 3, 3)), {"mode": "linear"}
            yield "GridSample", (x, floats(shape[0], 3, 3, 2)), {}
            yield "SpaceToDepth", (x,), {"blocksize": 2}
    yield "Col2Im", (floats(0, 4, 9), ints(4, 4), ints(2, 2)), {}
    yield "RoiAlign", (floats(1, 2, 4, 4), floats(0, 4), ints()), {"output_height": 2}
    yield "NonMaxSuppression", (floats(1, 0, 4), floats(1, 3, 0), ints(3)), {}
    yield "NonMaxSuppression", (floats(0, 5, 4), floats(0, 3, 5), ints(3)), {}


def of_others():
    for steps, batch, size in ((3, 0, 2), (0, 2, 2), (3, 2, 0)):
        weights = floats(1, 4, size), floats(1, 4, 4)
        yield "RNN", (floats(steps, batch, size), *weights), {"hidden_size": 4, "outputs": 2}
    for scores, labels in (((0, 5), (0,)), ((0, 5, 3), (0, 3)), ((2, 5, 0), (2, 0))):
        for reduction in ("none", "sum", "mean"):
            x, t = floats(*scores), np.zeros(labels, np.int64)
            yield "NegativeLogLikelihoodLoss", (x, t), {"reduction": reduction}
            yield "SoftmaxCrossEntropyLoss", (x, t), {"reduction": reduction, "outputs": 2}
    for sizes, pads in (((0, 4), (2, 0, -1, 0)), ((1, 4), (3, 0, -2, 0)), ((2, 3), (-3, 0, 2, 0))):
        yield "Pad", (floats(*sizes), ints(*pads), np.float32(7)), {}
    centred = {"mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"}
    yield "Resize", (floats(1, 0), None, np.array([2, 3], np.float32)), centred
    yield "HannWindow", (np.array(0),), {}
    yield "Range", (np.array(3), np.array(3), np.array(1)), {}
    yield "STFT", (floats(0, 16, 1), np.array(4), floats(8)), {}
    yield "Attention", (floats(1, 2, 0, 4), *[floats(1, 2, 3, 4)] * 2), {"opset": 23}


CASES = (of_any_shape, of_products, of_images, of_others)


@pytest.mark.parametrize("cases", CASES)
@pytest.mark.filterwarnings("ignore")
def test_empty_tensors_are_what_onnxruntime_makes_of_them(cases):
    compared = 0
    for op_type, inputs, attributes in cases():
        feeds = {f"x{place}": value if value is None else np.asarray(value)
                 for place, value in enumerate(inputs)}  # fmt: skip
        model = single(op_type, feeds, **attributes)
        feeds = {name: value for name, value in feeds.items() if value is not None}
        try:
            expected = onnxruntime(model, feeds)
        except Exception:
            continue  # it refuses the model
        what = (op_type, [value.shape for value in feeds.values()], attributes)
        for ours, theirs in zip(Interpreter(model).run(None, feeds), expected, strict=True):
            assert np.shape(ours) == np.shape(theirs), what
            if isinstance(theirs, np.ndarray):
                assert ours.dtype == theirs.dtype, what
                np.testing.assert_allclose(ours, theirs, 1e-4, 1e-5, err_msg=str(what))
        compared += 1
    assert compared > 15


def test_a_convolution_of_no_channels_is_its_bias():
    feeds = {"x0": floats(1, 0, 3, 3), "x1": floats(2, 0, 2, 2), "x2": floats(2)}
    (sums,) = Interpreter(single("Conv", feeds)).run(None, feeds)
    np.testing.assert_array_equal(sums, np.broadcast_to([[[[-2.0]], [[2.0]]]], (1, 2, 2, 2)))


@pytest.mark.parametrize(("op_type", "gates"), [("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize(("steps", "batch"), [(3, 0), (0, 2), (0, 0)])
def test_recurrences_of_nothing_have_empty_results(op_type, gates, steps, batch):
    """onnxruntime 1.31.1 ends the process here."""
    weights = {"w": floats(1, gates * 4, 2), "r": floats(1, gates * 4, 4)}
    feeds = {"x": floats(steps, batch, 2), **weights}
    every, last = Interpreter(single(op_type, feeds, 2, hidden_size=4)).run(None, feeds)
    assert every.shape == (steps, 1, batch, 4)
    assert last.shape == (1, batch, 4) and not last.any()
