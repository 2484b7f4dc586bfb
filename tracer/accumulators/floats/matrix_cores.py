"""How AMD's matrix cores add a block of products: `spec.block_fma.Rule` explains each rule.

A function takes the factors of products, (M, k) and (k, P), float64, and the sum (M, P) before. It
returns the sum, with no more than one rounding left, and whether each product (M, k, P) has bits in
it.
"""

import numpy as np

from tracer.accumulators.floats.rounding_to_odd import odd_sum
from tracer.accumulators.spec.block_fma import SINGLE, BlockFma
from tracer.accumulators.spec.float_format import FloatFormat
from tracer.support.types import Array

_LIMB = 40
"""Bits of a digit of an exact sum: some hundred digits are added before one needs 64 bits."""
_LOWEST, _HIGHEST = -300, 260
"""Exponents of the bits that products of float32 can have."""
_NO_EXPONENT = -(1 << 11)
_SUM, _KEPT = 24, 31
"""Bits of fraction of C, and of the sum of products before C is added, in CDNA3."""
_DROPPED = 25
"""C is dropped where its exponent is lower by more, in CDNA3 with fp8."""


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
    exponents = (
        _exponents(left, a.operands)[:, :, None] + _exponents(right, a.operands)[None]
    )  # fmt: skip
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
