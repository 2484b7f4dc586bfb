"""The test and the interval, against scipy's, and their error rates on series that remember."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.examples import at_night
from tracer.analyzers.compare import contrast
from tracer.analyzers.compare.views.tables import ratio


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


@pytest.fixture
def same_layout(monkeypatch):
    """Sides that differ by nothing that lasts for a whole comparison."""
    monkeypatch.setattr(contrast, "_LAYOUT", 0.0)


@pytest.mark.usefixtures("same_layout")
def test_layers_that_take_turns_are_tested_as_scipy_tests_their_ratios():
    logs = np.random.default_rng(2).normal(0.01, 0.02, 12)
    result = contrast.of_turns(logs, contrast.Sample(100.0, 1.0, 11), contrast.Sample(101, 1.0, 11))
    expected = stats.ttest_1samp(logs, 0)
    low, high = np.exp(expected.confidence_interval(1 - contrast.LEVEL))
    assert result.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert (result.ratio, result.low, result.high) == pytest.approx(
        (np.exp(logs.mean()), low, high)
    )
    change = [100 * (ratio - 1) for ratio in (result.ratio, result.low, result.high)]
    assert [result.change, result.change_low, result.change_high] == pytest.approx(change)


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


@pytest.mark.one_in(3)
@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9])
def test_runs_that_remember_are_rarely_called_different_where_a_plain_test_often_does(memory):
    first, second = noise((1000, 600), memory, 5), noise((1000, 600), memory, 6)
    assert rate(contrast.of_runs, first, second) < 0.05
    if memory == 0.9:
        assert np.mean(stats.ttest_ind(first, second).pvalue < contrast.LEVEL) > 0.3


def told(a, b, added, count=24, turns=9, runs=10, seed=0):
    """The ratio that is found of layers of `a` and `b` µs under a profiler.

    It adds `added` µs to each, at the speed that the machine has in a turn, and tells whole µs.
    """
    random = np.random.default_rng(seed)
    sides = [], []
    for layout in random.normal(0, 0.01, (count, 2)):
        speed = np.exp(np.cumsum(random.normal(0, 0.05, turns)))[:, None]
        speed /= speed.mean()
        for side, us, more, shift in zip(sides, (a, b), added, layout, strict=True):
            each = speed * (us * np.exp(shift) + more + random.normal(0, 0.5, (turns, runs)))
            side.append(np.floor(each).mean(axis=1, keepdims=True))
    first, second = (
        contrast.Sample(us, 0.0, count - 1, 0.0, 0.1, np.mean(side) - us, (more,))
        for us, side, more in zip((a, b), sides, added, strict=True)
    )
    return contrast.of_turns(contrast.log_ratios(*sides)[:, 0], first, second)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("a", "b"),
    at_night([(8.0, 8.0), (8.0, 9.6), (1.5, 1.5), (40.0, 48.0)], but=[(8.0, 9.6), (1.5, 1.5)]),
)
@pytest.mark.parametrize("added", [pytest.param((2.0, 2.0), marks=pytest.mark.nightly), (2.0, 6.0)])
def test_the_interval_holds_the_true_ratio_whatever_the_profiler_adds(a, b, added):
    found = [told(a, b, added, seed=seed) for seed in range(300)]
    held = [each.low <= b / a <= each.high for each in found if not math.isnan(each.low)]
    assert np.mean(held) > 1 - 2 * contrast.LEVEL
    ratios = np.nan_to_num([each.ratio for each in found])  # not known: nearly none was left of b
    assert np.median(ratios) == pytest.approx(b / a, rel=0.03)
    changes = [each.change_low <= b - a <= each.change_high for each in found]
    assert np.mean(changes) > 1 - 2 * contrast.LEVEL
    different = np.mean([each.p < contrast.LEVEL for each in found])
    assert different < 0.03 if a == b else different > 0.97


def test_drift_that_meets_both_sides_hides_no_difference():
    drift = np.linspace(0, 60, 20)
    shake = np.array([0.1, -0.1, 0.2, -0.2] * 5)
    a, b = 100 + drift, (100 + drift) * 1.03 + shake
    paired = contrast.of_sessions(a[:, None], b[:, None])
    apart = contrast.contrast(contrast.of_runs(a), contrast.of_runs(b))
    assert paired.p < contrast.LEVEL < apart.p
    assert paired.ratio == pytest.approx(1.03, rel=1e-3)


def test_an_overhead_that_both_sides_have_makes_no_difference_uncertain_and_others_do():
    logs = np.log(1.04) + np.random.default_rng(4).normal(0, 1e-3, 24)
    a = contrast.Sample(10.0, 0.1, 23, 1.0, 1.0, overhead=2.0, kernels=("Conv",))
    alike = replace(a, mean=10.5)
    same = contrast.of_turns(logs, a, alike)
    assert same.change == pytest.approx(12 * 0.04, rel=0.05)
    assert same.ratio == pytest.approx(1.048, abs=2e-3)
    assert same.p < 1e-3 and same.low > 1
    other = contrast.of_turns(logs, a, replace(alike, kernels=("Gemm",)))
    assert other.p > 0.5 and other.low < 1 < other.high
    more = contrast.of_turns(logs, a, replace(alike, overhead=2.5, kernels=("Conv", "Relu")))
    assert more.change == pytest.approx(0, abs=0.03)  # all that was more is overhead
    widths = [each.change_high - each.change_low for each in (same, more, other)]
    # of 0.05 × 2, of half of 1, of 1 on both sides
    assert widths[1] / widths[2] == pytest.approx(math.hypot(0.1, 0.5) / math.sqrt(2), rel=0.02)
    assert widths[0] / widths[2] == pytest.approx(0.1 / math.sqrt(2), rel=0.05)


def test_a_time_that_vanishes_beside_the_overhead_has_no_ratio():
    logs = np.log(0.5) + np.random.default_rng(6).normal(0, 1e-3, 4)
    a = contrast.Sample(1.0, 0.1, 3, 0.1, 0.1, overhead=2.0, kernels=("Relu",))
    left = contrast.of_turns(logs, a, a)
    assert math.isnan(left.ratio) and math.isnan(left.low) and math.isnan(left.high)
    assert left.change == pytest.approx(-1.5, rel=0.01) and left.p < 1e-3


def test_a_layer_of_one_side_is_tested_against_nothing_as_scipy_does():
    times = np.random.default_rng(5).normal(2, 1.5, 24)
    expected = stats.ttest_1samp(times, 0)
    second = contrast.only_second(contrast.of_means(times))
    low, high = expected.confidence_interval(1 - contrast.LEVEL)
    assert second.p == pytest.approx(expected.pvalue)
    assert (second.change_low, second.change_high) == pytest.approx((low, high))
    first = contrast.only_first(contrast.of_means(times))
    assert (first.change, first.p) == (-second.change, second.p)
    assert (first.change_low, first.change_high) == pytest.approx((-high, -low))
    unsure = contrast.only_second(replace(contrast.of_means(times), systematic=3.0))
    assert unsure.p > contrast.LEVEL > second.p
    assert math.isnan(contrast.only_second(contrast.of_means(times[:1])).p)


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
    one = contrast.of_means(np.array([50.0]))
    result = contrast.contrast(one, contrast.of_means(np.array([100.0])))
    assert (result.ratio, result.change) == (2, 50)
    assert math.isnan(result.p) and math.isnan(result.low)
    alone = contrast.of_turns(np.log([2.0]), one, one)
    assert (alone.ratio, alone.change) == pytest.approx((2, 50))
    assert math.isnan(alone.p) and math.isnan(alone.low) and math.isnan(alone.change_low)


def test_a_layer_that_a_clock_does_not_see_has_no_ratio():
    seen, unseen = np.full((3, 5, 1), 2.0), np.zeros((3, 5, 1))
    assert contrast.log_ratios(unseen, unseen).tolist() == [[0]] * 3
    logs = contrast.log_ratios(seen, unseen)[:, 0]
    result = contrast.of_turns(logs, contrast.Sample(2, 0.1, 2), contrast.Sample(0.0, 0.0, 2))
    assert result.change == -2
    assert math.isnan(result.ratio) and math.isnan(result.p)


def test_an_overhead_beyond_what_was_measured_is_not_tested():
    first = contrast.Sample(0.5, 0.1, 2, overhead=3.0, kernels=("Conv",))
    second = contrast.Sample(1.0, 0.1, 2, overhead=-2.0, kernels=("Gemm",))
    result = contrast.of_turns(np.array([0.1, 0.2, 0.3]), first, second)
    assert (result.change, math.isnan(result.p), math.isnan(result.low)) == (0.5, True, True)


def test_a_time_that_may_be_nothing_has_no_bounded_ratio():
    result = contrast.contrast(contrast.Sample(1.0, 5.0, 9), contrast.Sample(2.0, 0.1, 9))
    assert math.isnan(result.low) and math.isnan(result.high)


@pytest.mark.parametrize(("second", "shown"), [(2.0, ""), (100.0, "100*")])
def test_a_ratio_that_nothing_bounds_is_shown_where_it_differs_alone(second, shown):
    of = contrast.contrast(contrast.Sample(1, 1, 9), contrast.Sample(second, 1, 9))
    assert math.isnan(of.low)
    fields = {"ratio": of.ratio, "ratio_low": of.low, "p": of.p, "change_us": of.change}
    row = {f"{name}_b": value for name, value in fields.items()}
    is_different = stats.ttest_ind_from_stats(1, 10**0.5, 10, second, 10**0.5, 10).pvalue < 0.01
    assert ratio("_b")(row | {"on": "AB", "significant_b": is_different}) == shown


def test_what_is_systematic_is_not_averaged_away():
    a, b = noise((20, 1), seed=9)[:, 0], 1.1 * noise((20, 1), seed=10)[:, 0]
    sure = contrast.contrast(contrast.of_means(a), contrast.of_means(b))
    clocks = [replace(contrast.of_means(side), systematic=5.0) for side in (a, b)]
    unsure = contrast.contrast(*clocks)
    assert sure.p < contrast.LEVEL < unsure.p
    assert unsure.low < 1 < unsure.high
    expected = 2 * stats.norm.sf(abs(a.mean() - b.mean()) / math.hypot(5, 5))
    assert unsure.p == pytest.approx(expected, rel=0.05)


def test_a_clock_that_never_moved_is_tested_by_what_it_cuts_off():
    still = contrast.of_means(np.full(8, 3.0))
    moved = contrast.of_means(np.full(8, 4.0))
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


@pytest.mark.usefixtures("same_layout")
def test_sessions_are_tested_as_scipy_tests_their_ratios():
    first, second = sessions(1.02)
    logs = [np.median(np.log(b / a)) for a, b in zip(first, second, strict=True)]
    expected = stats.ttest_1samp(logs, 0)
    low, high = np.exp(expected.confidence_interval(1 - contrast.LEVEL))
    found = contrast.contrast(contrast.of_blocks(first), contrast.of_blocks(second))
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ratio", [1.0, 1.02])
def test_turns_find_the_ratio_while_the_machine_wanders(ratio):
    found = [contrast.of_sessions(*sessions(ratio, seed=seed)) for seed in range(300)]
    covered = np.mean([each.low <= ratio <= each.high for each in found])
    assert covered >= 0.97
    assert np.median([each.high - each.low for each in found]) < 0.02
    if ratio > 1:
        assert np.mean([each.low > 1 for each in found]) > 0.9


@pytest.mark.nightly
def test_a_layout_that_lasts_for_a_comparison_is_rarely_called_a_difference():
    layouts = np.random.default_rng(5).normal(0, 0.0014, 300)
    found = [
        contrast.of_sessions(*sessions(math.exp(layout), count=24, seed=seed))
        for seed, layout in enumerate(layouts)
    ]
    assert np.mean([each.p < contrast.LEVEL for each in found]) <= 0.01


def test_one_session_has_no_interval():
    first, second = sessions(1.5, count=1)
    found = contrast.of_sessions(first, second)
    assert found.ratio == pytest.approx(1.5, 0.05)
    assert math.isnan(found.low) and math.isnan(found.p)
