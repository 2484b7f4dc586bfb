"""Statistics of float sums: percentiles as numpy has them, and merging in whatever parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accumulators.float_errors import histogram, relative_errors
from tests.examples import examples
from tracer.accumulators.statistics import float_partial_sums
from tracer.accumulators.statistics.float_partial_sums import FloatTally
from tracer.errors import UsageError

SIZES = st.lists(st.floats(2.0**-59, 2.0**59), min_size=1, max_size=60)


def drawn(seed: int, size: int) -> tuple[np.ndarray, ...]:
    """Values, overflowed, swamped, terms and exact sums, with some of everything special."""
    rng = np.random.default_rng(seed)
    exact = rng.normal(0, 1, size) * 2.0 ** rng.integers(-80, 80, size)
    values = exact * (1 + rng.normal(0, 1, size) * 2.0 ** rng.integers(-70, 70, size))
    for special in (np.nan, np.inf, -np.inf, 0.0):
        values[rng.random(size) < 0.1] = special
        exact[rng.random(size) < 0.05] = special
    values[rng.random(size) < 0.1] *= 2.0**64
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    exact = np.where(rng.random(size) < 0.2, values, exact)
    terms = rng.integers(0, 9, size)
    return values, rng.random(size) < 0.2, rng.integers(0, terms + 1), terms, exact


def tally(*parts: tuple[np.ndarray, ...]) -> FloatTally:
    total = FloatTally.empty("fp16", None)
    for part in parts:
        total = total.plus(*part)
    return total


@given(SIZES, st.integers(1, 100))
@examples(60)
def test_a_percentile_is_at_most_an_eighth_above_that_of_numpy(errors, percent):
    counts = histogram(np.array(errors))
    exact = float(np.percentile(errors, percent, method="inverted_cdf"))
    found = float_partial_sums.error_percentile(counts, percent)
    assert found is not None
    assert exact < found <= exact * 1.125


def test_bins_have_all_errors_below_their_limit_and_none_below_the_limit_before():
    limits = [
        float_partial_sums.error_limit(position)
        for position in range(float_partial_sums.ERROR_BINS)
    ]
    assert limits[1:-1] == sorted(limits[1:-1])
    inner = np.array(limits[1:-1])
    assert histogram(np.nextafter(inner, 0)).tolist() == [0, *[1] * len(inner), 0]
    assert histogram(inner).tolist() == [0, 0, *[1] * len(inner)]
    ends = histogram(np.array([0.0, 1e-300, np.inf, 1e300]))
    assert (ends[0], ends[-1]) == (2, 2)
    assert float_partial_sums.error_percentile(ends, 50) == 0.0
    assert float_partial_sums.error_percentile(ends, 99) == np.inf
    assert float_partial_sums.error_percentile(ends * 0, 50) is None


@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(0, 40))
@examples(40)
def test_parts_in_any_order_have_the_statistics_of_the_whole(seed, first, second):
    one, two = drawn(seed, first), drawn(seed + 1, second)
    whole = tally(tuple(map(np.concatenate, zip(one, two, strict=True))))
    assert tally(one, two) == tally(two, one) == tally(one).merged(tally(two)) == whole
    assert whole.outputs == first + second
    assert whole.nan_outputs + whole.error_histogram.sum() == whole.outputs


@given(st.integers(0, 2**32), st.integers(0, 700))
@examples(60)
def test_errors_are_counted_in_their_bins(seed, size):
    values, overflowed, _, _, exact = parts = drawn(seed, size)
    got = tally(parts)
    known = ~(np.isnan(values) | np.isnan(exact))
    errors = relative_errors(values[known].astype(np.float64), exact[known])
    np.testing.assert_array_equal(got.error_histogram, histogram(errors))
    assert got.nan_outputs == np.count_nonzero(~known)
    assert got.greatest_error == errors.max(initial=0.0)
    assert got.overflow_outputs == np.count_nonzero(overflowed)


def test_errors_of_special_values():
    values = np.array([0.0, 1.0, np.inf, np.inf, -np.inf, 3.0, 2.0])
    exact = np.array([0.0, 0.0, np.inf, 1.0, np.inf, np.inf, -1.0])
    assert relative_errors(values, exact).tolist() == [0, np.inf, 0, np.inf, np.inf, np.inf, 3]
    none = np.zeros(7, np.int64)
    counts = tally((values, none, none, none, exact)).error_histogram
    assert (counts[0], counts[-1], counts.sum()) == (2, 4, 7)


def test_tallies_of_different_accumulators_are_not_merged():
    with pytest.raises(UsageError, match="cannot be merged") as caught:
        FloatTally.empty("fp16", "bf16").merged(FloatTally.empty("fp16", None))
    assert "fp16 with operands in bf16" in caught.value.hint
