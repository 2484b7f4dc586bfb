"""How blocks of operands with scales are added: `spec.block_fma.BlockFma` explains the rules."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tracer.accumulators.floats.casting import State, odd_sum
from tracer.accumulators.spec.block_fma import SINGLE, BlockFma
from tracer.accumulators.spec.float_format import FloatFormat, float_format
from tracer.support.types import Array


def paired(elements: Array, scales: Array) -> Array:
    """Returns scaled numbers; both are float32, of shapes that numpy broadcasts."""
    out = np.empty(np.broadcast_shapes(elements.shape, scales.shape), np.complex64)
    out.real, out.imag = elements, scales
    return out


def parted(numbers: Array) -> tuple[Array, Array]:
    """Returns elements and scales, float64, row after row.

    Numbers that are not scaled have scales of 1.
    """
    scales = numbers.imag if np.iscomplexobj(numbers) else np.ones_like(numbers)
    return np.ascontiguousarray(numbers.real, np.float64), np.ascontiguousarray(scales, np.float64)


def values(numbers: Array) -> Array:
    """Returns elements times the magnitudes of their scales, float64."""
    elements, scales = parted(numbers)
    return elements * np.abs(scales)


_SCALE = float_format("fp8-e4m3")
"""The format of the scales of nvfp4."""
_NO_EXPONENT = -(1 << 11)


def aligned(left: Array, right: Array, value: Array, a: BlockFma) -> tuple[Array, Array]:
    """Blackwell: products, or sums of groups of products, are terms with scales.

    `left` (M, k) and `right` (k, P) are scaled numbers, `value` (M, P) the sum before. Returns the
    exact sum of the truncated terms, and whether each product (M, k, P) has bits in it.
    """
    depth = left.shape[1]
    missing = -depth % a.group
    elements, scales = zip(
        parted(np.pad(left, ((0, 0), (0, missing)))),
        parted(np.pad(right, ((0, missing), (0, 0)))),
        strict=True,
    )
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
        terms = _unfilled(elements[:, part], columns[part])
        tile = summed(*terms, np.zeros_like(start), inner)
        exact = scales[:, first, None] * column_scales[first]
        factor = exact.astype(np.float32).astype(np.float64)
        state.values = state.put(odd_sum(state.values, tile.values * factor), SINGLE)
        state.exact += tile.exact * exact
        state.terms += tile.terms
        state.swamped += tile.swamped
        state.overflowed |= tile.overflowed
    return state


def _unfilled(left: Array, right: Array) -> tuple[Array, Array]:
    """Returns (M, k) and (k, P) without the zeros at their end, which fill up a tile."""
    used = np.flatnonzero((left != 0).any(0) | (right != 0).any(1))
    size = int(used[-1]) + 1 if used.size else 0
    return left[:, :size], right[:size]


def _of_terms(terms: Array, exponents: Array) -> Array:
    """Returns exponents; terms of 0, infinity and NaN have none."""
    return np.where(np.isfinite(terms) & (terms != 0), exponents, _NO_EXPONENT)


def scale_exponents(scales: Array, a: BlockFma) -> Array:
    """Returns the exponents of scales; those of subnormal scales of nvfp4 are the least one."""
    exponents = np.frexp(np.where(np.isfinite(scales), scales, 0.0))[1] - 1
    return exponents if a.scaling == "mx" else np.maximum(exponents, _SCALE.least_exponent)


def _exponents(values: Array, form: FloatFormat) -> Array:
    finite = np.where(np.isfinite(values), values, 0.0)
    return np.maximum(np.frexp(finite)[1] - 1, form.least_exponent)
