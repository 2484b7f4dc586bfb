"""Adjusting rows to a known sum, on rows whose true times and whose profiler are known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tracer.analyzers.correction import Sum, correct, tick_error

times = st.lists(st.floats(0.1, 500), min_size=2, max_size=40)
factors = st.floats(0.6, 1.6)


def made(true, factor, seed=0):
    """Raw times of rows that take `true`, by a profiler that costs `factor` times what it did."""
    true = np.array(true)
    bias = np.random.default_rng(seed).uniform(1, 4, len(true))
    return true, true + factor * bias, bias


@given(times, factors)
def test_the_sum_is_that_of_the_undisturbed_run(true, factor):
    true, raw, bias = made(true, factor)
    found = correct(raw, bias, np.full(len(raw), 0.2), Sum(true.sum(), 0.0, bound=False)).of(raw)
    assert found.sum() == pytest.approx(true.sum(), rel=1e-6)


@given(times, st.floats(0, 1e6))
def test_the_overhead_stays_within_half_and_twice_the_calibrated_one(true, total):
    true, raw, bias = made(true, 1.0)
    correction = correct(raw, bias, np.full(len(raw), 0.2), Sum(total, 1.0, bound=False))
    assert 0.5 - 1e-9 <= correction.scale <= 2 + 1e-9


@given(times, st.floats(0, 1e4), st.floats(0, 1e4), st.booleans())
def test_no_time_is_negative_and_each_lies_in_its_interval(raw, total, cost, bound):
    raw = np.array(raw)
    bias = np.linspace(0, cost, len(raw))
    correction = correct(raw, bias, np.full(len(raw), 0.2), Sum(total, 1.0, bound))
    found = correction.of(raw)
    low, high = correction.interval(raw, np.full(len(raw), 0.1))
    assert (low >= 0).all() and (found >= 0).all()
    assert (low <= found + 1e-9).all() and (found <= high + 1e-9).all()


@given(st.floats(0, 0.9))
def test_a_row_that_must_be_next_to_nothing_has_an_end_that_can_be_printed(part):
    """The machine was slower under the profiler: a long row alone takes longer than the run."""
    raw, bias = np.array([5_000.0, *np.linspace(4, 40, 30)]), np.full(31, 5.0)
    total = Sum(part * 5_000, 1.0, bound=False)
    _, high = correct(raw, bias, np.full(31, 0.2), total).interval(raw, np.full(31, 0.1))
    assert (high > 0.01).all()


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.5, 1.9])
def test_a_profiler_that_costs_more_or_less_than_calibrated_is_seen_through(factor):
    true = np.array([0.3] * 100 + [5.0] * 10 + [40.0] * 3)
    true, raw, bias = made(true, factor)
    correction = correct(raw, bias, np.full(len(raw), 0.2), Sum(true.sum(), 0.5, bound=False))
    missed = correction.of(raw) - true
    assert np.abs(missed).max() < 1.5
    assert np.abs(missed[100:]).max() < 4 * correction.error[100:].max()
    uncorrected = raw - bias - true
    assert np.abs(missed).sum() < np.abs(uncorrected).sum() or factor == 1.0


def test_intervals_hold_the_truth_where_rows_are_off_by_themselves():
    random = np.random.default_rng(1)
    held = []
    for _ in range(200):
        true = random.uniform(0.5, 30, 20)
        bias, off = np.full(20, 3.0), random.normal(0, 0.4, 20)
        raw = true + bias * random.normal(1, 0.3) + off
        total = Sum(true.sum() + random.normal(0, 1), 1.0, bound=False)
        low, high = correct(raw, bias, np.full(20, 0.4), total).interval(raw, np.zeros(20))
        held.append((low <= true) & (true <= high))
    assert np.mean(held) > 0.93


def test_the_shorter_a_row_the_less_is_known_of_it():
    true, raw, bias = made([0.2, 1.0, 5.0, 25.0, 125.0], 1.0)
    correction = correct(raw, bias, np.full(5, 0.3), Sum(true.sum(), 0.1, bound=False))
    low, high = correction.interval(raw, np.zeros(5))
    assert (np.diff((high - low) / correction.of(raw)) < 0).all()


def test_work_of_the_runtime_is_not_forced_upon_the_rows():
    _, raw, bias = made([10.0, 20.0, 30.0], 1.0)
    found = correct(raw, bias, np.full(3, 0.2), Sum(600.0, 1.0, bound=False)).of(raw)
    assert found.sum() < raw.sum()


def test_a_bound_is_kept_and_else_says_nothing():
    true, raw, bias = made([10.0, 20.0, 30.0], 1.0)
    wide = correct(raw, bias, np.full(3, 0.2), Sum(600.0, 1.0, bound=True))
    assert wide.of(raw) == pytest.approx(true)
    tight = correct(raw, bias, np.full(3, 0.2), Sum(55.0, 1.0, bound=True))
    assert tight.of(raw).sum() == pytest.approx(55)


def test_an_instrument_that_adds_nothing_is_not_corrected():
    raw = np.array([1.0, 0.0, 7.0])
    correction = correct(raw, np.zeros(3), np.zeros(3), Sum(2.0, 0.1, bound=False))
    assert correction.of(raw).tolist() == raw.tolist()


@pytest.mark.parametrize("x", [-90.0, -12.0, -7.9, -1.0, 0.0, 0.5, 3.0, 20.0])
def test_means_and_intervals_are_those_of_a_normal_distribution_cut_off_at_nothing(x):
    correction = correct(np.array([x]), np.zeros(1), np.array([1.0]), Sum(1.0, 0.0, bound=True))
    cut = stats.truncnorm(-x, np.inf, loc=x)
    if x > -30:  # scipy's own mean is lost beyond
        assert correction.of(np.array([x]))[0] == pytest.approx(cut.mean(), rel=2e-3)
    low, high = correction.interval(np.array([x]), np.zeros(1))
    if x > -30:
        assert [low[0], high[0]] == pytest.approx(cut.ppf([0.025, 0.975]), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("jitter", [0.0, 0.1, 0.3, 0.6, 1.0, 3.0])
def test_what_a_clock_of_whole_microseconds_cuts_off_is_not_underrated(jitter):
    random = np.random.default_rng(2)
    durations = random.uniform(10, 20, 400)
    samples = np.floor(durations + jitter * random.normal(size=(300, 400)))
    missed = samples.mean(axis=0) + 0.5 - durations
    random_error = jitter / math.sqrt(300)
    told = tick_error(samples, np.ones(400), 1.0)
    assert math.sqrt((missed**2).mean()) < 1.1 * math.hypot(np.sqrt((told**2).mean()), random_error)
    if jitter >= 3:
        assert told.max() < 0.01
    if jitter == 0:
        assert told == pytest.approx(np.full(400, 1 / math.sqrt(12)), rel=0.03)
