"""The compiled sums against the oracle: every overflow, order, width and kind of operand."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accumulators.dots import emulate, observe
from tests.examples import at_night, examples
from tracer.accumulators.engine import dots, oracle
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Order, Stage, Terms, named
from tracer.errors import ModelError
from tracer.interpreter.numeric import parallel

ORDERS = ("sequential", "channelwise", "chunked(5)", "tree", "lanes(4)", "maddubs(4)", "sorted",
          "tiles(5:12:symmetric)", "tiles(7:14:wrap)", "tiles(3:10:zero)", "tiles(3:8,2:9:wrap)",
          "tiles(2x4:16:wrap)", "tiles(all:17)", "tiles(4,2:15)",
          "positionwise", "positionwise(2)", "positionwise(tiles(2:12,2))")  # fmt: skip
OVERFLOWS = ("saturate", "symmetric", "wrap", "zero", "error")
ROUNDINGS = ("half-even", "half-away", "half-up", "floor", "truncate", "stochastic(3)")
RANGES = {  # the lowest and the highest number of an operand
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int24": (-(2**23), 2**23 - 1),
    "bit": (-1, 1),
}
STORED = {"int4": "int8", "uint4": "uint8", "int24": "int64", "bit": "int8"}


@dataclass(frozen=True, slots=True)
class Block:
    """Operands, and the accumulator that sums them."""

    left: np.ndarray
    right: np.ndarray
    bias: np.ndarray | None
    terms: Terms
    accumulator: Accumulator

    def count(self) -> int:
        """Checks everything against the oracle; returns the number of sums."""
        case = (self.left, self.right, self.bias, self.terms, self.accumulator)
        exact, clipped = oracle.observe(*case), oracle.emulate(*case)
        unlimited, narrow = dots.measure(*case)
        final, narrow_again = dots.final_and_clipped(*case)
        np.testing.assert_array_equal(final, exact.final)
        for sums in (unlimited, observe(*case)):
            for name in ("final", "low", "high"):
                np.testing.assert_array_equal(getattr(sums, name), getattr(exact, name), name)
            clips = np.zeros_like(exact.final) if sums.clips is None else sums.clips
            np.testing.assert_array_equal(clips, exact.clips)
        for sums in (emulate(*case), narrow, narrow_again):
            np.testing.assert_array_equal(sums.values, clipped.values, "values")
            np.testing.assert_array_equal(sums.events, clipped.events, "events")
        return exact.final.size


def operand(random, kind, shape):
    low, high = RANGES[kind]
    return random.integers(low, high, shape, STORED.get(kind, kind), endpoint=True)


def block(seed, kinds, shape, accumulator, bias_bits):
    """`shape` is rows, channels, window, columns; sums fit 62 bits."""
    random = np.random.default_rng(seed)
    rows, channels, window, columns = shape
    left = operand(random, kinds[0], (rows, channels * window))
    right = operand(random, kinds[1], (channels * window, columns))
    bias = None
    if bias_bits is not None:
        bias = random.integers(-(2**bias_bits), 2**bias_bits, rows)
    return Block(left, right, bias, Terms(channels, (window,)), accumulator)


def accumulators():
    widths = st.integers(2, 63) | st.integers(8, 24)
    return st.builds(
        Accumulator,
        widths,
        st.sampled_from(OVERFLOWS),
        st.sampled_from(ORDERS).map(named),
        st.none() | widths,
        st.sampled_from(("first", "last")),
        st.sampled_from(("twos-complement", "magnitude")),
        product_shift=st.just(0) | st.integers(0, 32),
        product_rounding=st.sampled_from(ROUNDINGS),
    )


PAIRS = [
    pair
    for pair in [(a, b) for a in RANGES for b in RANGES]
    if max(-RANGES[pair[0]][0], RANGES[pair[0]][1]) * max(-RANGES[pair[1]][0], RANGES[pair[1]][1])
    < 2**48
]


@pytest.mark.long
@examples(150)
@given(
    st.integers(0, 2**32),
    st.sampled_from(PAIRS),
    st.tuples(st.integers(0, 14), st.integers(0, 40), st.sampled_from((1, 9)), st.integers(0, 40)),
    accumulators(),
    st.none() | st.integers(1, 40),
)
def test_any_block_is_summed_as_the_oracle_does(seed, kinds, shape, accumulator, bias_bits):
    block(seed, kinds, shape, accumulator, bias_bits).count()


@examples(100)
@given(
    st.integers(0, 2**32),
    st.sampled_from([("int8", "uint8"), ("int8", "int8"), ("int4", "uint4"), ("int16", "int16")]),
    st.tuples(st.integers(1, 14), st.integers(1, 12), st.integers(2, 25), st.integers(1, 70)),
    st.sampled_from(("channelwise", "chunked(8)", "chunked(33)", "lanes(3)")),
    st.integers(-4, 2),
    st.sampled_from(("saturate", "symmetric")),
)
def test_groups_of_terms_that_may_or_may_not_stay_within(seed, kinds, shape, order, near, overflow):
    """Widths near what a group of terms needs, so that some rows can leave the range there."""
    products = sum(np.log2(RANGES[kind][1] + 1) for kind in kinds)
    width = int(np.clip(products + np.log2(shape[2]) + near, 2, 64))
    block(seed, kinds, shape, Accumulator(width, overflow, named(order)), 8).count()


@pytest.mark.nightly
@pytest.mark.long
def test_a_million_sums():
    """Few blocks and large ones: most variants take code of their own, which is soon compiled."""
    random = np.random.default_rng(5)
    count = 0
    for number in range(28):
        kinds = PAIRS[random.integers(len(PAIRS))]
        deep = number % 12 == 0
        rows, columns = (3, 5) if deep else (int(random.integers(40, 60)), 880)
        channels = int(random.choice([997, 5000])) if deep else int(random.integers(1, 16))
        # Half of the widths are near the size of the sums, where most is decided.
        near = np.log2(channels) + sum(np.log2(max(1, RANGES[kind][1])) for kind in kinds)
        width = int(np.clip(near + random.integers(-6, 3), 2, 64))
        bits = int(random.integers(2, 65)) if number % 2 else width
        product = None if number % 3 else int(random.integers(2, 65))
        accumulator = Accumulator(
            bits,
            OVERFLOWS[random.integers(5)],
            named(ORDERS[number % 20] if number % 20 < len(ORDERS) else "sequential"),
            product,
            "last" if number % 5 < 2 else "first",
        )
        bias_bits = None if number % 4 == 3 else int(random.integers(1, 30))
        count += block(number, kinds, (rows, channels, 1, columns), accumulator, bias_bits).count()
    assert count >= 1_000_000


@pytest.mark.one_in(5)
@pytest.mark.parametrize("bits", at_night(range(2, 65), but=[*range(2, 65, 3), 31, 32, 63]))
@pytest.mark.parametrize("overflow", ["saturate", "wrap", "zero"])
def test_every_width(bits, overflow):
    kinds = ("int8", "uint8") if bits < 22 else ("int32", "int16")
    block(bits, kinds, (7, 33, 1, 37), Accumulator(bits, overflow), 12).count()


@pytest.mark.parametrize(
    ("order", "kinds"),
    at_night(
        product(
            ("sequential", "lanes(16)"), (("int8", "uint8"), ("int16", "int16"), ("int8", "int32"))
        ),
        but=[("sequential", ("int8", "uint8")), ("lanes(16)", ("int8", "int32"))],
    ),
)
def test_large_blocks_on_two_threads(kinds, order):
    large = block(3, kinds, (25, 70, 9, 300), Accumulator(20, order=named(order)), 12)
    case = (large.left, large.right, large.bias, large.terms, large.accumulator)
    alone = emulate(*case), observe(*case)
    with parallel.threads(2):
        shared = emulate(*case), observe(*case)
    for one, other in zip(alone, shared, strict=True):
        for name in one.__slots__:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    exact = large.left.astype(np.int64) @ large.right.astype(np.int64) + large.bias[:, None]
    np.testing.assert_array_equal(alone[1].final, exact)


@pytest.mark.parametrize(
    ("products", "overflow", "order", "expected"),
    [
        ([100, 100, -150], "saturate", "sequential", -23),
        ([100, -150, 100], "saturate", "sequential", 50),
        ([100, 100, -150], "saturate", "sorted", 50),
        ([100, 100, -150], "wrap", "sequential", 50),
        ([-100, -100, 150], "saturate", "sequential", 22),
    ],
)
def test_order_witnesses(products, overflow, order, expected):
    case = (np.array([products]), np.ones((3, 1), np.int8), None, Terms(3))
    accumulator = Accumulator(8, overflow, named(order))
    assert emulate(*case, accumulator).values.item() == expected
    assert dots.final_and_clipped(*case, accumulator)[1].values.item() == expected


@pytest.mark.parametrize(("bias", "expected"), [("first", 107), ("last", 117)])
def test_the_bias_is_met_first_or_last(bias, expected):
    case = (np.array([[10, -20]]), np.ones((2, 1), int), np.array([127]), Terms(2))
    assert emulate(*case, Accumulator(8, bias=bias)).values.item() == expected


@dataclass(frozen=True, slots=True)
class Backwards(Order):
    """A user's own: the last term first."""

    def stages(self, terms):
        return (Stage(np.arange(terms.count)[::-1][None]),)


