"""Shifts between levels, and running sums that are spilled, against loops in Python's integers."""

from fractions import Fraction
from itertools import product
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer
from tests.accumulators.nodes import model, narrowed
from tests.interpreter.models import quick
from tracer.accumulators.engine import dots
from tracer.accumulators.engine.tile_sums import checked
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms, named
from tracer.accumulators.spec.policy import parse_policy
from tracer.accumulators.statistics.bounds import guaranteed
from tracer.errors import UsageError
from tracer.whatif.options import WhatIfOptions

ROUND = {
    "floor": floor,
    "truncate": int,
    "half-even": round,
    "half-up": lambda number: floor(number + Fraction(1, 2)),
    "half-away": lambda number: (
        floor(number + Fraction(1, 2)) if number > 0 else ceil(number - Fraction(1, 2))
    ),
}


ROUNDINGS = [*ROUND, "stochastic(7)"]


def shifted(total, bits, rounding, taken):
    """A sum without low bits, after so many products of its dot product."""
    if rounding in ROUND:
        return ROUND[rounding](Fraction(total, 1 << bits))
    dropped = Fraction(total, 1 << bits) - (total >> bits)
    return (total >> bits) + (draw(total, bits, 7, taken) < dropped)


def draw(total, bits, seed, taken):
    """A multiple of 2^-bits below 1, by the finaliser of splitmix64."""
    mask = (1 << 64) - 1
    mixed = (total + (taken + 1) * 0x9E3779B97F4A7C15 + seed * 0xD1342543DE82EF95) & mask
    for right, factor in (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB):
        mixed = (mixed ^ mixed >> right) * factor & mask
    return Fraction((mixed ^ mixed >> 31) >> 64 - bits, 1 << bits)


def into(value, bits, overflow):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if overflow == "wrap":
        return (value - low) % 2**bits + low
    return min(max(value, low), high)


class Loop:
    """A sum as hardware adds it, and how many of its steps left a register."""

    def __init__(self):
        self.events = 0

    def put(self, value, bits, overflow="saturate"):
        kept = into(value, bits, overflow)
        self.events += kept != value
        return kept

    def tiles(self, products, bias, size, inner, overflow, shift, rounding, outer):
        """Tiles of products, shifted, and added in units of 2^shift."""
        total = self.put(shifted(bias, shift, rounding, 0), outer)
        for first in range(0, len(products), size):
            tile = 0
            for each in products[first : first + size]:
                tile = self.put(tile + each, inner, overflow)
            taken = min(first + size, len(products))
            total = self.put(total + shifted(tile, shift, rounding, taken), outer)
        return total << shift

    def spilled(self, products, bias, size, inner, overflow, shift, rounding, outer):
        """A sum that is written to memory after `size` products, and read back."""
        total = self.put(bias, outer)
        for first in range(0, len(products), size):
            for each in products[first : first + size]:
                total = self.put(total + each, outer)
            taken = min(first + size, len(products))
            memory = self.put(shifted(total, shift, rounding, taken), inner, overflow)
            total = self.put(memory << shift, outer)
        return total


@st.composite
def cases(draw):
    depth, seed = draw(st.integers(1, 50)), draw(st.integers(0, 2**32))
    random = np.random.default_rng(seed)
    reach = draw(st.sampled_from([2, 20, 128]))
    left = random.integers(-reach, reach, (2, depth)).astype(np.int8)
    right = random.integers(0, 256, (depth, 3)).astype(np.uint8)
    bias = random.integers(-2000, 2000, 2)
    numbers = (draw(st.integers(1, 12)), draw(st.integers(6, 20)),
               draw(st.sampled_from(["saturate", "wrap"])), draw(st.integers(1, 6)),
               draw(st.sampled_from(ROUNDINGS)), draw(st.integers(8, 24)))  # fmt: skip
    return left, right, bias, numbers


def check(spelling, way, case):
    left, right, bias, numbers = case
    size, inner, overflow, shift, rounding, outer = numbers
    order = spelling.format(f"{size}:{inner}:{overflow}:>>{shift}:{rounding}")
    accumulator = Accumulator(outer, order=order)
    expected = np.empty((2, 2, 3), np.int64)
    for row, column in np.ndindex(2, 3):
        loop = Loop()
        products = (left[row].astype(int) * right[:, column].astype(int)).tolist()
        expected[0, row, column] = getattr(loop, way)(products, int(bias[row]), *numbers)
        expected[1, row, column] = loop.events
    block = left, right, bias, Terms(len(right)), accumulator
    for sums in (dots.measure(*block)[1], dots.final_and_clipped(*block)[1]):
        np.testing.assert_array_equal(sums.values, expected[0])
        np.testing.assert_array_equal(sums.events, expected[1])


