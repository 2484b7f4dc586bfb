"""Defines in numpy what block multiply-adds compute, step by step.

It is slow and plain. Tests compare the compiled kernels with it, bit by bit. `spec.block_fma`
explains the rules. A rule takes the factors of a block of products, (M, k) and (k, P), float64, and
the sum (M, P) before. It returns the sum, with no more than one rounding left, and whether each
product (M, k, P) has bits in it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count, repeat
from typing import assert_never

import numpy as np

from tracer.accumulators.floats import casting
from tracer.accumulators.floats.casting import State, odd_sum, parted, unscaled
from tracer.accumulators.spec.block_fma import SINGLE, BlockFma, Rule
from tracer.accumulators.spec.float_accumulator import FloatFormat, float_format
from tracer.support.types import Array

_LIMB = 40
"""Bits of a digit of an exact sum: some hundred digits are added before one needs 64 bits."""
_LOWEST, _HIGHEST = -300, 260
"""Exponents of the bits that products of float32 can have."""
_SUM, _KEPT = 24, 31
"""Bits of fraction of C, and of the sum of products before C is added, in CDNA3."""
_DROPPED = 25
"""C is dropped where its exponent is lower by more, in CDNA3 with fp8."""
_NO_EXPONENT = -(1 << 11)
"""Below the exponent of any term other than 0."""
_SCALE = float_format("fp8-e4m3")
"""The format of the scales of nvfp4."""


def blocks(
    left: Array, right: Array, start: Array, accumulator: BlockFma, seed: int = 0,
    indices: Array | None = None,
) -> State:  # fmt: skip
    """Sums `left` (M, K) times `right` (K, P), float64, after `start` (M, P).

    Operands with `scaling` are scaled numbers. The draws of stochastic rounding depend on `indices`
    (M, P); step n is the rounding of block n.
    """
    if accumulator.scaling == "tiles":
        return tiled(left, right, start, accumulator, blocks)
    state = State.beginning(start)
    random: Iterator[Array | None] = repeat(None)
    if indices is not None:
        outputs = casting.draw_words(casting.draw_key(accumulator.rounding.seed, seed), indices)
        random = (casting.draws_at_step(outputs, step) for step in count())
    total = state.put(start, accumulator.register)
    size = accumulator.promote or max(left.shape[1], 1)
    for first in range(0, left.shape[1], size):
        part = slice(first, first + size)
        value = np.zeros_like(start) if accumulator.promote else total
        value = _chained(state, left[:, part], right[part], value, accumulator, random)
        total = state.put(odd_sum(total, value), SINGLE) if accumulator.promote else value
    state.values = total
    return state


def _chained(
    state: State, left: Array, right: Array, value: Array, a: BlockFma,
    random: Iterator[Array | None],
) -> Array:  # fmt: skip
    match a.schedule:
        case "chain":
            for first in range(0, left.shape[1], a.length):
                part = slice(first, first + a.length)
                value = _block(state, left[:, part], right[part], value, a, next(random))
            return value
        case "split":  # two interleaved blocks from 0, then the sum before, to nearest
            order = split_order(left.shape[1], a.length)
            left, right = (np.pad(left, ((0, 0), (0, len(order) - left.shape[1]))),
                           np.pad(right, ((0, len(order) - len(right)), (0, 0))))  # fmt: skip
            for pair in order.reshape(-1, 2, a.length):
                inner = np.zeros_like(value)
                for k in pair:
                    inner = _block(state, left[:, k], right[k], inner, a, next(random))
                value = state.put(odd_sum(inner, value), a.out)
            return value
        case _:
            assert_never(a.schedule)


def split_order(depth: int, length: int) -> Array:
    """Returns the order of k in pairs of whole blocks: 0, 1, 4, 5, ... and 2, 3, 6, 7, ..."""
    whole = -(-depth // (2 * length)) * 2 * length
    k = np.arange(whole)
    return k[np.lexsort((k, k // 2 % 2, k // (2 * length)))]


def _block(
    state: State, left: Array, right: Array, value: Array, a: BlockFma, random: Array | None
) -> Array:
    """One block of at most `length` products (M, k) times (k, P), added to `value` (M, P)."""
    products = unscaled(left)[:, :, None] * unscaled(right)[None]
    total, is_kept = _RULES[a.rule](left, right, value, a)
    for k in range(products.shape[1]):
        state.count(products[:, k], ~is_kept[:, k])
    special = value + products.sum(1)  # finite numbers do not overflow in float64
    total = np.where(np.isfinite(special), total, special)
    return state.put(total, a.out, a.rounding.name, random=random)


def aligned(left: Array, right: Array, value: Array, a: BlockFma) -> tuple[Array, Array]:
    """NVIDIA: the exact sum of terms truncated at the greatest exponent.

    Terms are products, or with Blackwell's scales sums of groups of products, times their scales.
    """
    depth = left.shape[1]
    missing = -depth % a.group
    if missing:
        left, right = np.pad(left, ((0, 0), (0, missing))), np.pad(right, ((0, missing), (0, 0)))
    elements, scales = zip(parted(left), parted(right), strict=True)
    products = elements[0][:, :, None] * elements[1][None]
    shape = len(left), -1, a.group, right.shape[1]
    scales = np.abs(scales[0][:, :: a.group]), np.abs(scales[1][:: a.group])
    terms = products.reshape(shape).sum(2) * (scales[0][:, :, None] * scales[1][None])
    exponents = scale_exponents(scales[0], a)[:, :, None] + scale_exponents(scales[1], a)[None]
    if a.group == 1:
        exponents += _exponents(elements[0], a.operands)[:, :, None]
        exponents += _exponents(elements[1], a.operands)[None]
    starts = _of_terms(value, _exponents(value, a.register))
    greatest = np.max(_of_terms(terms, exponents), axis=1, initial=_NO_EXPONENT)
    greatest = np.maximum(greatest, starts)
    if a.least is not None:
        greatest = np.maximum(greatest, a.least)
    units = np.trunc(np.ldexp(terms, a.fraction - greatest[:, None]))
    start = np.trunc(np.ldexp(value, a.fraction - greatest))
    is_kept = np.repeat((units != 0) | (terms == 0), a.group, axis=1)[:, :depth]
    return np.ldexp(units.sum(1) + start, greatest - a.fraction), is_kept


def exact(left: Array, right: Array, value: Array, _: BlockFma) -> tuple[Array, Array]:
    """CDNA1: the exact sum, rounded to odd."""
    products = _finite(left[:, :, None] * right[None])
    terms = [*np.moveaxis(products, 1, 0), _finite(value)]
    places = range(_LOWEST, _HIGHEST, _LIMB)
    limbs = np.zeros((len(places), *value.shape), np.int64)
    for term in terms:
        for number in reversed(range(len(places))):
            digit = np.trunc(np.ldexp(term, -places[number]))
            limbs[number] += digit.astype(np.int64)
            term = term - np.ldexp(digit, places[number])
    is_negative = _carried(limbs)[-1] < 0
    limbs = _carried(np.where(is_negative, -limbs, limbs))
    total = np.zeros_like(value)
    for limb, place in zip(reversed(limbs), reversed(places), strict=True):
        total = odd_sum(total, np.ldexp(limb.astype(np.float64), place))
    return np.where(is_negative, -total, total), np.ones(products.shape, bool)


def pairwise(left: Array, right: Array, value: Array, a: BlockFma) -> tuple[Array, Array]:
    """CDNA2: products in pairs, pairs of pairs and so on, in fp32; then C."""
    left, right = (_flushed(side, a.operands.least_normal) for side in (left, right))
    products = _single(left[:, :, None] * right[None])
    sums = np.pad(products, ((0, 0), (0, a.length - products.shape[1]), (0, 0)))
    while sums.shape[1] > 1:
        sums = _single(sums[:, ::2] + sums[:, 1::2])
    total = _single(sums[:, 0] + _flushed(value, SINGLE.least_normal))
    return total.astype(np.float64), products != 0


def late(left: Array, right: Array, value: Array, a: BlockFma) -> tuple[Array, Array]:
    """CDNA3: products alone are aligned; their sum and C are rounded down before they are added."""
    total, greatest, is_kept = _aligned(left, right, a)
    return _with_start(total, greatest, value), is_kept


def odd_even(left: Array, right: Array, value: Array, a: BlockFma) -> tuple[Array, Array]:
    """CDNA3 with fp8: products of even and of odd k are aligned apart."""
    sums = [_aligned(left[:, first::2], right[first::2], a) for first in (0, 1)]
    is_kept = np.zeros((len(left), left.shape[1], right.shape[1]), bool)
    for first, (_, _, kept) in enumerate(sums):
        is_kept[:, first::2] = kept
    greatest = np.maximum(sums[0][1], sums[1][1])
    even, odd = (_floored(each, greatest - _SUM) for each, _, _ in sums)
    is_dropped = _exponents(value, SINGLE) < greatest - _DROPPED
    return _with_start(even + odd, greatest, np.where(is_dropped, 0.0, value)), is_kept


def _aligned(left: Array, right: Array, a: BlockFma) -> tuple[Array, Array, Array]:
    """Returns the sum of truncated products, their greatest exponent, and which have bits left."""
    products = left[:, :, None] * right[None]
    exponents = _exponents(left, a.operands)[:, :, None] + _exponents(right, a.operands)[None]
    exponents = np.where(products == 0, _NO_EXPONENT, exponents)
    greatest = np.max(exponents, axis=1, initial=_NO_EXPONENT)
    units = np.trunc(np.ldexp(products, a.fraction - greatest[:, None]))
    beyond = np.where(np.abs(products) >= 2.0**128, np.copysign(np.inf, products), 0.0).sum(1)
    total = np.ldexp(units.sum(1), greatest - a.fraction) + beyond
    return total, greatest, (units != 0) | ~np.isfinite(products)


def _with_start(total: Array, greatest: Array, value: Array) -> Array:
    """Returns the sum of products and C, each rounded down at the greater of their exponents."""
    common = np.maximum(greatest, np.where(value == 0, _NO_EXPONENT, _exponents(value, SINGLE)))
    return _floored(total, common - _KEPT) + _floored(value, common - _SUM)


def _floored(values: Array, places: Array) -> Array:
    """Returns values rounded down to multiples of 2^place."""
    return np.ldexp(np.floor(np.ldexp(values, -places)), places)


def _exponents(values: Array, form: FloatFormat) -> Array:
    return np.maximum(np.frexp(_finite(values))[1] - 1, form.least_exponent)


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, 0.0)


def _carried(limbs: Array) -> Array:
    """Returns the same numbers with limbs from 0 to 2^`_LIMB` - 1, but the highest."""
    limbs = limbs.copy()
    for number in range(len(limbs) - 1):
        carry = limbs[number] >> _LIMB
        limbs[number] -= carry << _LIMB
        limbs[number + 1] += carry
    return limbs


def _flushed(values: Array, least: float) -> Array:
    return np.where(np.abs(values) < least, 0.0, values)


def _single(values: Array) -> Array:
    """Returns values in fp32, float32, without subnormal numbers."""
    single = values.astype(np.float32)
    return np.where(np.abs(single) < np.float32(SINGLE.least_normal), np.float32(0), single)


def _of_terms(terms: Array, exponents: Array) -> Array:
    """Returns exponents; terms of 0, infinity and NaN have none."""
    return np.where(np.isfinite(terms) & (terms != 0), exponents, _NO_EXPONENT)


def scale_exponents(scales: Array, a: BlockFma) -> Array:
    """Returns the exponents of scales; those of subnormal scales of nvfp4 are the least one."""
    exponents = np.frexp(_finite(scales))[1] - 1
    return exponents if a.scaling == "mx" else np.maximum(exponents, _SCALE.least_exponent)


def tiled(
    left: Array, right: Array, start: Array, a: BlockFma,
    summed: Callable[[Array, Array, Array, BlockFma], State],
) -> State:  # fmt: skip
    """DeepGEMM: sums of tiles of elements, which `summed` computes, are added times their scales.

    `left` (M, K) and `right` (K, P) are scaled numbers, `start` is (M, P). The exact sum of a tile
    is multiplied by the exact product of its scales.
    """
    (elements, scales), (columns, column_scales) = parted(left), parted(right)
    state = State.beginning(start)
    state.values = state.put(start, SINGLE)
    inner = replace(a, scaling="none", promote=None)
    for first in range(0, left.shape[1], a.promote or 1):
        part = slice(first, first + (a.promote or 1))
        used = np.flatnonzero((elements[:, part] != 0).any(0) | (columns[part] != 0).any(1))
        end = first + int(used[-1]) + 1 if used.size else first
        part = slice(first, end)  # the zeros after it fill up the tile
        tile = summed(elements[:, part], columns[part], np.zeros_like(start), inner)
        exact = scales[:, first, None] * column_scales[first]
        factor = exact.astype(np.float32).astype(np.float64)
        state.values = state.put(odd_sum(state.values, tile.values * factor), SINGLE)
        state.exact += tile.exact * exact
        state.terms += tile.terms
        state.swamped += tile.swamped
        state.overflowed |= tile.overflowed
    return state


_RULES: Mapping[Rule, Callable[[Array, Array, Array, BlockFma], tuple[Array, Array]]] = {
    "aligned": aligned, "exact": exact, "pairwise": pairwise,
    "late": late, "odd-even": odd_even,
}  # fmt: skip
