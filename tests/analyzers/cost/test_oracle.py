"""Convolutions, products, pools and sums against loops that count every operation they do.

Each loop's result is compared with the reference evaluator's, so that what it counts is right.
"""

import math
from itertools import chain, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyzers.cost import counted
from tests.analyzers.cost.counted import largest, of, total
from tests.analyzers.cost.single import run
from tests.examples import examples

small = st.integers(1, 3)


def numbers(*shape):
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float32)


def windows(x, size, kernel, stride):
    """The window of every output of a padded image, as (place, slices)."""
    for i, j in product(*((range((s - kernel) // stride + 1)) for s in size)):
        rows = slice(i * stride, i * stride + kernel)
        yield (i, j), (rows, slice(j * stride, j * stride + kernel))


def convolve(x, weights, bias, stride, pad, group, channelwise):
    """One addition and one multiplication at a time; padding is multiplied like any number."""
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    image, filters, bias = counted.array(padded), counted.array(weights), counted.array(bias)
    per_group, kernel = weights.shape[1], weights.shape[2]
    size = padded.shape[2:]
    out = [(s - kernel) // stride + 1 for s in size]
    result = np.empty((len(x), len(weights), *out), dtype=object)
    for n, m in product(range(len(x)), range(len(weights))):
        first = m // (len(weights) // group) * per_group
        for place, cut in windows(image, size, kernel, stride):
            terms = [(image[n, first + c][cut] * filters[m, c]).flat for c in range(per_group)]
            sums = map(total, terms) if channelwise else chain.from_iterable(terms)
            value = total(sums)
            result[n, m][place] = value + bias[m]
    return counted.values(result)


@given(small, small, small, small, st.integers(4, 5), small, st.integers(1, 2), st.integers(0, 1))
@settings(max_examples=15, deadline=None)
def test_a_convolution_does_what_its_loops_do(batch, group, ins, outs, size, kernel, stride, pad):
    x = numbers(batch, ins * group, size, size)
    weights, bias = numbers(outs * group, ins, kernel, kernel), numbers(outs * group)
    attributes = {"strides": [stride] * 2, "pads": [pad] * 4, "group": group}
    expected, plain, channelwise = run("Conv", [x, weights, bias], **attributes)
    for row, by_channel in ((plain, False), (channelwise, True)):
        with counted.tally() as tally:
            result = convolve(x, weights, bias, stride, pad, group, by_channel)
        np.testing.assert_array_equal(result, expected)
        assert row["adds"] == tally["adds"]
        assert row["muls"] == row["macs"] == tally["muls"]
        assert row["flops"] == 2 * row["macs"] + expected.size


@given(small, small, small, small, small, st.integers(1, 2))
@settings(max_examples=15, deadline=None)
def test_a_transposed_convolution_scatters_every_input(batch, ins, outs, size, kernel, stride):
    x, weights = numbers(batch, ins, size, size), numbers(ins, outs, kernel, kernel)
    expected, plain, channelwise = run("ConvTranspose", [x, weights], strides=[stride] * 2)
    image, filters = counted.array(x), counted.array(weights)
    result = counted.array(np.zeros(expected.shape))
    with counted.tally() as tally:
        for n, c, m, i, j, p, q in np.ndindex(batch, ins, outs, size, size, kernel, kernel):
            place = n, m, i * stride + p, j * stride + q
            result[place] = result[place] + image[n, c, i, j] * filters[c, m, p, q]
    np.testing.assert_array_equal(counted.values(result), expected)
    assert (plain["macs"], plain["adds"]) == (tally["muls"], tally["adds"])
    assert channelwise["adds"] == tally["adds"] + ins * expected.size


@given(st.lists(small, max_size=2), small, small, small, st.booleans())
@examples(20)
def test_a_product_of_matrices_does_what_its_loops_do(batch, rows, inner, columns, broadcast):
    left = numbers(*batch, rows, inner)
    right = numbers(*([] if broadcast else batch), inner, columns)
    expected, plain, channelwise = run("MatMul", [left, right])
    result = np.empty(expected.shape, dtype=object)
    a = np.broadcast_to(counted.array(left), (*batch, rows, inner))
    b = np.broadcast_to(counted.array(right), (*batch, inner, columns))
    with counted.tally() as tally:
        for *at, i, j in np.ndindex(*expected.shape):
            result[(*at, i, j)] = total(a[(*at, i, k)] * b[(*at, k, j)] for k in range(inner))
    np.testing.assert_array_equal(counted.values(result), expected)
    assert plain["macs"] == plain["muls"] == tally["muls"]
    assert plain["adds"] == channelwise["adds"] == tally["adds"]


@given(small, small, small, st.booleans(), st.booleans(), st.sampled_from([1.0, 0.5]))
@examples(20)
def test_gemm_does_what_its_loops_do(rows, inner, columns, trans_a, trans_b, alpha):
    left, right, bias = numbers(rows, inner), numbers(inner, columns), numbers(columns)
    given = [left.T if trans_a else left, right.T if trans_b else right, bias]
    attributes = {"transA": int(trans_a), "transB": int(trans_b), "alpha": alpha}
    expected, row, _ = run("Gemm", given, **attributes)
    a, b, c = map(counted.array, (left, right, bias))
    with counted.tally() as tally:
        for i, j in np.ndindex(rows, columns):
            value = total(a[i, k] * b[k, j] for k in range(inner))
            value = (value if alpha == 1 else value * alpha) + c[j]
            assert value.value == expected[i, j]
    assert (row["adds"], row["muls"]) == (tally["adds"], tally["muls"])
    assert row["flops"] == tally.total()


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@given(small, small, st.integers(3, 5), small, st.integers(1, 2))
@settings(max_examples=8, deadline=None)
def test_a_pool_does_what_its_loops_do(op_type, batch, channels, size, kernel, stride):
    x = numbers(batch, channels, size, size)
    attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2}
    expected, row, _ = run(op_type, [x], **attributes)
    image = counted.array(x)
    with counted.tally() as tally:
        for n, c in np.ndindex(batch, channels):
            for place, cut in windows(image, (size, size), kernel, stride):
                window = list(image[n, c][cut].flat)
                results = largest(window) if op_type == "MaxPool" else total(window) / kernel**2
                assert results.value == pytest.approx(expected[n, c][place])
    assert row["macs"] == 0
    assert (row["adds"], row["muls"]) == (tally["adds"], tally["muls"])
    assert row["flops"] == tally.total()


EINSUMS = [
    # equation, shapes, MACs, additions and multiplications beside them
    ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)], 2 * 3 * 4 * 5, 0, 0),
    ("...ij,...jk", [(2, 3, 4), (2, 4, 2)], 2 * 3 * 4 * 2, 0, 0),
    ("...ij,jk->...ik", [(2, 2, 3, 4), (4, 2)], 2 * 2 * 3 * 4 * 2, 0, 0),
    ("ij,jk,kl->il", [(2, 3), (3, 2), (2, 4)], 2 * 3 * 2 * 4, 0, 2 * 3 * 2 * 4),
    ("i,j->ij", [(3,), (4,)], 0, 0, 12),
    ("ij->i", [(3, 4)], 0, 12, 0),
    ("ij->ji", [(3, 4)], 0, 0, 0),
    ("ii", [(3, 3)], 0, 3, 0),
]


@pytest.mark.parametrize(("equation", "operands", "macs", "adds", "muls"), EINSUMS)
def test_an_einsum_is_one_loop_nest_over_its_labels(equation, operands, macs, adds, muls):
    arrays = [numbers(*shape) for shape in operands]
    expected, row, _ = run("Einsum", arrays, equation=equation)
    np.testing.assert_array_equal(expected, np.einsum(equation, *arrays))
    assert (row["macs"], row["adds"], row["muls"]) == (macs, macs + adds, macs + muls)
    assert row["flops"] == 2 * macs + adds + muls


REDUCTIONS = {
    "ReduceSum": total,
    "ReduceMean": lambda row: total(row) / len(row),
    "ReduceMax": largest,
    "ReduceProd": lambda row: math.prod(row, start=counted.Number(1)),
    "ReduceL1": lambda row: total(map(abs, row)),
    "ReduceL2": lambda row: of(math.sqrt, total(x * x for x in row)),
    "ReduceSumSquare": lambda row: total(x * x for x in row),
    "ReduceLogSumExp": lambda row: log_sum_exp(row, largest(row)),
}


def log_sum_exp(row, shift):
    return of(math.log, total(of(math.exp, x - shift) for x in row)) + shift


@pytest.mark.parametrize("op_type", REDUCTIONS)
@given(small, small)
@settings(max_examples=8, deadline=None)
def test_a_reduction_does_what_its_loop_does(op_type, rows, columns):
    x = numbers(rows, columns)
    axes = np.array([1], np.int64)
    expected, row, _ = run(op_type, [x, axes], opset=18, keepdims=0)
    with counted.tally() as tally:
        result = [REDUCTIONS[op_type](list(r)) for r in counted.array(x)]
    np.testing.assert_allclose([r.value for r in result], expected, rtol=1e-5)
    assert (row["adds"], row["muls"]) == (tally["adds"], tally["muls"])
    assert row["flops"] == tally.total()
