"""Sums without products in narrow accumulators against sums of Python integers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.accumulators.nodes import int8, model, narrowed, plain, saturated, uint8
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import named
from tracer.accumulators.spec.policy import Policy, parse_policy


@pytest.mark.parametrize(
    ("node", "axes", "divisor"),
    [
        ("GlobalAveragePool (xd)", (2, 3), 20),
        ("ReduceSum <keepdims = 0> (xd, axes)", (2, 3), 1),
        ("ReduceMean (xd, axes)", (2, 3), 20),
        ("ReduceSum (xd)", (0, 1, 2, 3), 1),
        ("ReduceMean <keepdims = 0> (xd, channels)", (1,), 3),
    ],
)
@pytest.mark.parametrize("bits", [8, 9, 10, 20])
def test_sums_without_products(node, axes, divisor, bits):
    proto = model(
        f"(int8[2,3,4,5] x) => (float y) {{ xd = DequantizeLinear (x, s, z) y = {node} }}",
        s=np.float32(0.5), z=np.int8(0), axes=np.array([2, 3]), channels=np.array([1]),
    )  # fmt: skip
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    x = int8(2, 3, 4, 5)
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    whole = plain(proto, x)
    sums = np.apply_along_axis(
        lambda row: saturated(row.tolist(), bits), -1,
        np.moveaxis(x, axes, range(-len(axes), 0)).reshape(*_left(x.shape, axes), -1),
    )  # fmt: skip
    np.testing.assert_array_equal(output.ravel(), (sums * 0.5 / divisor).astype(np.float32).ravel())
    assert output.shape == whole.shape


def _left(shape: tuple[int, ...], axes: tuple[int, ...]) -> list[int]:
    return [n for axis, n in enumerate(shape) if axis not in axes]


@pytest.mark.parametrize("bits", [8, 9, 10, 20])
def test_average_pooling(bits):
    proto = model(
        "(int8[2,3,5,5] x) => (float[a,b,c,d] y) { xd = DequantizeLinear (x, s, z)"
        " y = AveragePool <kernel_shape = [3,2], pads = [1,0,1,0], strides = [2,1]> (xd) }",
        s=np.float32(0.5), z=np.int8(0),
    )  # fmt: skip
    x = int8(2, 3, 5, 5)
    output, _ = narrowed(proto, parse_policy(str(bits)), x)
    wide = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (0, 0)))
    for n, c, i, j in np.ndindex(*output.shape):
        window = wide[n, c, 2 * i : 2 * i + 3, j : j + 2]
        inside = 6 if 0 < i < 2 else 4
        total = saturated(window.ravel().tolist(), bits)
        assert output[n, c, i, j] == np.float32(total * 0.5 / inside)


@pytest.mark.parametrize("shapes", [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (3, 1)), ((5,), ())])
def test_additions_of_one_scale(shapes):
    left, right = (int8(*shape) for shape in shapes)
    proto = model(
        f"(int8{list(shapes[0])} a, int8{list(shapes[1])} b) => (float y) {{"
        " ad = DequantizeLinear (a, s, z) bd = DequantizeLinear (b, s, z) y = Add (ad, bd) }",
        s=np.float32(0.5), z=np.int8(0),
    )  # fmt: skip
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    output, _ = narrowed(proto, parse_policy("8"), left, right)
    sums = np.clip(left.astype(np.int64) + right.astype(np.int64), -128, 127)
    np.testing.assert_array_equal(output, sums * np.float32(0.5))


@pytest.mark.parametrize(
    "order", ["sequential", "channelwise", "tree", "chunked(3)", "lanes(4)", "sorted", "maddubs"]
)
def test_a_sum_of_nothing_is_0(order):
    proto = model("(uint8[r,k] a, int8[k,c] b) => (int32[r,c] y) { y = MatMulInteger (a, b) }")
    policy = Policy.of(Accumulator(8, order=named(order)))
    output, narrowing = narrowed(proto, policy, uint8(2, 0), int8(0, 3))
    np.testing.assert_array_equal(output, np.zeros((2, 3)))
    (result,) = narrowing.accumulations().values()
    assert (result.guaranteed, result.datatype) == (2, 2)
