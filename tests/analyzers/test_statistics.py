import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from analyzers import statistics


@pytest.mark.parametrize(
    ("level", "dof", "quantile"),
    [(0.05, 1, 12.706), (0.05, 2, 4.303), (0.05, 10, 2.228), (0.05, 30, 2.042), (0.05, 100, 1.984),
     (0.01, 1, 63.657), (0.01, 5, 4.032), (0.01, 19, 2.861), (0.01, 100, 2.626)],
)  # fmt: skip
def test_t_quantiles_and_p_values_match_published_ones(level, dof, quantile):
    """NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2."""
    assert statistics.t_quantile(level, dof) == pytest.approx(quantile, abs=5.1e-4)
    assert statistics.t_p_value(quantile, dof) == pytest.approx(level, rel=2e-3)
    assert statistics.t_p_value(-quantile, dof) == statistics.t_p_value(quantile, dof)


@given(
    hnp.arrays(
        np.float64, st.tuples(st.integers(2, 50), st.integers(1, 4)), elements=st.floats(0, 1e6)
    )
)
def test_a_summary_is_what_numpy_says_of_each_column(samples):
    found = statistics.summarize(samples)
    assert np.allclose(found.mean, np.mean(samples, axis=0))
    assert np.allclose(found.p50, np.median(samples, axis=0))
    assert np.allclose(found.std, np.std(samples, axis=0, ddof=1))
    assert (found.min <= found.p50).all()
    assert (found.p50 <= found.p95).all()


def covered(samples):
    """Share of experiments (columns) whose interval holds the true mean, 0."""
    half = statistics.ci95_half(samples)
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
    assert np.isnan(statistics.ci95_half(np.ones((1, 3)))).all()


def test_outliers_are_runs_far_above_the_rest_and_never_below():
    values = np.random.default_rng(0).normal(100, 1, 500)
    values[[3, 77]] = [400, 1000]
    values[5] = 1
    assert np.flatnonzero(statistics.outliers(values)).tolist() == [3, 77]
    assert not statistics.outliers(np.full(10, 7.0)).any()


def test_a_second_speed_of_the_machine_is_no_outlier():
    values = np.random.default_rng(0).normal(100, 1, 100)
    values[:45] += 100
    assert not statistics.outliers(values).any()
    values[5:45] -= 100
    assert np.flatnonzero(statistics.outliers(values)).tolist() == [0, 1, 2, 3, 4]
