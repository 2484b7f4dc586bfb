"""Weights rounded within the limits of sums, against every input and against plain rounding."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import quick
from tracer.narrowing.rounding import Limits, damped, rounded


def worst(integers, low, high):
    """The largest and the smallest sum of each row, by the worst input for each term."""
    ends = np.stack([integers.astype(np.int64) * low, integers.astype(np.int64) * high])
    return np.maximum(ends.max(0), 0).sum(1), np.minimum(ends.min(0), 0).sum(1)


@quick
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 200),
    st.integers(1, 6),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(2, 20),
)
def test_no_input_exceeds_the_limits(seed, depth, rows, low, high, bits):
    random = np.random.default_rng(seed)
    weights = random.normal(0, random.choice([0.3, 3, 100, 1e6]), (rows, depth))
    inputs = random.integers(-low, high + 1, (64, depth)).astype(float)
    room = random.integers(0, 1 << bits, (2, rows)).astype(float)
    limits = Limits(-low, high, *room, 127)
    integers = rounded(weights, damped(inputs.T @ inputs / 64), limits)
    top, bottom = worst(integers, -low, high)
    assert (integers == np.rint(integers)).all()
    assert np.abs(integers).max() <= 127
    assert (top <= room[0]).all()
    assert (bottom >= -room[1]).all()
    assert limits.held_by(integers)


def test_weights_that_fit_are_rounded_each_on_its_own_where_inputs_are_independent():
    weights = np.random.default_rng(0).normal(0, 20, (5, 40))
    room = np.full(5, 1e9)
    integers = rounded(weights, np.eye(40), Limits(0, 255, room, room, 127))
    assert np.array_equal(integers, np.rint(weights))


def test_correlated_inputs_lose_less_than_by_plain_rounding():
    random = np.random.default_rng(1)
    inputs = random.normal(0, 1, (500, 8)) @ random.normal(0, 1, (8, 60))
    weights = random.normal(0, 3, (20, 60))
    room = np.full(20, 1e9)
    integers = rounded(weights, damped(inputs.T @ inputs / 500), Limits(0, 255, room, room, 127))
    ours, plain = (
        ((inputs @ (weights - each).T) ** 2).mean() for each in (integers, np.rint(weights))
    )
    assert ours < 0.5 * plain


def test_a_budget_is_spent_and_not_left_to_the_first_columns():
    weights = np.full((1, 100), 10.0)
    room = np.array([255.0 * 200])
    integers = rounded(weights, np.eye(100), Limits(0, 255, room, room, 127))
    assert integers.sum() in (200, 199)
    assert (integers == 2).mean() > 0.9
