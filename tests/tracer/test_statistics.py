import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tracer.records import counted_runs
from tracer.support import measurements

samples_of_runs = hnp.arrays(
    np.float64, st.tuples(st.integers(2, 50), st.integers(1, 4)), elements=st.floats(0, 1e6)
)


@given(samples_of_runs)
def test_a_summary_is_what_numpy_says_of_each_column(samples):
    found = measurements.summarize(samples)
    usual = measurements.bulk(samples)
    means = np.ma.masked_array(samples, ~usual).mean(axis=0)
    assert np.allclose(found.mean, means.filled(np.nan))
    assert np.allclose(found.p50, np.median(samples, axis=0))
    assert np.allclose(found.std, np.std(samples, axis=0, ddof=1))
    ordered = [found.min, found.p50, found.p90, found.p95, found.p99, found.max]
    assert all((a <= b).all() for a, b in itertools.pairwise(ordered))
    assert (found.min <= found.mean).all() and (found.mean <= found.max).all()


@given(samples_of_runs, st.floats(0, 2))
def test_the_bulk_has_the_faster_quarter_and_all_of_equal_samples(samples, tick):
    usual = measurements.bulk(samples, tick)
    low = np.quantile(samples, 0.25, axis=0)
    assert (usual | (samples > low)).all()
    assert measurements.bulk(np.full((9, 2), 3.0), tick).all()


def test_stalls_in_most_samples_leave_the_mean_of_the_others():
    """The oracle is the distribution that the others are drawn from."""
    random = np.random.default_rng(3)
    quiet = random.normal(40.0, 1.0, (400, 50))
    stalls = np.where(random.random(quiet.shape) < 0.6, random.exponential(3000, quiet.shape), 0)
    stalled = measurements.summarize(np.floor(quiet + stalls), 1.0)
    assert np.abs(stalled.mean + 0.5 - 40.0).max() < 1.0
    assert np.abs(measurements.summarize(np.floor(quiet), 1.0).mean + 0.5 - 40.0).max() < 0.2


def covered(samples):
    """Share of experiments (columns) whose interval holds the true mean, 0."""
    half = measurements.ci95_half(samples)
    return float(np.mean(np.abs(samples.mean(axis=0)) <= half))


def test_the_interval_covers_the_mean_of_independent_runs_as_often_as_it_says():
    samples = np.random.default_rng(0).standard_normal((600, 2000))
    assert 0.93 <= covered(samples) <= 0.97


def test_the_interval_holds_where_runs_are_alike_and_the_usual_formula_fails():
    rng = np.random.default_rng(1)
    samples = np.empty((3000, 1000))
    samples[0] = rng.standard_normal(1000)
    for i in range(1, len(samples)):  # an AR(1) process: each run is mostly the last one
        samples[i] = 0.9 * samples[i - 1] + np.sqrt(1 - 0.81) * rng.standard_normal(1000)
    naive = 1.96 * samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    assert np.mean(np.abs(samples.mean(axis=0)) <= naive) < 0.5
    assert covered(samples) > 0.9


def test_one_run_has_no_interval():
    assert np.isnan(measurements.ci95_half(np.ones((1, 3)))).all()


def test_outliers_are_runs_far_above_the_rest_and_never_below():
    values = np.random.default_rng(0).normal(100, 1, 500)
    values[[3, 77]] = [400, 1000]
    values[5] = 1
    assert np.flatnonzero(counted_runs.outliers(values)).tolist() == [3, 77]
    assert not counted_runs.outliers(np.full(10, 7.0)).any()


def test_a_second_speed_of_the_machine_is_no_outlier():
    values = np.random.default_rng(0).normal(100, 1, 100)
    values[:45] += 100
    assert not counted_runs.outliers(values).any()
    values[5:45] -= 100
    assert np.flatnonzero(counted_runs.outliers(values)).tolist() == [0, 1, 2, 3, 4]
