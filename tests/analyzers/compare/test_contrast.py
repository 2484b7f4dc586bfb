"""The test and the interval, against scipy's, and their error rates on series that remember."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analyzers.compare import contrast


def noise(shape, memory=0.0, seed=0):
    """First-order autoregressive series along the first axis, 100 on average."""
    random = np.random.default_rng(seed)
    steps = random.normal(size=shape)
    series = np.zeros(shape)
    series[0] = steps[0] / math.sqrt(1 - memory**2)
    for place in range(1, shape[0]):
        series[place] = memory * series[place - 1] + steps[place]
    return 100 + series


def rate(make, first, second):
    """How often the columns of two tables are called different."""
    results = [
        contrast.contrast(make(a), make(b)).p < contrast.LEVEL
        for a, b in zip(first.T, second.T, strict=True)
    ]
    return np.mean(results)


def test_pairs_are_tested_as_scipy_tests_them():
    b = noise((12, 1), seed=2)[:, 0]
    a = b + np.array([0.9, -0.3, 0.8, -0.2, 1.0, 0.0] * 2)  # turn by turn: no memory to allow for
    result = contrast.contrast(contrast.of_rounds(a), contrast.of_rounds(b))
    assert result.p == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-9)


def test_strangers_are_tested_as_welch_does():
    sample = contrast.Sample
    result = contrast.contrast(sample(100.0, 2.0, 9), sample(107.0, 1.0, 9))
    welch = stats.ttest_ind_from_stats(
        100, 2 * math.sqrt(10), 10, 107, math.sqrt(10), 10, equal_var=False
    )
    dof = 13  # 13.2, rounded down: a little less sure than scipy
    assert result.p == pytest.approx(2 * stats.t.sf(abs(welch.statistic), dof))
    assert result.p == pytest.approx(welch.pvalue, rel=0.05)


@given(
    st.floats(50, 200), st.floats(50, 200), st.floats(0.01, 8), st.floats(0.01, 8),
    st.integers(2, 40),
)  # fmt: skip
def test_one_lies_outside_the_interval_where_the_test_finds_a_difference(a, b, ea, eb, dof):
    result = contrast.contrast(contrast.Sample(a, ea, dof), contrast.Sample(b, eb, dof))
    if math.isnan(result.low) or abs(result.p - contrast.LEVEL) < 1e-6:
        return
    assert result.low <= result.ratio <= result.high
    assert (result.p < contrast.LEVEL) == (not result.low <= 1 <= result.high)


@pytest.mark.parametrize("memory", [0.0, 0.3])
def test_rounds_without_a_difference_are_rarely_called_different(memory):
    first, second = noise((20, 1500), memory, 3), noise((20, 1500), memory, 4)
    assert rate(contrast.of_rounds, first, second) < 0.05


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
def test_runs_that_remember_are_rarely_called_different_where_a_plain_test_often_does(memory):
    first, second = noise((1000, 600), memory, 5), noise((1000, 600), memory, 6)
    assert rate(contrast.of_runs, first, second) < 0.05
    if memory == 0.9:
        assert np.mean(stats.ttest_ind(first, second).pvalue < contrast.LEVEL) > 0.3


def test_the_interval_holds_the_true_ratio_as_often_as_it_says():
    first, second = noise((20, 1500), seed=7), 1.1 * noise((20, 1500), seed=8)
    held = [
        (result := contrast.contrast(contrast.of_rounds(a), contrast.of_rounds(b))).low <= 1.1
        and result.high >= 1.1
        for a, b in zip(first.T, second.T, strict=True)
    ]
    assert np.mean(held) > 1 - 2 * contrast.LEVEL


def test_drift_that_meets_both_sides_hides_no_difference():
    drift = np.linspace(0, 60, 20)
    shake = np.array([0.1, -0.1, 0.2, -0.2] * 5)
    a, b = 100 + drift, (100 + drift) * 1.03 + shake
    paired = contrast.contrast(contrast.of_rounds(a), contrast.of_rounds(b))
    apart = contrast.contrast(contrast.of_runs(a), contrast.of_runs(b))
    assert paired.p < contrast.LEVEL < apart.p
    assert paired.ratio == pytest.approx(1.03, rel=1e-3)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_the_step_down_procedure(p):
    adjusted = contrast.holm(p)
    order = np.argsort(p, kind="stable")
    rejected = set()
    for rank, place in enumerate(order):  # Holm's own words: stop at the first that is too large
        if p[place] >= contrast.LEVEL / (len(p) - rank):
            break
        rejected.add(int(place))
    assert {place for place, value in enumerate(adjusted) if value < contrast.LEVEL} == rejected


def test_what_was_not_tested_does_not_count_among_the_tests():
    assert contrast.holm([math.nan, 0.004])[1] == 0.004
    assert math.isnan(contrast.holm([math.nan, 0.004])[0])


def test_one_measurement_tells_a_ratio_and_nothing_more():
    one = contrast.of_rounds(np.array([50.0]))
    result = contrast.contrast(one, contrast.of_rounds(np.array([100.0])))
    assert result.ratio == 2
    assert math.isnan(result.p) and math.isnan(result.low)


def test_a_time_that_may_be_nothing_has_no_bounded_ratio():
    result = contrast.contrast(contrast.Sample(1.0, 5.0, 9), contrast.Sample(2.0, 0.1, 9))
    assert math.isnan(result.low) and math.isnan(result.high)


def test_what_is_systematic_is_not_averaged_away():
    a, b = noise((20, 1), seed=9)[:, 0], 1.1 * noise((20, 1), seed=10)[:, 0]
    sure = contrast.contrast(contrast.of_rounds(a), contrast.of_rounds(b))
    clocks = [replace(contrast.of_rounds(side), systematic=5.0) for side in (a, b)]
    unsure = contrast.contrast(*clocks)
    assert sure.p < contrast.LEVEL < unsure.p
    assert unsure.low < 1 < unsure.high
    expected = 2 * stats.norm.sf(abs(a.mean() - b.mean()) / math.hypot(5, 5))
    assert unsure.p == pytest.approx(expected, rel=0.05)


def test_a_clock_that_never_moved_is_tested_by_what_it_cuts_off():
    still = contrast.of_rounds(np.full(8, 3.0))
    moved = contrast.of_rounds(np.full(8, 4.0))
    assert math.isnan(contrast.contrast(still, moved).p)
    coarse = [replace(side, systematic=1 / math.sqrt(12)) for side in (still, moved)]
    assert contrast.contrast(*coarse).p > contrast.LEVEL
    coarse[1] = replace(coarse[1], mean=9.0)
    assert contrast.contrast(*coarse).p < contrast.LEVEL


def sessions(ratio, count=8, blocks=200, seed=0):
    """Blocks of two sides: a machine whose speed wanders, disturbed turns, sessions that differ."""
    random = np.random.default_rng(seed)
    sides = [], []
    for layout in random.normal(0, 0.004, (count, 2)):
        speed = 100 * np.exp(np.cumsum(random.normal(0, 0.02, blocks)))
        for side, factor, shift in zip(sides, (1, ratio), layout, strict=True):
            noise = random.normal(0, 0.01, blocks) + (random.random(blocks) < 0.05) * 3
            side.append(speed * factor * np.exp(shift + noise))
    return sides


def test_sessions_are_tested_as_scipy_tests_their_ratios():
    first, second = sessions(1.02)
    logs = [np.median(np.log(b / a)) for a, b in zip(first, second, strict=True)]
    expected = stats.ttest_1samp(logs, 0)
    low, high = np.exp(expected.confidence_interval(1 - contrast.LEVEL))
    found = contrast.contrast(contrast.of_blocks(first), contrast.of_blocks(second))
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("ratio", [1.0, 1.02])
def test_turns_find_the_ratio_while_the_machine_wanders(ratio):
    found = [contrast.of_sessions(*sessions(ratio, seed=seed)) for seed in range(300)]
    covered = np.mean([each.low <= ratio <= each.high for each in found])
    assert covered >= 0.97
    assert np.median([each.high - each.low for each in found]) < 0.02
    if ratio > 1:
        assert np.mean([each.low > 1 for each in found]) > 0.9


def test_one_session_has_no_interval():
    first, second = sessions(1.5, count=1)
    found = contrast.of_sessions(first, second)
    assert found.ratio == pytest.approx(1.5, 0.05)
    assert math.isnan(found.low) and math.isnan(found.p)
