"""The normal distribution and Student's t, against scipy and published tables."""

import numpy as np
import pytest
from scipy import special, stats

from tracer.support import measurements


@pytest.mark.parametrize(
    ("level", "dof", "quantile"),
    [(0.05, 1, 12.706), (0.05, 2, 4.303), (0.05, 10, 2.228), (0.05, 30, 2.042), (0.05, 100, 1.984),
     (0.01, 1, 63.657), (0.01, 5, 4.032), (0.01, 19, 2.861), (0.01, 100, 2.626)],
)  # fmt: skip
def test_t_quantiles_and_p_values_match_published_ones(level, dof, quantile):
    """NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2."""
    assert measurements.t_quantile(level, dof) == pytest.approx(quantile, abs=5.1e-4)
    assert measurements.t_p_value(quantile, dof) == pytest.approx(level, rel=2e-3)
    assert measurements.t_p_value(-quantile, dof) == measurements.t_p_value(quantile, dof)


@pytest.mark.parametrize("dof", [1, 2, 3, 9, 29, 119.5, 1000, 12_345])
def test_p_values_and_quantiles_are_those_of_scipy(dof):
    for t in (0, 1e-3, 0.5, 1, 3, 12, 40):
        expected = 2 * special.stdtr(dof, -t)
        assert measurements.t_p_value(t, dof) == pytest.approx(expected, rel=1e-9)
    for level in (0.9, 0.5, 0.05, 1e-3, 1e-9):
        expected = stats.t.isf(level / 2, dof)
        assert measurements.t_quantile(level, dof) == pytest.approx(expected, rel=1e-9)


def test_without_degrees_of_freedom_nothing_is_known():
    assert np.isnan(measurements.t_quantile(0.05, 0)) and np.isnan(measurements.t_p_value(1, 0))
    assert np.isnan(measurements.t_p_value(np.nan, 3))


def test_the_normal_distribution_is_that_of_scipy():
    z = np.linspace(-30, 30, 999)
    assert measurements.normal_cdf(z) == pytest.approx(special.ndtr(z), rel=1e-12)
    p = np.concatenate([np.logspace(-200, -1, 99), np.linspace(0, 1, 99), [np.nan]])
    found = measurements.normal_quantile(p)
    assert found == pytest.approx(special.ndtri(p), rel=1e-12, abs=1e-15, nan_ok=True)


@pytest.mark.parametrize("dof", [1, 5, 1e7, 1e9, np.inf])
def test_no_argument_keeps_a_search_from_ending(dof):
    for level in (1e-100, 1e-12, 0.5, 1 - 1e-15):
        assert measurements.t_quantile(level, dof) >= 0
    for t in (0.0, 1e-300, 1e200, np.inf):
        assert 0 <= measurements.t_p_value(t, dof) <= 1
    assert np.isnan(measurements.t_p_value(np.nan, dof))
    assert np.isnan(measurements.t_quantile(np.nan, dof))
