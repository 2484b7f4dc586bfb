"""ConvTranspose in narrow accumulators: its order against int64 sums, its bounds by trial."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

from tests.accumulators.nodes import RANDOM, int8, model, narrowed
from tests.accumulators.test_sum_operators import by_onnxruntime
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import named
from tracer.accumulators.spec.policy import Policy, parse_policy


def transposed(shape, w, **attributes):
    listed = ", ".join(f"{name} = {value}" for name, value in attributes.items())
    proto = model(
        f"(int8{list(shape)} x) => (float y) {{ xd = DequantizeLinear (x, s, z)"
        f" wd = DequantizeLinear (w, s, z) y = ConvTranspose <{listed}> (xd, wd) }}",
        w=w, s=np.float32(0.5), z=np.int8(0),
    )  # fmt: skip
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return proto


def summed(x, w, bits, strides, dilations, pads, group=1):
    """Sums (N, M, H, W) of x (N, C, h, w) and w (C, M / group, kh, kw), from the definition.

    Element (i, j) times weight (p, q) goes to output (i s + p d, j s + q d). The terms of an output
    are added by channel, then by element, row after row: each partial sum is clipped.
    """
    (images, channels, *size), (_, maps, *kernel) = x.shape, w.shape
    out = [
        (n - 1) * s + (k - 1) * d + 1
        for n, k, s, d in zip(size, kernel, strides, dilations, strict=True)
    ]
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    total = np.zeros((images, maps * group, *out), np.int64)
    deep = channels // group
    for c, i, j in itertools.product(range(channels), *map(range, size)):
        first = c // deep * maps
        for m, p, q in itertools.product(*map(range, w.shape[1:])):
            place = i * strides[0] + p * dilations[0], j * strides[1] + q * dilations[1]
            at = (slice(None), first + m, *place)
            total[at] += x[:, c, i, j].astype(np.int64) * int(w[c, m, p, q])
            total[at] = np.clip(total[at], low, high)
    top, left, bottom, right = pads
    return total[:, :, top : out[0] - bottom, left : out[1] - right]


CASES = [
    {"strides": [1, 1]},
    {"strides": [2, 2]},
    {"strides": [2, 3], "pads": [1, 0, 2, 1]},
    {"strides": [2, 2], "dilations": [2, 3], "pads": [1, 1, 1, 0]},
    {"dilations": [3, 1]},
    {"strides": [3, 2], "group": 2},
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("bits", [8, 12, 15, 16, 40])
@pytest.mark.parametrize("options", CASES)
def test_terms_are_added_by_channel_then_in_the_order_of_the_input(options, bits):
    group = options.get("group", 1)
    w, x = int8(4, 3, 3, 4), int8(2, 4, 3, 4)
    proto = transposed(x.shape, w, **options)
    output, narrowing = narrowed(proto, parse_policy(str(bits)), x)
    rest = [options.get(name, [1, 1]) for name in ("strides", "dilations")]
    sums = summed(x, w, bits, *rest, options.get("pads", [0] * 4), group)
    np.testing.assert_array_equal(output, sums * np.float32(0.25))
    exact = summed(x, w, 40, *rest, options.get("pads", [0] * 4), group)
    (kept,) = narrowing.accumulations().values()
    assert kept.tally.outputs_changed.sum() == np.count_nonzero(sums != exact)
    if bits == 40:
        np.testing.assert_array_equal(output, by_onnxruntime(proto, x))


def test_groups_share_a_scale_for_each_of_their_channels():
    """Output channel g · 3 + m has the scale of column m of the weights, as in onnxruntime."""
    w, x = int8(4, 3, 3, 4), int8(2, 4, 3, 4)
    proto = model(
        f"(int8{list(x.shape)} x) => (float y) {{ xd = DequantizeLinear (x, s, z)"
        " wd = DequantizeLinear <axis = 1> (w, ws, wz)"
        " y = ConvTranspose <strides = [2,3], group = 2> (xd, wd) }",
        w=w, s=np.float32(0.5), z=np.int8(3), ws=np.float32([0.5, 2, 0.125]), wz=int8(3),
    )  # fmt: skip
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    output, narrowing = narrowed(proto, parse_policy("32"), x)
    np.testing.assert_array_equal(output, by_onnxruntime(proto, x))
    assert len(narrowing.accumulations()) == 1


def worst(w, options, size):
    """The least and the greatest partial sum of any input, output by output.

    By the definition, an output adds one term for each element that reaches it; the input that has
    -128 or 127 everywhere it helps makes each partial sum the largest.
    """
    rest = [options.get(name, [1, 1]) for name in ("strides", "dilations")]
    group, pads = options.get("group", 1), options.get("pads", [0] * 4)
    wide = w.astype(np.int64)
    least, most = np.minimum(wide * -128, wide * 127), np.maximum(wide * -128, wide * 127)
    ones = np.ones((1, len(w), *size), np.int64)
    return (
        summed(ones, np.minimum(least, 0), 60, *rest, pads, group).min(),
        summed(ones, np.maximum(most, 0), 60, *rest, pads, group).max(),
    )


@pytest.mark.one_in(5)
@pytest.mark.parametrize("order", ["sequential", "tree", "chunked(5)"])
@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 2), (5, 6)])
@pytest.mark.parametrize("options", CASES)
def test_guaranteed_widths_count_the_taps_that_meet(options, size, order):
    w = int8(4, 3, 3, 4)
    x = int8(1, 4, *size)
    cropped = {**options, "pads": [0] * 4} if size != (5, 6) else options
    proto = transposed(x.shape, w, **cropped)
    (kept,) = (
        narrowed(proto, Policy.of(Accumulator(40, order=named(order))), x)[1]
        .accumulations()
        .values()
    )
    low, high = worst(w, cropped, size)
    needed = max((-low - 1).item().bit_length(), high.item().bit_length()) + 1
    assert kept.guaranteed == kept.guaranteed_any_order == needed


def test_an_up_convolution_has_one_tap_for_each_channel():
    """Kernel 2, stride 2, 16 channels: -128 · 127 · 16 = -260,096 needs 19 bits, not 21."""
    w = np.full((16, 1, 2, 2), 127, np.int8)
    x = np.stack([np.full((16, 2, 2), -128), np.full((16, 2, 2), 127)]).astype(np.int8)
    proto = transposed(x.shape, w, strides=[2, 2])
    (kept,) = narrowed(proto, parse_policy("32"), x)[1].accumulations().values()
    assert kept.tally.acc_min.min() == -260_096
    assert kept.guaranteed == kept.tally.bits_observed.max() == 19
    assert kept.datatype == 20  # 16 · 128 · 128 is 2^18


@pytest.mark.parametrize("bits", [9, 13, 30])
def test_pads_may_be_an_input(bits):
    w, x = int8(4, 3, 3, 4), int8(2, 4, 3, 4)
    proto = transposed(x.shape, w, strides=[2, 3])
    node = proto.graph.node[2]
    node.domain, node.op_type = "com.microsoft", "ConvTransposeWithDynamicPads"
    node.input.extend(["pads", "b"])
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    pads, bias = np.array([1, 0, 2, 1]), RANDOM.normal(0, 9, 3).astype(np.float32)
    for name, value in (("pads", pads), ("b", bias)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    sums = summed(x, w, bits, [2, 3], [1, 1], pads.tolist())
    expected = (sums * 0.25 + bias.reshape(-1, 1, 1)).astype(np.float32)
    np.testing.assert_array_equal(output, expected)


def test_weights_that_are_computed_have_the_bounds_of_their_type():
    proto = model(
        "(int8[1,16,2,2] x, int8[16,1,2,2] w) => (float y) { xd = DequantizeLinear (x, s, z)"
        " wd = DequantizeLinear (w, s, z) y = ConvTranspose <strides = [2,2]> (xd, wd) }",
        s=np.float32(0.5), z=np.int8(0),
    )  # fmt: skip
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    feeds = np.full((1, 16, 2, 2), -128, np.int8), np.full((16, 1, 2, 2), -128, np.int8)
    (kept,) = narrowed(proto, parse_policy("32"), *feeds)[1].accumulations().values()
    assert kept.tally.acc_max.max() == 1 << 18  # 2^18 does not fit 19 bits
    assert kept.guaranteed == kept.datatype == kept.tally.bits_observed.max() == 20
