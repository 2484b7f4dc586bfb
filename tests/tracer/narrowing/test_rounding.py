"""Weights rounded within the limits of sums, against every input and against plain rounding."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import quick
from tracer.narrowing.rounding import Correlations, Limits, damped, round_within


def worst(integers, low, high, starts):
    """The largest and smallest sum of each register, by the worst input for each term."""
    ends = np.stack([integers.astype(np.int64) * low, integers.astype(np.int64) * high])
    top, bottom = np.maximum(ends.max(0), 0), np.minimum(ends.min(0), 0)
    cuts = list(starts[1:])
    return [
        np.stack([part.sum(1) for part in np.split(each, cuts, axis=1)], 1)
        for each in (top, bottom)
    ]


@quick
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 200),
    st.integers(1, 6),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(2, 20),
    st.integers(1, 250),
)
def test_no_input_exceeds_the_limits_of_a_register(seed, depth, rows, low, high, bits, tile):
    random = np.random.default_rng(seed)
    weights = random.normal(0, random.choice([0.3, 3, 100, 1e6]), (rows, depth))
    inputs = random.integers(-low, high + 1, (64, depth)).astype(float)
    starts = tuple(range(0, depth, tile))
    room = random.integers(0, 1 << bits, (2, rows, len(starts))).astype(float)
    limits = Limits(-low, high, *room, 127, starts)
    integers = round_within(weights, Correlations.of(inputs.T @ inputs / 64), limits)
    top, bottom = worst(integers, -low, high, starts)
    assert (integers == np.rint(integers)).all()
    assert np.abs(integers).max() <= 127
    assert (top <= room[0]).all()
    assert (bottom >= -room[1]).all()
    assert limits.held_by(integers)


def test_weights_that_fit_are_rounded_each_on_its_own_where_inputs_are_independent():
    weights = np.random.default_rng(0).normal(0, 20, (5, 40))
    room = np.full((5, 1), 1e9)
    integers = round_within(weights, Correlations.of(np.eye(40)), Limits(0, 255, room, room, 127))
    assert np.array_equal(integers, np.rint(weights))


def test_correlated_inputs_lose_less_than_by_plain_rounding():
    random = np.random.default_rng(1)
    inputs = random.normal(0, 1, (500, 8)) @ random.normal(0, 1, (8, 60))
    weights = random.normal(0, 3, (20, 60))
    room = np.full((20, 1), 1e9)
    limits = Limits(0, 255, room, room, 127)
    integers = round_within(weights, Correlations.of(inputs.T @ inputs / 500), limits)
    ours, plain = (
        ((inputs @ (weights - each).T) ** 2).mean() for each in (integers, np.rint(weights))
    )
    assert ours < 0.5 * plain


def test_a_budget_is_spent_and_not_left_to_the_first_columns():
    weights = np.full((1, 100), 10.0)
    room = np.array([[255.0 * 200]])
    integers = round_within(weights, Correlations.of(np.eye(100)), Limits(0, 255, room, room, 127))
    assert integers.sum() in (200, 199)
    assert (integers == 2).mean() > 0.9


@quick
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 80))
def test_correlations_invert_the_damped_moments(seed, depth, count):
    inputs = np.random.default_rng(seed).normal(0, 3, (count, depth))
    moments = inputs.T @ inputs / count
    correlations = Correlations.of(moments)
    products = np.random.default_rng(seed + 1).normal(0, 1, (3, depth))
    wanted = np.linalg.solve(damped(moments), products.T).T
    assert np.allclose(correlations.solve(products), wanted, rtol=1e-6, atol=1e-9)
    assert np.array_equal(np.tril(correlations.factor, -1), np.zeros((depth, depth)))
