"""Transposed convolutions and those of integers are replayed with onnxruntime's bits."""

import numpy as np
import pytest
from onnx import helper

from tracer.arithmetic.kernel import Kernel, are_equal, reveal
from tracer.arithmetic.replays import replay_of
from tracer.arithmetic.replays.integers import saturated_sums
from tracer.interpreter.numeric.windows import window

FLOAT = np.dtype(np.float32)
OPSETS = {"": 17, "com.microsoft": 1}


def assert_equal_bits(kernel):
    replay = replay_of(kernel.node.domain, kernel.op_type)
    rule = reveal(replay, kernel)
    inputs = kernel.draw(np.random.default_rng(7))
    (output,), (replayed,) = kernel.run(inputs), replay.replay(kernel, rule.facts, inputs)
    assert are_equal(output, replayed).all()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((2, 16, 8, 8), (16, 8, 3, 3), {"strides": [2, 2], "pads": [1] * 4}),
        ((1, 300, 9, 9), (300, 16, 3, 3), {"output_padding": [0, 1], "strides": [2, 2]}),
        ((1, 16, 8, 8), (16, 4, 3, 3), {"group": 2, "dilations": [2, 1]}),
        ((1, 16, 9), (16, 8, 5), {"strides": [3], "auto_pad": "SAME_UPPER"}),
        ((1, 8, 4, 5, 6), (8, 4, 3, 3, 3), {"strides": [2, 2, 2]}),
        ((1, 32, 1, 1), (32, 16, 4, 4), {}),
        ((1, 8, 7, 7), (8, 1, 3, 3), {"group": 8}),
    ],
)
def test_transposed_convolutions_have_the_bits_of_onnxruntime(x, w, attributes, threads):
    random = np.random.default_rng(0)
    constants = {"w": random.standard_normal(w).astype(FLOAT)}
    constants["b"] = random.standard_normal(w[1] * attributes.get("group", 1)).astype(FLOAT)
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)
    assert_equal_bits(Kernel(node, {"x": (FLOAT, x)}, constants, OPSETS, threads))


def integers(random, dtype, shape):
    ends = np.iinfo(dtype)
    return random.integers(ends.min, ends.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize(("x_type", "w_type"), [("u1", "i1"), ("u1", "u1"), ("i1", "i1")])
@pytest.mark.parametrize("form", ["QLinearConv", "channels last", "ConvInteger"])
def test_convolutions_of_integers_have_the_bits_of_onnxruntime(form, x_type, w_type):
    if (form, x_type) == ("ConvInteger", "i1"):
        pytest.skip("onnxruntime convolves uint8 alone")
    random = np.random.default_rng(0)
    x_type, w_type = np.dtype(x_type), np.dtype(w_type)
    constants = {"w": integers(random, w_type, (8, 6, 3, 3)), "x0": np.array(3, x_type)}
    names = ["x", "w", "x0"]
    if form != "ConvInteger":
        w_zero = np.full(8, 128 if w_type.kind == "u" else 0, w_type)
        scales = {"xs": FLOAT.type(0.02), "ws": random.random(8) * 0.01 + 0.005, "ys": 0.9}
        constants |= {name: np.array(value, FLOAT) for name, value in scales.items()}
        constants |= {"w0": w_zero, "y0": np.array(10, x_type)}
        constants["b"] = random.integers(-999, 999, 8).astype(np.int32)
        names = ["x", "xs", "x0", "w", "ws", "w0", "ys", "y0", "b"]
    is_last = form == "channels last"
    more = {"domain": "com.microsoft", "channels_last": 1} if is_last else {}
    op_type = "QLinearConv" if is_last else form
    node = helper.make_node(op_type, names, ["y"], pads=[1] * 4, strides=[2, 1], **more)
    shape = (2, 9, 11, 6) if is_last else (2, 6, 9, 11)
    assert_equal_bits(Kernel(node, {"x": (x_type, shape)}, constants, OPSETS))


@pytest.mark.parametrize("way", ["channels", "positions"])
@pytest.mark.parametrize(("x_type", "group"), [("u1", 1), ("i1", 1), ("u1", 2)])
def test_pairs_saturate_as_integers_of_16_bits_do(way, x_type, group):
    """The oracle adds Python's integers, window by window."""
    random = np.random.default_rng(0)
    x, w = integers(random, x_type, (2, 6, 4, 5)), integers(random, "i1", (4, 6 // group, 3, 2))
    x0, lift = 7, 128 * (x_type == "i1")
    slid = window((4, 5), (3, 2), None, [1, 1, 0, 0], None, "NOTSET")
    given = {"x": x, "w": w, "x_zero": np.array(x0, x_type), "w_zero": np.array(2, np.int8)}
    found = saturated_sums(given, slid, group, way)
    raised = np.pad(x.astype(int), [(0, 0), (0, 0), (1, 0), (1, 0)], constant_values=x0) + lift
    order = [2, 3, 1] if way == "channels" else [1, 2, 3]
    for image, filter_, row, column in np.ndindex(2, 4, *slid.out):
        first = filter_ // (4 // group) * (6 // group)
        channels = slice(first, first + 6 // group)
        read = raised[image, channels, row : row + 3, column : column + 2]
        axes = [axis - 1 for axis in order]
        a, b = (each.astype(int).transpose(axes).ravel() for each in (read, w[filter_]))
        pairs = np.add.reduceat(a * b, np.arange(0, a.size, 2)).clip(-(2**15), 2**15 - 1)
        exact = pairs.sum() - (x0 + lift) * b.sum() - 2 * a.sum() + a.size * 2 * (x0 + lift)
        assert found[image, filter_, row, column] == exact
