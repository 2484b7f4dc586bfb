"""Bounds, against the oracle on all inputs, on random ones, and FINN's bound of the final sum."""

from dataclasses import replace
from itertools import product
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accumulators.dots import ORDERS, dots
from tests.interpreter.models import quick
from tracer.accumulators.engine import oracle
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms, named
from tracer.accumulators.statistics.bounds import datatype, guaranteed, guaranteed_of_ranges
from tracer.errors import UsageError

STATIC = [order for order in ORDERS if order != "sorted"]
PLAIN = [order for order in STATIC if not ("maddubs" in order or ":" in order)]


def finn(weights, low, high):
    """The bound of MinimizeAccumulatorWidth: the exact range of the final sum, signed."""
    least = np.minimum(weights * low, weights * high).sum(1).tolist()
    greatest = np.maximum(weights * low, weights * high).sum(1).tolist()
    ends = zip(least, greatest, strict=True)
    return [ceil(log2(max(-lowest, highest + 1))) + 1 for lowest, highest in ends]


def bounds(weights, low, high, accumulator=None, bias=None, padded=False):
    weights = np.array(weights)
    return guaranteed(
        weights, low, high, bias, Terms(weights.shape[1]), accumulator or Accumulator(32), padded
    )


def test_partial_sums_need_more_than_the_result():
    limits = bounds([[1, -1]], 2, 3)
    assert (limits.low.tolist(), limits.high.tolist(), limits.bits.tolist()) == ([-1], [3], [3])
    assert finn(np.array([[1, -1]]), 2, 3) == [2]


def test_widths_of_tfc_as_finn_finds_them():
    reach = np.array([311, 53, 55, 61])
    weights = np.stack([reach, -reach], 1)
    assert bounds(weights, 0, 1).bits.tolist() == [10, 7, 7, 7]


def test_padding_drops_terms_where_0_is_not_in_the_range():
    assert bounds([[-1, 1]], 2, 3).high.tolist() == [1]
    assert bounds([[-1, 1]], 2, 3, padded=True).high.tolist() == [3]


@pytest.mark.parametrize(("place", "high"), [("first", 127), ("last", 107)])
def test_the_place_of_the_bias_counts(place, high):
    limits = bounds([[10, -20]], 1, 1, Accumulator(8, bias=place), np.array([117]))
    assert limits.high.tolist() == [high]


def test_a_pair_that_saturates_is_bounded_by_16_bits():
    limits = bounds([[127, 127, 127]], 0, 255, Accumulator(32, order=named("maddubs")))
    assert limits.high.tolist() == [32767 + 127 * 255]
    assert limits.any_order_high.tolist() == [3 * 127 * 255]


def test_products_of_their_own_width():
    limits = bounds([[100, -90]], 0, 1, Accumulator(8, product_bits=7))
    assert (limits.low.tolist(), limits.high.tolist()) == ([-64], [63])


def test_conventions_have_widths_of_their_own():
    assert bounds([[64, 64]], -1, 0).bits.tolist() == [8]
    assert bounds([[64, 64]], -1, 0, Accumulator(8, "symmetric")).bits.tolist() == [9]
    magnitude = Accumulator(8, convention="magnitude")
    assert bounds([[64, 64]], -1, 0, magnitude).bits.tolist() == [7]


def test_numbers_beyond_64_bits_are_exact():
    large = 2**31 - 1
    limits = bounds([[large] * 10, [1] * 10], -large, large)
    assert limits.high.tolist() == [10 * large**2, 10 * large]
    assert limits.bits.tolist() == [65, 36]
    edge = guaranteed_of_ranges((2**62, 2**62), (-2, -1), None, Terms(1), Accumulator(32))
    assert edge.low.tolist() == [-(2**63)] and edge.bits.tolist() == [64]


def test_blocks_do_not_show():
    rng = np.random.default_rng(0)
    weights = rng.integers(-8, 8, (5, 600_000))
    limits = bounds(weights, -3, 7)
    assert limits.low.tolist() == np.minimum(weights * -3, weights * 7).sum(1).tolist()
    assert limits.high.tolist() == np.maximum(weights * -3, weights * 7).sum(1).tolist()


def test_an_empty_range_is_refused():
    with pytest.raises(UsageError, match="from 3 to 2"):
        bounds([[1]], 3, 2)