@quick
@given(cases())
def test_a_shift_makes_the_next_unit_coarser(case):
    check("tiles({})", "tiles", case)


@quick
@given(cases())
def test_a_spill_narrows_a_running_sum(case):
    check("tiles(spill={})", "spilled", case)


def test_one_shift_runs_in_tiles():
    left, right = np.ones((4, 64), np.int8), np.ones((64, 9), np.int8)
    matrices = checked(left, right, None, Terms(64))
    fast, slow = ("tiles(8:16:>>4)", "tiles(8:16:>>4:half-up,2)"), ("tiles(2:16:>>4,2:16:>>1)",)
    for order, is_fast in [(each, True) for each in fast] + [(each, False) for each in slow]:
        accumulator = Accumulator(18, order=order)
        assert dots.has_fast_kernel(matrices, Terms(64), accumulator) is is_fast, order


def test_a_node_has_its_scale_and_counts_in_the_unit_of_its_register():
    """Tiles of 2 x 50 x 2 = 200 are 12 units of 16; 5 of them leave 6 bits, which hold 31."""
    x, w = np.full((1, 10), 50, np.int8), np.full((10, 1), 2, np.int8)
    proto = model("(int8[1,10] x) => (int32[r,c] y) { y = MatMulInteger (x, w) }", w=w)
    output, narrowing = narrowed(proto, parse_policy("6(order=tiles(2:16:>>4))"), x)
    (sums,) = narrowing.accumulations().values()
    assert output.item() == 31 << 4
    tally = sums.tally
    assert tally.saturation_events.tolist() == [3]
    assert (tally.acc_max.tolist(), tally.bits_observed.tolist()) == ([60], [7])
    assert tally.overflow(6).persistent_outputs.tolist() == [1]
    assert tally.overflow(7).overflow_outputs.tolist() == [0]
    assert tally.max_abs_error.tolist() == [1000 - (31 << 4)]
    assert sums.guaranteed == 9  # 5 x (2 x -256 >> 4) = -160
    assert sums.guaranteed_inner == 10


@quick
@given(
    st.lists(st.integers(-9, 9), min_size=1, max_size=8),
    st.tuples(st.integers(-9, 0), st.integers(0, 9)),
    st.sampled_from(["tiles(3:{}:>>2:half-even)", "tiles(2:64:>>1,2:{}:>>1:half-up)",
                     "tiles(spill=3:{}:>>2:half-away)", "tiles(2:64,spill=2:{})"]),
)  # fmt: skip
def test_no_width_less_than_those_of_the_bounds_suffices(weights, ends, text):
    rows, terms, bias = np.array([weights]), Terms(len(weights)), np.array([5])
    inputs = np.array(list(product(ends, repeat=len(weights)))).T
    bounds = guaranteed(rows, *ends, bias, terms, Accumulator(32, order=named(text.format(64))))
    (outer,), (inner,) = bounds.bits, bounds.inner_bits
    sums, _ = dots.measure(rows, inputs, bias, terms, Accumulator(32, order=text.format(64)))
    assert (sums.low.min(), sums.high.max()) == (bounds.low[0], bounds.high[0])

    def events(bits, narrow):
        accumulator = Accumulator(bits, order=text.format(narrow))
        return dots.measure(rows, inputs, bias, terms, accumulator)[1].events.sum()

    if "64:>>1" not in text and "2:64" not in text:
        assert events(outer, inner) == 0
        assert outer == 2 or events(outer - 1, inner) > 0
        assert inner == 2 or events(outer, inner - 1) > 0


@pytest.mark.parametrize(
    "spelling",
    ["tiles(64:16:>>4)", "tiles(64:16:wrap:>>4:half-up)", "tiles(spill=256:16)",
     "tiles(2:18,64x2:20:>>2,spill=8:16:zero:>>3:half-even)", "tiles(1:64:>>6)",
     "tiles(4:16:>>3:stochastic(7),spill=8:u16:>>2:stochastic(0))"],
)  # fmt: skip
def test_levels_are_spelled_as_they_are_read(spelling):
    assert str(named(spelling)) == spelling
    (entry,) = parse_policy(f"18(order={spelling})").accumulators
    assert str(entry.value) == f"18(order={spelling})"
    assert Accumulator.from_plain(entry.value.to_plain()) == entry.value


def test_a_shift_without_a_width_is_exact():
    assert named("tiles(8:>>3)") == named("tiles(8:64:>>3)")


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("tiles(8:16:>>0)", "a shift by 0 bits. It is by 1 to 32"),
        ("tiles(8:16:>>4:up)", "rounding 'up' of a shift. It is one of half-even"),
        ("tiles(8:16:>>4:floor(1))", "is not a level of tiles"),
        ("tiles(8:16:half-even)", "'8:16:half-even' is not a level of tiles"),
        ("tiles(4,8:16:>>4)", "in two units"),
        ("tiles(spill=8)", "'8' is not a spill"),
        ("tiles(spill=8x2:16)", "is not a spill"),
        ("tiles(spill=8:16,2:16)", "is not a level"),
    ],
)
def test_what_cannot_be_is_refused(order, message):
    with pytest.raises(UsageError, match=message):
        named(order)


