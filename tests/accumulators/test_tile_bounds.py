"""Bounds of tiles by A2Q, A2Q+ and AXE: worst inputs by signs, and published formulas."""

from itertools import product
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.accumulators import a2q
from tests.interpreter.models import quick
from tracer.accumulators.engine import oracle
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms, named
from tracer.accumulators.statistics.bounds import (
    a2q_bits,
    a2q_plus_bits,
    axe_bits,
    guaranteed,
    outer_bits,
)
from tracer.errors import UsageError

WEIGHTS = st.lists(st.integers(-40, 40), min_size=1, max_size=8)
RANGES = st.tuples(st.integers(-9, 0), st.integers(1, 15))


def clips(weights, ends, bits, tile):
    """Overflows of tiles in symmetric registers, for all inputs at the ends of the range."""
    inputs = np.array(list(product(ends, repeat=len(weights)))).T
    order = named(f"tiles({tile}:{bits}:symmetric)")
    accumulator = Accumulator(64, order=order)
    rows = np.array([weights])
    return oracle.observe(rows, inputs, None, Terms(len(weights)), accumulator).clips.sum()


@quick
@given(WEIGHTS, RANGES, st.integers(1, 8))
def test_no_input_overflows_the_width_of_axe_and_some_input_one_bit_less(weights, ends, tile):
    bits = int(axe_bits(np.array([weights]), *ends, tile).max())
    assert clips(weights, ends, max(bits, 2), tile) == 0
    assert bits <= 2 or clips(weights, ends, bits - 1, tile) > 0


@pytest.mark.parametrize("bits", range(4, 12))
@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("signs", [(1,), (1, -1)])
def test_one_unit_more_than_a2q_allows_overflows(bits, size, signs):
    """Signed inputs of N bits reach 2^(N-1) times the norm. The norm is shared out to the terms."""
    for input_bits in range(1, bits):
        norm = int(a2q.weight_budget(bits, input_bits, True))
        if norm < size:
            continue
        weights = [norm // size + (k < norm % size) for k in range(size)]
        weights = [weight * signs[k % len(signs)] for k, weight in enumerate(weights)]
        ends = (-(1 << input_bits - 1), (1 << input_bits - 1) - 1)
        assert a2q_bits(np.array([weights]), input_bits, True).tolist() == [[bits]]
        assert clips(weights, ends, bits, "all") == 0
        # one unit more, and the sign of each that reaches the lowest input
        more = [abs(weight) for weight in weights]
        more[0] += 1
        assert a2q_bits(np.array([more]), input_bits, True).min() == bits + 1
        assert clips(more, ends, bits, "all") > 0


@pytest.mark.parametrize("bits", range(4, 14))
@pytest.mark.parametrize("input_bits", [1, 2, 4, 8])
def test_one_unit_more_than_a2q_plus_allows_overflows(bits, input_bits):
    """Centred weights, half of them negative; one unit on each side keeps them centred."""
    half = int(a2q.centred_weight_budget(bits, input_bits)) // 2
    ends = (0, (1 << input_bits) - 1)
    for size in (half, half + 1):
        weights = [size // 2, size - size // 2, -size]
        fits = size == half
        assert (a2q_plus_bits(np.array([weights]), input_bits).max() <= bits) == fits
        assert (clips(weights, ends, bits, "all") == 0) == fits


@quick
@given(st.lists(WEIGHTS, min_size=1, max_size=3), st.integers(1, 8), st.booleans(),
       st.integers(1, 9))  # fmt: skip
def test_tiles_have_the_widths_of_the_formulas(rows, input_bits, signed, tile):
    depth = max(map(len, rows))
    weights = np.array([row + [0] * (depth - len(row)) for row in rows])
    widths = a2q_bits(weights, input_bits, signed, tile)
    assert widths.shape == (len(rows), -(-depth // tile))
    for (row, column), bits in np.ndenumerate(widths):
        norm = int(np.abs(weights[row, column * tile : (column + 1) * tile]).sum())
        assert bits == (a2q.weight_bound(norm, input_bits, signed) if norm else 1)


@quick
@given(WEIGHTS, st.integers(1, 8), st.integers(1, 9))
def test_centred_tiles_have_the_width_of_a2q_plus(weights, input_bits, tile):
    tiles = np.array([weights[:tile], [-each for each in weights[:tile]]]).T.reshape(1, -1)
    (bits,) = a2q_plus_bits(tiles, input_bits).ravel()
    norm = int(np.abs(tiles).sum())
    assert max(bits, 1) == (a2q.centred_weight_bound(norm, input_bits) if norm else 1)


@quick
@given(WEIGHTS, st.integers(1, 8), st.integers(1, 9))
def test_axe_is_at_most_a2q_and_the_exact_width_at_most_axe(weights, input_bits, tile):
    rows, high = np.array([weights]), (1 << input_bits) - 1
    order = named(f"tiles({tile}:64:symmetric)")
    exact = guaranteed(rows, 0, high, None, Terms(len(weights)), Accumulator(64, order=order))
    axe = axe_bits(rows, 0, high, tile)
    assert (axe <= a2q_bits(rows, input_bits, False, tile)).all()
    assert exact.inner_bits.max() <= max(axe.max(), 2)


@given(st.integers(2, 30), st.integers(1, 5000))
def test_the_outer_width_holds_every_sum_of_tiles(bits, tiles):
    outer = outer_bits(bits, tiles)
    assert outer == bits + ceil(log2(tiles))
    assert tiles * (2 ** (bits - 1) - 1) <= 2 ** (outer - 1) - 1


def test_what_the_bounds_do_not_take():
    with pytest.raises(UsageError, match="do not add up to 0"):
        a2q_plus_bits(np.array([[1, -1, 2]]), 8, 2)
    with pytest.raises(UsageError, match="inputs from 1 to 3"):
        axe_bits(np.array([[1]]), 1, 3)
