"""Gates: what an interval shows, and what it does not."""

import numpy as np
import pandas as pd
import pytest

from tracer.analyzers.compare import equivalent, not_slower, verdicts_of


def verdict(gate, ratio, low, high):
    totals = pd.DataFrame({"side": ["a", "b"], "ratio": [1.0, ratio],
                           "ratio_low": [np.nan, low], "ratio_high": [np.nan, high]})  # fmt: skip
    (only,) = verdicts_of(totals, [gate])
    return only


@pytest.mark.parametrize(
    ("interval", "outcome"),
    [((1.12, 1.08, 1.16), "FAIL"), ((1.12, 1.04, 1.2), "pass"), ((0.8, 0.7, 0.9), "pass")],
)
def test_a_side_is_too_slow_where_the_whole_interval_is_above(interval, outcome):
    found = verdict(not_slower(0.05), *interval)
    assert (found.outcome, found.passed) == (outcome, outcome == "pass")
    assert found.line.startswith(f"{outcome}: b is ")
    assert ("faster than a" in found.line) == (interval[0] < 1)
    assert "allowed +5.0%" in found.line


@pytest.mark.parametrize(
    ("interval", "outcome"),
    [
        ((1.0, 0.985, 1.015), "pass"),
        ((1.01, 0.99, 1.03), "FAIL"),  # it may be 3 % slower
        ((0.99, 0.97, 1.01), "FAIL"),  # it may be 3 % faster
        ((1.0, 0.5, 2.0), "FAIL"),  # an interval so wide shows nothing
    ],
)
def test_sides_are_equivalent_where_the_whole_interval_is_within(interval, outcome):
    found = verdict(equivalent(0.02), *interval)
    assert found.outcome == outcome
    assert "allowed ±2.0%" in found.line


@pytest.mark.parametrize("gate", [not_slower(0.05), equivalent(0.05)])
def test_a_gate_that_cannot_tell_does_not_let_pass(gate):
    found = verdict(gate, 1.0, np.nan, np.nan)
    assert (found.outcome, found.passed) == ("undecided", False)
    assert "too few runs" in found.line


@pytest.mark.parametrize(
    ("gate", "option"),
    [(not_slower(0.05), "--fail-above 5%"), (equivalent(0.025), "--fail-unless-within 2.5%")],
)
def test_a_gate_is_named_as_on_the_command_line(gate, option):
    assert verdict(gate, 1.0, 0.9, 1.1).gate == option
