"""Rounding of products against Python's fractions, and what draws depend on."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import quick
from tracer.accumulators.engine import dots
from tracer.accumulators.spec.accumulator import Accumulator, Rounding, rounded, rounding
from tracer.accumulators.spec.orders import Terms
from tracer.errors import UsageError

BY_FRACTIONS = {
    "half-even": round,
    "half-away": lambda q: math.copysign(1, q) * math.floor(abs(q) + Fraction(1, 2)),
    "floor": math.floor,
    "truncate": math.trunc,
}


@quick
@given(
    st.sampled_from(sorted(BY_FRACTIONS)),
    st.lists(st.tuples(st.integers(-128, 127), st.integers(0, 255)), min_size=1, max_size=30),
    st.integers(1, 12),
    st.integers(8, 20),
    st.none() | st.integers(4, 12),
)
def test_a_sum_of_rounded_products(rule, factors, shift, bits, product_bits):
    total, exact = 0, 0
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for weight, number in factors:
        term = int(BY_FRACTIONS[rule](Fraction(weight * number, 2**shift)))
        if product_bits is not None:
            term = min(max(term, -(2 ** (product_bits - 1))), 2 ** (product_bits - 1) - 1)
        exact += term * 2**shift
        total = min(max(total + term * 2**shift, low), high)
    accumulator = Accumulator(
        bits, product_bits=product_bits, product_shift=shift, product_rounding=rule
    )
    left, right = (np.array(side) for side in zip(*factors, strict=True))
    case = (left[None], right[:, None], None, Terms(len(factors)), accumulator)
    unlimited, clipped = dots.measure(*case)
    assert (clipped.values.item(), unlimited.final.item()) == (total, exact)


def test_ties_go_where_the_rule_says():
    halves = np.array([-6, -2, 2, 6, 10])  # -1.5, -0.5, 0.5, 1.5, 2.5 of 4
    expected = {
        "half-even": [-2, 0, 0, 2, 2],
        "half-away": [-2, -1, 1, 2, 3],
        "floor": [-2, -1, 0, 1, 2],
        "truncate": [-1, 0, 0, 1, 2],
    }
    for rule, values in expected.items():
        assert rounded(halves, 2, rounding(rule)).tolist() == values


def test_draws_round_up_as_often_as_the_dropped_part_says():
    products = np.tile(np.arange(16), (4000, 1)).reshape(1, -1)  # dropped: 0 to 15 sixteenths
    up = (rounded(products, 4, Rounding("stochastic", 5)) - (products >> 4)).reshape(4000, 16)
    assert set(np.unique(up)) == {0, 1}
    spread = 5 * np.sqrt(np.arange(16) / 16 * (1 - np.arange(16) / 16) / 4000)
    assert (np.abs(up.mean(0) - np.arange(16) / 16) <= spread).all()


def test_a_draw_depends_on_the_seed_and_not_on_the_cut_into_blocks():
    random = np.random.default_rng(0)
    left, right = random.integers(-128, 128, (5, 60)), random.integers(0, 256, (60, 40))
    results = {}
    for seed in (1, 2):
        accumulator = Accumulator(
            14, product_shift=6, product_rounding=f"stochastic({seed})", order="tree"
        )
        whole = dots.measure(left, right, None, Terms(60), accumulator)[1].values
        one = dots.measure(left[3:4], right[:, 7:9], None, Terms(60), accumulator)[1].values
        np.testing.assert_array_equal(whole[3:4, 7:9], one)
        results[seed] = whole
    assert (results[1] != results[2]).any()


def test_files_keep_the_rounding_and_older_ones_have_none():
    accumulator = Accumulator(18, product_shift=4, product_rounding="stochastic(7)")
    stored = accumulator.to_plain()
    assert (stored["product_shift"], stored["product_rounding"]) == (4, "stochastic(7)")
    assert Accumulator.from_plain(stored) == accumulator
    assert "product_rounding" not in Accumulator(18).to_plain()


@pytest.mark.parametrize("spelling", ["", "nearest", "floor(1)", "stochastic(-1)", "stochastic(a)"])
def test_what_is_no_rounding_is_refused(spelling):
    with pytest.raises(UsageError, match="half-even"):
        Accumulator(18, product_shift=1, product_rounding=spelling)


@pytest.mark.parametrize("shift", [-1, 33, 1.0, "4", True])
def test_what_is_no_shift_is_refused(shift):
    with pytest.raises(UsageError):
        Accumulator(18, product_shift=shift)
