"""Bins, against a plain search among their limits."""

from bisect import bisect_right
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter.models import quick
from tracer.accumulators.spec.accumulator import Accumulator, needed
from tracer.accumulators.statistics import partial_sums
from tracer.accumulators.statistics.partial_sums import Tally, UnlimitedSums

LIMITS = [int(limit) for limit in partial_sums.bin_edges()]
LARGE = st.integers(0, 63).flatmap(lambda k: st.integers(-(1 << k), (1 << k) - 1))


def tallied(numbers):
    """A tally of sums that are these numbers, and nothing else."""
    sums = np.array([numbers], np.int64)
    tally = Tally.empty(1, Accumulator(64))
    tally.take(slice(0, 1), tally.of(UnlimitedSums(sums, sums, sums)))
    return tally


def place(number):
    return int(tallied([number]).final_histogram.argmax())


def test_limits_are_whole_increasing_and_mirrored():
    assert LIMITS == sorted(set(LIMITS)) == [-limit for limit in LIMITS[::-1]]
    assert (partial_sums.bin_edges() == LIMITS).all()
    assert (LIMITS[0], LIMITS[-1]) == (-(2**63), 2**63)


def test_small_numbers_have_bins_of_their_own_and_others_are_told_apart_by_an_eighth():
    assert set(range(-16, 17)) <= set(LIMITS)
    positive = [limit for limit in LIMITS if limit >= 16]
    assert all(
        (after - before) * partial_sums.PER_OCTAVE <= before for before, after in pairwise(positive)
    )


def test_every_number_beside_a_limit_is_on_its_side():
    for index, limit in enumerate(LIMITS[:-1]):
        assert place(limit) == index
        assert place(LIMITS[index + 1] - 1) == index


def test_no_bin_lies_across_the_limit_of_a_width():
    assert {1 << k for k in range(64)} | {-(1 << k) for k in range(64)} <= set(LIMITS)


@quick
@given(st.lists(LARGE, min_size=1, max_size=40))
def test_counts_are_those_of_a_search(numbers):
    expected = np.zeros(len(LIMITS) - 1, int)
    for number in numbers:
        expected[bisect_right(LIMITS, number) - 1] += 1
    tally = tallied(numbers)
    for counts in (tally.final_histogram, tally.low_histogram, tally.high_histogram):
        assert counts.tolist() == expected.tolist()
    widths = np.bincount(needed(np.array(numbers)), minlength=66)
    assert tally.final_widths[0].tolist() == tally.prefix_widths[0].tolist() == widths.tolist()


@quick
@given(LARGE)
def test_widths_are_those_of_python(number):
    plain = (number if number >= 0 else ~number).bit_length() + 1
    assert needed(np.array([number])).tolist() == [plain]
