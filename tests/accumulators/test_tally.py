"""Statistics of sums, against the oracle run at every width and plain counting."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accumulators.dots import dots
from tests.interpreter.models import quick
from tracer.accumulators.engine import dots as dots_by_kernels
from tracer.accumulators.engine import oracle
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.statistics import partial_sums
from tracer.accumulators.statistics.partial_sums import Clipped, Tally, UnlimitedSums
from tracer.errors import InputError, UsageError


def observed(case):
    return oracle.observe(case.left, case.right, case.bias, case.terms, case.accumulator)


def emulated(case, bits):
    accumulator = replace(case.accumulator, bits=bits)
    return oracle.emulate(case.left, case.right, case.bias, case.terms, accumulator)


def tallied(case, clipped=True):
    tally = Tally.empty(len(case.left), case.accumulator)
    narrow = emulated(case, case.accumulator.bits) if clipped else None
    tally.take(slice(None), tally.of(observed(case), narrow))
    return tally


def witness(accumulator):
    numbers = np.array([[100, 100, -150], [-100, -100, 150]])
    case = (numbers, np.ones((3, 1), np.int64), None, Terms(3), accumulator)
    tally = Tally.empty(2, accumulator)
    tally.take(slice(0, 2), tally.of(oracle.observe(*case), oracle.emulate(*case)))
    return tally


def test_a_witness_is_transient_at_8_bits_and_needs_9():
    tally = witness(Accumulator(8))
    assert tally.bits_observed.tolist() == [9, 9]
    assert tally.overflow(8).transient_outputs.tolist() == [1, 1]
    assert tally.overflow(6).persistent_outputs.tolist() == [1, 1]
    assert tally.overflow(9).overflow_outputs.tolist() == [0, 0]
    assert (tally.acc_min.tolist(), tally.acc_max.tolist()) == ([0, -200], [200, 0])
    assert (tally.final_min.tolist(), tally.final_max.tolist()) == ([50, -50], [50, -50])


def test_a_witness_has_errors_at_8_bits():
    tally = witness(Accumulator(8))  # saturated, the sums are -23 and 22
    assert tally.saturation_events.tolist() == [1, 1]
    assert tally.outputs_changed.tolist() == [1, 1]
    assert tally.max_abs_error.tolist() == [73, 72]
    assert (tally.abs_error_sum, tally.mean_abs_error) == ([73, 72], 72.5)


def test_the_magnitude_convention_does_not_count_the_sign():
    assert witness(Accumulator(8, convention="magnitude")).bits_observed.tolist() == [8, 8]


@quick
@given(dots())
def test_who_overflows_at_every_width_is_who_the_oracle_saw(case):
    tally, seen = tallied(case), observed(case)
    for bits in range(2, 34):
        low, high = case.accumulator.range_of(bits)
        overflow = tally.overflow(bits)
        outside = emulated(case, bits).events > 0
        persistent = (seen.final < low) | (seen.final > high)
        assert overflow.overflow_outputs.tolist() == outside.sum(1).tolist()
        assert overflow.persistent_outputs.tolist() == persistent.sum(1).tolist()
        assert overflow.transient_outputs.tolist() == (outside & ~persistent).sum(1).tolist()
    enough = int(tally.bits_observed.max())
    clips = 0 if seen.clips is None else seen.clips
    assert np.array_equal(emulated(case, enough).events > 0, clips > np.zeros_like(seen.final))
    assert enough == 2 or emulated(case, enough - 1).events.any()


@quick
@given(st.integers(1, 4), st.integers(0, 40), st.integers(1, 9), st.integers(0, 2**32))
def test_pairs_that_saturate_are_events_and_overflow_at_every_width(rows, depth, columns, seed):
    random = np.random.default_rng(seed)
    left, right = (
        random.integers(-128, 128, (rows, depth)),
        random.integers(0, 256, (depth, columns)),
    )
    products = left[:, None, :] * right.T[None]
    products = np.concatenate([products, np.zeros((rows, columns, depth % 2), int)], axis=2)
    pairs = products[..., ::2] + products[..., 1::2]
    clips = ((pairs > 32767) | (pairs < -32768)).sum(-1)
    accumulator = Accumulator(32, order="maddubs(4)")
    sums, clipped = dots_by_kernels.measure(left, right, None, Terms(depth), accumulator)
    tally = Tally.empty(rows, accumulator)
    tally.take(slice(None), tally.of(sums, clipped, products.sum(-1)))
    np.testing.assert_array_equal(tally.saturation_events, clips.sum(1))
    for bits in (2, 32, 64):
        low, high = accumulator.range_of(bits)
        outside = (clips > 0) | (sums.low < low) | (sums.high > high)
        np.testing.assert_array_equal(tally.overflow(bits).overflow_outputs, outside.sum(1))
    changed = np.clip(pairs, -32768, 32767).sum(-1) != products.sum(-1)
    np.testing.assert_array_equal(tally.outputs_changed, changed.sum(1))


def test_the_pair_of_the_processors_manual_overflows_once():
    case = (np.array([[127, 127]]), np.array([[255], [255]]), None, Terms(2))
    accumulator = Accumulator(32, order="maddubs")
    tally = Tally.empty(1, accumulator)
    sums, clipped = dots_by_kernels.measure(*case, accumulator)
    tally.take(slice(None), tally.of(sums, clipped, np.array([[64770]])))
    assert (tally.saturation_events.item(), tally.max_abs_error.item()) == (1, 64770 - 32767)
    overflow = tally.overflow(32)
    assert (overflow.overflow_outputs, overflow.transient_outputs) == (1, 1)


@quick
@given(dots())
def test_quantities_are_those_of_plain_counting(case):
    tally, seen, narrow = tallied(case), observed(case), emulated(case, case.accumulator.bits)
    errors = np.abs(narrow.values - seen.final)
    assert tally.outputs.tolist() == [case.right.shape[1]] * len(case.left)
    assert tally.acc_min.tolist() == seen.low.min(1).tolist()
    assert tally.acc_max.tolist() == seen.high.max(1).tolist()
    assert tally.final_min.tolist() == seen.final.min(1).tolist()
    assert tally.final_max.tolist() == seen.final.max(1).tolist()
    assert tally.saturation_events.tolist() == narrow.events.sum(1).tolist()
    assert tally.outputs_changed.tolist() == (errors > 0).sum(1).tolist()
    assert tally.max_abs_error.tolist() == errors.max(1).tolist()
    assert tally.abs_error_sum == errors.sum(1).tolist()
    for counts, values in (
        (tally.final_histogram, seen.final),
        (tally.low_histogram, seen.low),
        (tally.high_histogram, seen.high),
    ):
        assert counts.tolist() == np.histogram(values, partial_sums.bin_edges())[0].tolist()


@quick
@given(dots(), st.data())
def test_parts_make_the_whole_whatever_the_cut(case, data):
    cut = data.draw(st.integers(0, case.right.shape[1]))
    row = data.draw(st.integers(0, len(case.left)))
    seen, narrow = observed(case), emulated(case, case.accumulator.bits)
    whole, other = (Tally.empty(len(case.left), case.accumulator) for _ in range(2))
    for tally, columns in ((whole, slice(0, cut)), (other, slice(cut, None))):
        for rows in (slice(0, row), slice(row, None)):
            parts = (getattr(seen, name) for name in UnlimitedSums.__slots__)
            part = UnlimitedSums(*(x if x is None else x[rows, columns] for x in parts))
            clipped = Clipped(narrow.values[rows, columns], narrow.events[rows, columns])
            tally.take(rows, tally.of(part, clipped))
    whole.merge(other)
    assert whole == tallied(case)


def test_blocks_do_not_show():
    rng = np.random.default_rng(0)
    final = rng.integers(-1000, 1000, (3, 40_000))
    low, high = np.minimum(final, -10), np.maximum(final, 10)
    tally = Tally.empty(5, Accumulator(10))
    tally.take(slice(1, 4), Tally.empty(3, Accumulator(10)).of(UnlimitedSums(final, low, high)))
    assert tally.outputs.tolist() == [0, 40_000, 40_000, 40_000, 0]
    assert tally.final_min.tolist()[1:4] == final.min(1).tolist()
    assert (
        tally.final_histogram.tolist() == np.histogram(final, partial_sums.bin_edges())[0].tolist()
    )
    outside = (low < -512) | (high > 511)
    assert tally.overflow(10).overflow_outputs.tolist() == [0, *outside.sum(1).tolist(), 0]
    assert tally.missing.tolist() == [0, *outside.sum(1).tolist(), 0]


def test_sums_of_errors_are_exact_beyond_64_bits():
    large = (1 << 61) + 1
    final = np.full((1, 100), large)
    tally = Tally.empty(1, Accumulator(8))
    seen = UnlimitedSums(final, np.zeros_like(final), final)
    clipped = Clipped(np.full_like(final, 127), np.ones_like(final))
    for _ in range(3):
        tally.take(slice(None), tally.of(seen, clipped))
    tally.merge(tally)
    assert tally.abs_error_sum == [600 * (large - 127)]


@quick
@given(dots())
def test_stored_and_read_again_it_is_the_same(case):
    tally = tallied(case)
    assert Tally.from_arrays(tally.arrays(), case.accumulator) == tally
    assert Tally.empty(len(case.left), case.accumulator) != tally


def test_only_what_overflows_is_missing_without_emulation():
    tally = Tally.empty(1, Accumulator(8))
    values = np.array([[5, 300, -7]])
    sums = UnlimitedSums(values, np.minimum(values, 0), np.maximum(values, 0))
    tally.take(slice(None), tally.of(sums))
    assert tally.missing.tolist() == [1]


def test_others_are_not_merged():
    with pytest.raises(UsageError, match="different accumulators"):
        Tally.empty(1, Accumulator(8)).merge(Tally.empty(1, Accumulator(9)))
    with pytest.raises(UsageError, match="different accumulators"):
        Tally.empty(1, Accumulator(8)).merge(Tally.empty(2, Accumulator(8)))


def test_a_damaged_file_is_refused():
    arrays = Tally.empty(2, Accumulator(8)).arrays()
    with pytest.raises(InputError, match="acc_min"):
        Tally.from_arrays({**arrays, "acc_min": np.zeros(3, np.int64)}, Accumulator(8))
    with pytest.raises(InputError, match="missing"):
        Tally.from_arrays({k: v for k, v in arrays.items() if k != "missing"}, Accumulator(8))


def test_a_width_that_no_accumulator_has_is_refused():
    with pytest.raises(UsageError, match="65 bits"):
        Tally.empty(1, Accumulator(8)).overflow(65)