@quick
@given(dots(), st.booleans(), st.data())
def test_no_partial_sum_is_out_of_bounds(case, padded, data):
    low, high = case.right.min(1), case.right.max(1)
    right = case.right
    if padded:
        mask = data.draw(st.integers(0, 2**32))
        right = right * np.random.default_rng(mask).integers(0, 2, right.shape)
    seen = oracle.observe(case.left, right, case.bias, case.terms, case.accumulator)
    limits = guaranteed(case.left, low, high, case.bias, case.terms, case.accumulator, padded)
    assert (limits.low <= seen.low.min(1)).all() and (seen.high.max(1) <= limits.high).all()
    assert (case.accumulator.bits_for(seen.low, seen.high).max(1) <= limits.bits).all()
    assert (limits.any_order_low <= limits.low).all()
    assert (limits.high <= limits.any_order_high).all()
    assert (limits.bits <= limits.any_order_bits).all()
    enough = replace(case.accumulator, bits=int(limits.bits.max()))
    events = oracle.emulate(case.left, right, case.bias, case.terms, enough).events
    np.testing.assert_array_equal(events, seen.clips)  # none of the accumulator itself


@st.composite
def tiny(draw):
    """All inputs of a small range to a few weights."""
    terms = Terms(draw(st.integers(1, 2)), (draw(st.integers(1, 2)),))
    numbers = st.integers(-300, 300)
    weights = draw(st.lists(numbers, min_size=terms.count, max_size=terms.count))
    ends = [sorted(draw(st.tuples(numbers, numbers))) for _ in weights]
    inputs = [(low, (low + high) // 2, high) for low, high in ends]
    accumulator = Accumulator(
        32,
        order=named(draw(st.sampled_from(STATIC))),
        product_bits=draw(st.none() | st.integers(2, 16)),
        bias=draw(st.sampled_from(["first", "last"])),
    )
    bias = draw(st.none() | st.just(np.array([draw(numbers)])))
    return np.array([weights]), np.array(ends).T, np.array(list(product(*inputs))).T, bias, \
        terms, accumulator  # fmt: skip


@quick
@given(tiny())
def test_some_input_reaches_the_bound_in_every_static_order(case):
    weights, (low, high), inputs, bias, terms, accumulator = case
    seen = oracle.observe(weights, inputs, bias, terms, accumulator)
    limits = guaranteed(weights, low, high, bias, terms, accumulator)
    assert (limits.low[0], limits.high[0]) == (seen.low.min(), seen.high.max())


@quick
@given(tiny())
def test_some_subset_of_terms_reaches_the_bound_of_any_order(case):
    weights, (low, high), inputs, bias, terms, _ = case
    limits = guaranteed(weights, low, high, bias, terms, Accumulator(32))
    chosen = np.array(list(product([0, 1], repeat=terms.count)))
    sums = (chosen[:, None] * (weights * inputs.T)).sum(-1)
    start = 0 if bias is None else int(bias[0])
    assert limits.any_order_low[0] == min(sums.min(), sums.min() + start)
    assert limits.any_order_high[0] == max(sums.max(), sums.max() + start)


@quick
@given(tiny())
def test_two_ranges_are_bounded_by_their_corners(case):
    weights, (low, high), inputs, _, terms, accumulator = case
    one = np.sort(np.stack([weights[0], -weights[0] // 2]), 0)
    corners = np.array(list(product(*one.T)))
    seen = oracle.observe(corners, inputs, None, terms, accumulator)
    limits = guaranteed_of_ranges((one[0], one[1]), (low, high), None, terms, accumulator)
    assert (limits.low[0], limits.high[0]) == (seen.low.min(), seen.high.max())


@quick
@given(dots(), st.integers(-128, 0), st.integers(0, 255))
def test_where_0_is_in_the_range_the_bound_is_that_of_the_final_sum(case, low, high):
    weights, terms = case.left, case.terms
    for order in PLAIN:
        accumulator = Accumulator(32, order=named(order))
        limits = guaranteed(weights, low, high, None, terms, accumulator).bits
        assert limits.tolist() == [max(bits, 2) for bits in finn(weights, low, high)]


@quick
@given(dots())
def test_types_bound_what_they_hold(case):
    left = int(case.left.min()), int(case.left.max())
    right = int(case.right.min()), int(case.right.max())
    limits = guaranteed(case.left, *right, None, case.terms, case.accumulator).bits.max()
    assert limits <= datatype(case.terms, left, right, None, case.accumulator)
