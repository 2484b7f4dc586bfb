"""Einsum in narrow accumulators, against int64 sums and onnxruntime."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

from tests.accumulators.nodes import int8, model, narrowed, saturated, uint8
from tests.accumulators.test_sum_operators import by_onnxruntime
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import ModelError

SIZES = {"b": 2, "h": 3, "i": 4, "j": 5, "k": 6, "d": 3}


def equation(text, x_zero=100, **weights):
    """Einsum of x, uint8, and w, stored or an input; steps are 0.5 and 0.25."""
    inputs = "uint8 x" if "w" in weights else "uint8 x, int8 w"
    proto = model(
        f'({inputs}) => (float y) {{ xd = DequantizeLinear (x, s, z) wd = DequantizeLinear (w, t)'
        f' y = Einsum <equation = "{text}"> (xd, wd) }}',
        s=np.float32(0.5), z=np.uint8(x_zero), t=np.float32(0.25), **weights,
    )  # fmt: skip
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.ClearField("shape")
    return proto


def summed(text, a, b, bits):
    """Sums over the indices that the output lacks, in the order of the first tensor's letters."""
    (left, right), out = text.split("->")[0].split(","), text.split("->")[1]
    inner = [x for x in left if x not in out]
    sums = np.empty([SIZES[x] for x in out], np.int64)
    for place in np.ndindex(*sums.shape):
        at, products = dict(zip(out, place, strict=True)), []
        for terms in itertools.product(*(range(SIZES[x]) for x in inner)):
            at.update(zip(inner, terms, strict=True))
            factors = a[tuple(at[x] for x in left)], b[tuple(at[x] for x in right)]
            products.append(int(factors[0]) * int(factors[1]))
        sums[place] = saturated(products, bits)
    return sums


def shapes(text):
    return [[SIZES[x] for x in side] for side in text.split("->")[0].split(",")]


EQUATIONS = ["bik,kj->bij", "bhid,bhjd->bhij", "kib,jk->bij", "ikd,dkj->ji", "bi,bj->bij"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("bits", [9, 13, 16, 40])
@pytest.mark.parametrize("text", EQUATIONS)
def test_products_of_two_tensors(text, bits):
    left, right = shapes(text)
    x, w = uint8(*left), int8(*right)
    proto = equation(text)
    output, narrowing = narrowed(proto, parse_policy(str(bits)), x, w)
    sums = summed(text, x.astype(np.int64) - 100, w, bits)
    np.testing.assert_array_equal(output, (sums * 0.125).astype(np.float32))
    (kept,) = narrowing.accumulations().values()
    exact = summed(text, x.astype(np.int64) - 100, w, 60)
    assert kept.tally.outputs_changed.sum() == np.count_nonzero(sums != exact)
    if bits == 40:
        np.testing.assert_array_equal(output, by_onnxruntime(proto, x, w))


def test_an_axis_without_elements_has_no_sums():
    proto = equation("bhid,bhjd->bhij")
    output, _ = narrowed(proto, parse_policy("9"), uint8(3, 2, 0, 1), int8(3, 2, 4, 1))
    assert output.shape == (3, 2, 0, 4)


@pytest.mark.parametrize("text", ["bik,kj->bij", "kib,jk->bij"])
def test_bounds_are_those_of_the_stored_weights(text):
    """x - 100 is from -100 to 155."""
    left, right = shapes(text)
    w = int8(*right)
    proto = equation(text, w=w)
    (kept,) = narrowed(proto, parse_policy("40"), uint8(*left))[1].accumulations().values()
    wide = np.moveaxis(w.astype(np.int64), right.index(6), 0)
    most = np.maximum(wide * 155, wide * -100).sum(0).max()
    least = np.minimum(wide * 155, wide * -100).sum(0).min()
    assert kept.guaranteed == max((-least - 1).item().bit_length(), int(most).bit_length()) + 1


def test_stored_weights_may_come_first():
    w, x = int8(5, 6), uint8(2, 4, 6)
    proto = model(
        "(uint8[2,4,6] x) => (float[2,5,4] y) { xd = DequantizeLinear (x, s, z)"
        " wd = DequantizeLinear <axis = 0> (w, t)"
        ' y = Einsum <equation = "jk,bik->bji"> (wd, xd) }',
        s=np.float32(0.5), z=np.uint8(100), w=w, t=np.linspace(0.1, 0.3, 5, dtype=np.float32),
    )  # fmt: skip
    output, narrowing = narrowed(proto, parse_policy("13"), x)
    sums = summed("jk,bik->bji", w, x.astype(np.int64) - 100, 13)
    steps = 0.5 * np.linspace(0.1, 0.3, 5, dtype=np.float32).astype(np.float64)
    np.testing.assert_array_equal(output, (sums * steps.reshape(1, 5, 1)).astype(np.float32))
    np.testing.assert_allclose(
        narrowed(proto, parse_policy("40"), x)[0], by_onnxruntime(proto, x), rtol=1e-5, atol=1e-4
    )
    (kept,) = narrowing.accumulations().values()
    wide = w.astype(np.int64)
    most = np.maximum(wide * 155, wide * -100).sum(1)
    least = np.minimum(wide * 155, wide * -100).sum(1)
    needed = np.maximum([int(n).bit_length() for n in most],
                        [int(-n - 1).bit_length() for n in least]) + 1  # fmt: skip
    np.testing.assert_array_equal(kept.guaranteed_channels, needed)


def test_steps_along_a_summed_axis_have_no_unit():
    proto = equation("bik,kj->bij", w=int8(6, 5))
    proto.graph.initializer[-1 if proto.graph.initializer[-1].name == "t" else 2].CopyFrom(
        onnx.numpy_helper.from_array(np.full(6, 0.25, np.float32), "t")
    )
    proto.graph.node[1].attribute.append(onnx.helper.make_attribute("axis", 0))
    with pytest.raises(ModelError, match="the terms of a sum have different scales"):
        narrowed(proto, parse_policy("16"), uint8(2, 4, 6))


@pytest.mark.parametrize(
    ("text", "why"),
    [("bii,ij->bj", "takes diagonals"), ("bik,jj->bij", "sums over one tensor alone")],
)
def test_other_equations_are_refused_with_the_reason(text, why):
    with pytest.raises(ModelError, match=why):
        narrowed(equation(text), parse_policy("16"), uint8(2, 4, 4), int8(4, 4))