@dataclass(frozen=True, slots=True)
class Shared(Order):
    """A user's own, and no tree: the sum of all terms is met twice, and one that nothing uses."""

    def stages(self, terms):
        whole = np.arange(terms.count)
        return Stage(np.stack([whole, whole])), Stage(np.array([[0, -1, 0]]))


@dataclass(frozen=True, slots=True)
class Largest(Order):
    """A user's own, by the data: large terms first."""

    reorders = True

    def stages(self, terms):
        return (Stage(np.arange(terms.count)[None]),)

    def arrange(self, products, start):
        return -np.sort(-products, -1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("order", [Backwards(), Shared(), Largest()])
@pytest.mark.parametrize("overflow", ["saturate", "wrap"])
def test_an_order_of_ones_own(order, overflow):
    for bits in (9, 13, 17, 30):
        shape = (5, 21, 1, 30)
        block(bits, ("int8", "uint8"), shape, Accumulator(bits, overflow, order), 8).count()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kinds", [("int8", "uint8"), ("int4", "uint4"), ("int16", "uint16")])
@pytest.mark.parametrize("share", [1.0, 0.01])
def test_operands_at_their_ends(kinds, share):
    """Runs of extremes reach both ends of every range, where rounding and wrapping would show."""
    random = np.random.default_rng(1)
    left, right = (random.choice(RANGES[kind], size) for kind, size in
                   zip(kinds, [(13, 300), (300, 70)], strict=True))  # fmt: skip
    left *= random.random(left.shape) < share
    for bits in (8, 13, 15, 16, 17, 31, 32):
        for overflow in ("saturate", "symmetric"):
            Block(left, right, None, Terms(300), Accumulator(bits, overflow)).count()


@pytest.mark.parametrize(
    ("left", "right", "bias", "terms", "says"),
    [
        (np.ones((2, 3), int), np.ones((4, 2), int), None, 3, "cannot be multiplied"),
        (np.ones((2, 3), int), np.ones(3, int), None, 3, "cannot be multiplied"),
        (np.ones((2, 3), int), np.ones((3, 2), int), None, 4, "not 3 terms"),
        (np.ones((2, 3), int), np.ones((3, 2), int), np.ones(3, int), 3, "bias of shape"),
        (np.ones((2, 3)), np.ones((3, 2), int), None, 3, "float64"),
        (np.ones((2, 3), int), np.ones((3, 2), int), np.ones(2), 3, "bias operand"),
        (np.full((1, 1), 2**31), np.full((1, 1), 2**31), None, 1, "2\\^62"),
        (np.zeros((1, 1), int), np.zeros((1, 1), int), np.array([-(2**62)]), 1, "2\\^62"),
        (np.full((1, 2), 2**63, np.uint64), np.ones((2, 1), int), None, 2, "2\\^62"),
    ],
)
@pytest.mark.parametrize("what", [dots.measure, dots.final_and_clipped, observe, emulate])
def test_what_the_kernels_cannot_sum_is_refused(what, left, right, bias, terms, says):
    with pytest.raises(ModelError, match=says):
        what(left, right, bias, Terms(terms), Accumulator(8))


def test_large_numbers_that_do_not_meet_are_summed():
    left, right = np.array([[2**40, 1]]), np.array([[1, 0], [2**40, 2**40]])
    Block(left, right, None, Terms(2), Accumulator(42)).count()
