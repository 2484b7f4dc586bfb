"""Two levels of integers against loops in Python: sums, events, spellings and bounds of tiles."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accumulators.dots import emulate
from tests.accumulators.nodes import model, narrowed
from tests.interpreter.models import quick
from tracer.accumulators.engine import dots, oracle
from tracer.accumulators.spec import Register, kinds
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Level, Terms, Tiles, named
from tracer.accumulators.spec.policy import parse_policy
from tracer.accumulators.statistics.bounds import guaranteed
from tracer.errors import UsageError


def two_level(text):
    return kinds.parse(text, Accumulator(32)).accumulator


def into(value, bits, overflow):
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if overflow == "wrap":
        return (value - low) % 2**bits + low
    return min(max(value, low), high)


def summed(products, inner, tile, outer, overflows, in_pairs):
    """The sum, and how many additions left a register."""
    total, events = 0, 0

    def add(sum_, term, level):
        nonlocal events
        bits, overflow = (inner, outer)[level], overflows[level]
        result = into(sum_ + term, bits, overflow)
        events += result != sum_ + term
        return result

    for first in range(0, len(products), tile):
        block, spilled = products[first : first + tile], 0
        for k in range(0, len(block), 2 if in_pairs else 1):
            term = block[k]
            if in_pairs:
                term = 0
                for each in block[k : k + 2]:
                    term = add(term, each, 0)
            spilled = add(spilled, term, 0)
        total = add(total, spilled, 1)
    return total, events


@st.composite
def cases(draw):
    in_pairs = draw(st.booleans())
    tile = draw(st.integers(1, 20)) * (2 if in_pairs else 1)
    overflows = draw(st.tuples(*[st.sampled_from(["saturate", "wrap"])] * 2))
    numbers = draw(st.integers(4, 18)), tile, draw(st.integers(6, 24))
    depth, seed = draw(st.integers(1, 70)), draw(st.integers(0, 2**32))
    random = np.random.default_rng(seed)
    reach = draw(st.sampled_from([2, 20, 128]))
    left = random.integers(-reach, reach, (2, depth)).astype(np.int8)
    right = random.integers(0, 256, (depth, 3)).astype(np.uint8)
    return left, right, numbers, overflows, in_pairs


@quick
@given(cases())
def test_two_levels_are_a_loop_over_tiles(case):
    left, right, (inner, tile, outer), overflows, in_pairs = case
    pairs = ",pairs" if in_pairs else ""
    accumulator = two_level(f"two-level({inner},{tile},{outer},{'/'.join(overflows)}{pairs})")
    block = left, right, None, Terms(len(right)), accumulator
    expected = [
        [summed([int(a) * int(b) for a, b in zip(row, column, strict=True)],
                inner, tile, outer, overflows, in_pairs)
         for column in right.T]
        for row in left
    ]  # fmt: skip
    values, events = np.moveaxis(np.array(expected), -1, 0)
    for sums in (oracle.emulate(*block), emulate(*block), dots.measure(*block)[1],
                 dots.final_and_clipped(*block)[1]):  # fmt: skip
        np.testing.assert_array_equal(sums.values, values)
        np.testing.assert_array_equal(sums.events, events)


@pytest.mark.nightly
def test_a_node_counts_tiles_that_overflow():
    """Two tiles of 100 saturate at 127, the third holds 100: 354 in place of 500."""
    x, w = np.full((1, 5), 50, np.int8), np.full((5, 1), 2, np.int8)
    proto = model("(int8[1,5] x) => (int32[r,c] y) { y = MatMulInteger (x, w) }", w=w)
    output, narrowing = narrowed(proto, parse_policy("two-level(8,2,16)"), x)
    (sums,) = narrowing.accumulations().values()
    assert output.item() == 127 + 127 + 100
    assert sums.tally.saturation_events.tolist() == [2]
    assert sums.tally.overflow(16).overflow_outputs.tolist() == [1]
    assert sums.tally.max_abs_error.tolist() == [146]
    assert sums.guaranteed_inner == 10  # 2 x 2 x -128 = -512
    assert sums.guaranteed_inner_channels.tolist() == [10]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two-level(16,256,32)", Accumulator(32, order=Tiles((Level(256, Register(16)),)))),
        ("two-level(inner=16,tile=256,outer=32)", two_level("two-level(16,256,32)")),
        ("two-level(outer=32, tile=256, inner=16)", two_level("two-level(16,256,32)")),
        ("two-level(16,tile=256,outer=32)", two_level("two-level(16,256,32)")),
        (
            "two-level(16,all,32,wrap)",
            Accumulator(32, "wrap", Tiles((Level(None, Register(16, "wrap")),))),
        ),
        (
            "two-level(16,256,32,saturate/wrap,pairs)",
            Accumulator(32, "wrap", named("tiles(2:16,128:16)")),
        ),
        (
            "two-level(16,8,32,pairs,overflow=symmetric)",
            Accumulator(32, "symmetric", named("tiles(2:16:symmetric,4:16:symmetric)")),
        ),
    ],
)
def test_spellings(text, expected):
    assert two_level(text) == expected
    assert kinds.parse(str(expected), Accumulator(32)).accumulator == expected


def test_options_count_for_both_levels():
    parsed = kinds.parse("two-level(16,256,32)", Accumulator(8, "wrap", bias="last")).accumulator
    assert parsed == Accumulator(32, "wrap", named("tiles(256:16:wrap)"), bias="last")
    magnitude = kinds.parse("two-level(16,256,32)", Accumulator(8, convention="magnitude"))
    assert magnitude.accumulator.order == named("tiles(256:17)")
    ending = kinds.parse("two-level(16,256,32)", Accumulator(8, "error")).accumulator
    assert (ending.overflow, ending.order) == ("error", named("tiles(256:16)"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("two-level", "'two-level' lacks a number. It is two-level"),
        ("two-level(16,256)", "lacks a number"),
        ("two-level(16,256,32", "lacks a number|is not an accumulator"),
        ("two-level(16,256,32,wrap,pairs,9)", "'9' in two-level"),
        ("two-level(16,256,32,inner=3)", "'inner=3' in two-level"),
        ("two-level(16,256,32,tiles=3)", "'tiles=3' in two-level"),
        ("two-level(x,256,32)", "inner = 'x' in two-level"),
        ("two-level(16,0,32)", "a tile of 0"),
        ("two-level(1,256,32)", r"an inner register of 1 bit\."),
        ("two-level(16,256,65)", "an accumulator of 65 bits"),
        ("two-level(16,255,32,pairs)", "a tile of 255 terms in pairs. Its size is even"),
        ("two-level(16,256,32,clip)", "overflow 'clip'"),
        ("two-level(16,256,32,error)", "overflow 'error' of an inner register"),
        ("18(order=tiles(256:16:x))", "overflow 'x' of an inner register"),
        ("18(order=tiles(256x))", "'256x' is not a level of tiles"),
        ("18(order=tiles)", "has no level"),
    ],
)
def test_what_cannot_be_is_said(text, message):
    with pytest.raises(UsageError, match=message):
        parse_policy(text)


@given(
    st.lists(
        st.builds(
            Level,
            st.none() | st.integers(1, 999),
            st.none() | st.builds(Register, st.integers(2, 64),
                                  st.sampled_from(["saturate", "symmetric", "wrap", "zero"])),
            st.integers(1, 99),
        ),
        min_size=1,
        max_size=3,
    )
)  # fmt: skip
def test_tiles_are_spelled_as_they_are_read(levels):
    order = Tiles(tuple(levels))
    assert named(str(order)) == order


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 99))
def test_every_term_is_in_one_group(size, stride, count):
    groups = Level(size, stride=stride).groups(count)
    assert sorted(groups[groups >= 0].tolist()) == list(range(count))
    for group in groups.tolist():
        inside = [each for each in group if each >= 0]
        assert np.diff(inside).tolist() == [stride] * (len(inside) - 1)
        assert len(inside) <= size


@quick
@given(
    st.lists(st.integers(-9, 9), min_size=1, max_size=9),
    st.tuples(st.integers(-9, 0), st.integers(0, 9)),
    st.integers(1, 5),
    st.sampled_from(["tiles({}:{}:{})", "tiles(2:{1}:{2},{0}:{1}:{2})"]),
    st.sampled_from(["saturate", "wrap"]),
)
def test_the_inner_width_is_the_least_that_no_input_overflows(weights, ends, tile, text, overflow):
    """Inputs at the ends of their range: none overflows the width, some one bit less."""
    rows, terms = np.array([weights]), Terms(len(weights))
    inputs = np.array(list(product(ends, repeat=len(weights)))).T

    def clips(bits):
        order = named(text.format(tile, bits, overflow))
        return oracle.observe(rows, inputs, None, terms, Accumulator(32, order=order)).clips.sum()

    accumulator = Accumulator(32, order=named(text.format(tile, 64, overflow)))
    (bits,) = guaranteed(rows, *ends, None, terms, accumulator).inner_bits
    assert clips(bits) == 0
    assert bits == 2 or clips(bits - 1) > 0


def test_sums_without_registers_have_no_inner_width():
    limits = guaranteed(np.ones((2, 3), int), 0, 1, None, Terms(3), Accumulator(8))
    assert limits.inner_bits is None
