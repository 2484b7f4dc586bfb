"""Worked examples of the papers' formulas, and the formulas themselves in floating point."""

from fractions import Fraction
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accumulators import a2q
from tests.interpreter.models import quick
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.statistics.bounds import datatype, guaranteed

EXAMPLES = [
    (784, 1, 8, False, 19),
    (784, 8, 8, False, 26),
    (576, 8, 8, False, 26),
    (4608, 8, 8, False, 29),
    (4608, 8, 8, True, 28),
    (1152, 4, 4, False, 19),
    (9, 8, 8, False, 20),
    (1, 8, 8, True, 16),
]


def signed(bits):
    return (-(1 << bits - 1), max((1 << bits - 1) - 1, 1))  # of one bit: -1 and 1


def operand(bits, is_signed):
    return signed(bits) if is_signed else (0, (1 << bits) - 1)


@pytest.mark.parametrize(("terms", "weights", "activations", "is_signed", "expected"), EXAMPLES)
def test_bound_of_types(terms, weights, activations, is_signed, expected):
    assert a2q.datatype_bound(terms, weights, activations, is_signed) == expected
    ranges = signed(weights), operand(activations, is_signed)
    assert datatype(Terms(terms), *ranges, None, Accumulator(32)) == expected


@pytest.mark.parametrize(
    ("l1_norm", "activations", "plain", "centred"),
    [(100, 8, 16, 15), (127, 8, 16, 15), (128, 8, 17, 15), (1000, 4, 15, 14)],
)
def test_bound_of_weights(l1_norm, activations, plain, centred):
    assert a2q.weight_bound(l1_norm, activations, False) == plain
    assert a2q.centred_weight_bound(l1_norm, activations) == centred


@pytest.mark.parametrize(
    ("bits", "activations", "is_signed", "plain", "centred"),
    [
        (16, 8, False, 127.99609375, 256.99607843),
        (16, 8, True, 255.9921875, None),
        (12, 4, False, 127.9375, 272.93333333),
    ],
)
def test_budget_of_weights(bits, activations, is_signed, plain, centred):
    assert a2q.weight_budget(bits, activations, is_signed) == plain
    if centred is not None:
        bound = a2q.centred_weight_budget(bits, activations)
        assert float(bound) == pytest.approx(centred, abs=1e-8)


@quick
@given(st.integers(1, 10**5), st.integers(1, 8), st.integers(1, 8), st.booleans())
def test_bound_of_types_is_the_published_formula(terms, weights, activations, is_signed):
    a = log2(terms) + activations + weights - 1 - is_signed
    formula = a + log2(1 + 2**-a) + 1
    bound = a2q.datatype_bound(terms, weights, activations, is_signed)
    assert bound - 1 - 1e-9 < formula <= bound + 1e-9


@quick
@given(st.integers(1, 10**5), st.integers(1, 8), st.booleans())
def test_bounds_of_weights_and_budgets_agree(l1_norm, activations, is_signed):
    bits = a2q.weight_bound(l1_norm, activations, is_signed)
    assert a2q.weight_budget(bits - 1, activations, is_signed) < l1_norm
    assert l1_norm <= a2q.weight_budget(bits, activations, is_signed)
    bits = a2q.centred_weight_bound(l1_norm, activations)
    assert bits == ceil(log2(l1_norm * (2**activations - 1) + 2))
    assert a2q.centred_weight_budget(bits - 1, activations) < l1_norm
    assert l1_norm <= a2q.centred_weight_budget(bits, activations)


@quick
@given(st.integers(1, 5000), st.integers(2, 8), st.integers(2, 8), st.booleans())
def test_exact_widths_of_types_are_at_most_one_less(terms, weights, activations, is_signed):
    exact = datatype(
        Terms(terms), signed(weights), operand(activations, is_signed), None, Accumulator(32)
    )
    assert exact <= a2q.datatype_bound(terms, weights, activations, is_signed)


ROWS = st.lists(st.integers(-127, 127), min_size=1, max_size=60).filter(any)


def guaranteed_bits(weights, low, high):
    """The bits that hold the sums of any input in any order, of one row of weights."""
    row = np.array([weights], np.int64)
    bounds = guaranteed(row, low, high, None, Terms(len(weights)), Accumulator(32))
    return int(bounds.any_order_bits[0])


@quick
@given(ROWS, st.integers(2, 8), st.booleans())
def test_the_bound_of_a2q_is_never_below_ours(weights, activations, is_signed):
    low, high = operand(activations, is_signed)
    bound = a2q.weight_bound(int(np.abs(weights).sum()), activations, is_signed)
    assert guaranteed_bits(weights, low, high) <= bound


@quick
@given(ROWS, st.integers(2, 8))
def test_the_bound_of_a2q_is_ours_for_weights_of_one_sign_and_signed_inputs(weights, activations):
    negative = -np.abs(weights)  # times -2^(N-1), each adds its magnitude times 2^(N-1)
    bound = a2q.weight_bound(int(-negative.sum()), activations, True)
    assert guaranteed_bits(negative, *signed(activations)) == bound


@quick
@given(ROWS, st.integers(1, 8))
def test_the_bound_of_a2q_plus_is_ours_for_weights_that_add_up_to_0(weights, activations):
    centred = [*weights, *(-w for w in weights)]
    l1_norm = int(np.abs(centred).sum())
    bound = a2q.centred_weight_bound(l1_norm, activations)
    formula = log2(l1_norm * (2**activations - 1) + 2)
    assert bound - 1 - 1e-9 < formula <= bound + 1e-9
    assert guaranteed_bits(centred, 0, (1 << activations) - 1) == bound
    assert a2q.centred_weight_budget(bound - 1, activations) < l1_norm
    assert l1_norm <= a2q.centred_weight_budget(bound, activations)


@quick
@given(ROWS, st.integers(0, 255), st.integers(1, 255))
def test_the_bound_of_axe_is_ours_but_for_the_lowest_number(weights, below, high):
    row = np.array(weights)
    p, n = int(row[row > 0].sum()), int(-row[row < 0].sum())
    bound, ours = a2q.axe_bound(p, n, -below, high), guaranteed_bits(weights, -below, high)
    bottom = -(high * n + below * p)
    top = high * p + below * n
    is_lowest = bottom == -(1 << bound - 2) and top < 1 << bound - 2
    assert ours == bound - is_lowest


@quick
@given(ROWS, st.integers(0, 255), st.integers(1, 255), st.integers(2, 30))
def test_the_radius_of_axe_is_its_condition_for_weights_that_add_up_to_0(
    weights, below, high, bits
):
    half = sum(map(abs, weights))
    fits = Fraction(2 * half) <= a2q.axe_radius(bits, -below, high)
    assert fits == (a2q.axe_bound(half, half, -below, high) <= bits)