@quick
@given(cases(), st.integers(1, 6))
def test_draws_are_those_of_the_seed_however_sums_are_cut(case, size):
    left, right, bias, (_, inner, _, shift, _, outer) = case
    terms, results = Terms(len(right)), []
    for seed in (7, 7, 8):
        order = f"tiles({size}:{inner}:>>{shift}:stochastic({seed}),spill=2:20:>>1:stochastic)"
        accumulator = Accumulator(outer, order=order)
        whole = dots.measure(left, right, bias, terms, accumulator)
        part = dots.measure(left[1:], right[:, 1:2], bias[1:], terms, accumulator)
        assert part[1].values.item() == whole[1].values[1, 1]
        bounds = guaranteed(left, 0, 255, bias, terms, accumulator)
        assert (bounds.low <= whole[0].low.min(1)).all()
        assert (bounds.high >= whole[0].high.max(1)).all()
        results.append(whole[1].values)
    np.testing.assert_array_equal(results[0], results[1])


def test_sums_are_rounded_up_as_often_as_the_dropped_part_says():
    """Tiles of one product, 0 to 15 sixteenths, each at another place of its sum."""
    products = np.tile(np.arange(16, dtype=np.int64), (4000, 1))
    accumulator = Accumulator(32, order="tiles(1:16:>>4:stochastic(3))")
    ones = np.ones((1, 4000), np.int64)
    ups = dots.measure(ones, products, None, Terms(4000), accumulator)[1].values[0] >> 4
    share = np.arange(16) / 16
    assert (np.abs(ups / 4000 - share) <= 5 * np.sqrt(share * (1 - share) / 4000)).all()


@pytest.mark.nightly
def test_whole_commands_know_shifts_and_spills():
    lenet = "models/lenet/lenet.int8.onnx"
    tries = "32,20(order=tiles(64:20:>>4)),32(order=tiles(spill=64:9:>>2))"
    sweep = tracer.what_if(lenet, tries, "digits", options=WhatIfOptions(limit=8))
    exact, shifted_sums, spilled = (row.score for row in sweep.rows)
    assert exact == shifted_sums > spilled
    nodes = tracer.interpret(lenet, accumulator="32(order=tiles(64:32:>>4))", batch=2).nodes
    sums = nodes[nodes["outputs_changed"].notna()]
    assert (sums["outputs_changed"] > 0).any() and sums["bits_guaranteed_inner"].notna().all()


@quick
@given(cases(), st.booleans())
def test_an_unsigned_register_holds_nothing_below_0(case, is_spill):
    left, right, _, (size, inner, overflow, shift, rounding, outer) = case
    level = f"{size}:u{inner}:{overflow}:>>{shift}:{rounding}"
    order = f"tiles({'spill=' * is_spill}{level})"
    top, events = (1 << inner) - 1, 0

    def kept(value):
        return value & top if overflow == "wrap" else min(max(value, 0), top)

    products = (left[0].astype(int) * right[:, 0].astype(int)).tolist()
    loop, events, total = Loop(), 0, 0
    for first in range(0, len(products), size):
        part, tile, taken = products[first : first + size], 0, min(first + size, len(products))
        if is_spill:
            for each in part:
                total = loop.put(total + each, outer)
            memory = shifted(total, shift, rounding, taken)
            events += kept(memory) != memory
            total = loop.put(kept(memory) << shift, outer)
            continue
        for each in part:
            events += kept(tile + each) != tile + each
            tile = kept(tile + each)
        total = loop.put(total + shifted(tile, shift, rounding, taken), outer)
    accumulator = Accumulator(outer, order=order)
    assert str(accumulator.order) == str(named(order)) and f":u{inner}" in str(accumulator)
    _, sums = dots.measure(left[:1], right[:, :1], None, Terms(len(right)), accumulator)
    assert sums.values.item() == (total if is_spill else total << shift)
    assert sums.events.item() == events + loop.events


def test_the_width_of_an_unsigned_register_is_known_where_no_sum_is_below_0():
    for weights, bits in (([1, 2], 10), ([1, -1], 65)):
        accumulator = Accumulator(32, order="tiles(2:u8)")
        bounds = guaranteed(np.array([weights]), 0, 255, None, Terms(2), accumulator)
        assert bounds.inner_bits.tolist() == [bits]
    with pytest.raises(UsageError, match="a register u8:symmetric in a symmetric range"):
        named("tiles(8:u8:symmetric)")
