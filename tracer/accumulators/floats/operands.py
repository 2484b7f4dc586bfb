"""Casts operands to formats with scales."""

from dataclasses import dataclass
from typing import assert_never

import numpy as np

from tracer.accumulators.floats.casting import cast as cast_numbers
from tracer.accumulators.spec.float_format import float_format
from tracer.accumulators.spec.operand_format import BLOCKS, OperandFormat
from tracer.support.types import Array

_INTEGERS = 127
"""The largest integer of 8 bits, in a range that is symmetric."""
_MX_UNIT = 2.0**-6
"""The unit of an MXINT8 element: the largest exponent of its numbers is 0."""
_LEAST_SCALE, _LARGEST_SCALE = -127, 127
"""Exponents of E8M0."""
_LEAST_OF_TILE = np.float32(1e-4)
"""DeepGEMM takes a tile's largest magnitude to be this at least."""
_SCALE = float_format("fp8-e4m3")
"""The format of the scales of NVFP4."""


@dataclass(frozen=True, slots=True)
class Operands:
    """An array in a format: `values`, float32, are elements times both of their scales.

    Hardware sums products of `elements` times `scales`, and multiplies the sum by each `factor`.
    `scales` have one number for each block of the reduction axis, `factor` one for all numbers or
    for those along the reduction axis; both are float32, have the rank of the array, and are 1
    without such scaling. A scale of MX is NaN if a number of its block is not finite.

    Scales of tiles multiply sums over a tile.
    """

    values: Array
    elements: Array
    scales: Array
    factor: Array


def cast(array: Array, form: OperandFormat, axis: int = -1, across: int | None = None) -> Operands:
    """Returns an array in a format; `axis` is the axis of the products that are summed.

    `across` is the other axis of tiles of 128 x 128; without it, tiles are 1 x 128. The last block
    of an axis may be shorter. Scales are computed in float32, as converters do.
    """
    numbers = np.asarray(array, np.float32)
    scales = factor = np.ones((1,) * numbers.ndim, np.float32)
    match form.scaling:
        case "none":
            elements = _elements(numbers, form)
            return Operands(elements, elements, scales, factor)
        case "tensor":
            factor = _ratio(_largest(numbers, None), form)
        case "channel":
            factor = _ratio(_largest(numbers, axis), form)
        case "tiles":
            scales = _ratio(_tile_largest(numbers, axis, across), form)
        case "mx":
            scales = _powers(_block_largest(numbers, axis, BLOCKS["mx"]), form)
        case "nvfp4":
            scales, factor = _two_level(numbers, axis, form)
        case _:
            assert_never(form.scaling)
    with np.errstate(all="ignore"):
        whole = spread(scales, numbers.shape[axis], axis, form) * factor
        elements = _elements(numbers / whole, form)
        return Operands(elements * whole, elements, scales, factor)


def spread(scales: Array, size: int, axis: int, form: OperandFormat) -> Array:
    """Returns the scale of each of `size` numbers along an axis, given the scales of blocks."""
    block = BLOCKS.get(form.scaling)
    if block is None:
        return scales
    return np.repeat(scales, block, axis=axis).take(range(size), axis=axis)


def _elements(numbers: Array, form: OperandFormat) -> Array:
    """Returns numbers as elements, float32."""
    if form.element is not None:
        return cast_numbers(numbers, form.element, form.rounding, form.saturates)
    unit = np.float32(_MX_UNIT if form.scaling == "mx" else 1)
    return np.clip(np.rint(numbers / unit), -_INTEGERS, _INTEGERS) * unit


def _largest(numbers: Array, axis: int | None) -> Array:
    """Returns the largest magnitude of all numbers, or of those along an axis; NaN if one is."""
    if not numbers.size:
        return np.zeros((1,) * numbers.ndim, np.float32)
    return np.asarray(np.max(np.abs(numbers), axis=axis, keepdims=True))


def _block_largest(numbers: Array, axis: int, size: int) -> Array:
    """Returns the largest magnitude of each block of an axis."""
    starts = np.arange(0, numbers.shape[axis], size)
    if not numbers.size:
        shape = list(numbers.shape)
        shape[axis] = len(starts)
        return np.zeros(shape, np.float32)
    return np.maximum.reduceat(np.abs(numbers), starts, axis=axis)


def _tile_largest(numbers: Array, axis: int, across: int | None) -> Array:
    """Returns the largest magnitude of each tile of `axis`, for all numbers of `across`."""
    size = BLOCKS["tiles"]
    largest = _block_largest(numbers, axis, size)
    if across is not None:
        rows = _block_largest(largest, across, size)
        largest = np.repeat(rows, size, axis=across).take(range(numbers.shape[across]), axis=across)
    return np.maximum(largest, _LEAST_OF_TILE)


def _ratio(largest: Array, form: OperandFormat) -> Array:
    """Returns float32 scales by which the largest magnitudes become the largest number."""
    most = _INTEGERS if form.element is None else form.element.largest
    return _not_0(largest / np.float32(most))


def _powers(largest: Array, form: OperandFormat) -> Array:
    """Returns powers of 2, as E8M0 holds them."""
    top = 0 if form.element is None else form.element.largest_exponent
    exponents = np.frexp(np.where(largest == 0, 1, largest))[1] - 1 - top
    exponents = np.where(largest == 0, _LEAST_SCALE, np.maximum(exponents, _LEAST_SCALE))
    scales = np.ldexp(np.ones_like(largest), exponents)
    is_scale = np.isfinite(largest) & (exponents <= _LARGEST_SCALE)
    return np.where(is_scale, scales, np.float32(np.nan))


def _two_level(numbers: Array, axis: int, form: OperandFormat) -> tuple[Array, Array]:
    """Returns scales of NVFP4: an fp8-e4m3 for each block, and a float32 for all."""
    assert form.element is not None
    most = np.float32(form.element.largest)
    factor = _not_0(_largest(numbers, None) / (most * np.float32(_SCALE.largest)))
    largest = _block_largest(numbers, axis, BLOCKS["nvfp4"])
    return _not_0(cast_numbers(largest / (most * factor), _SCALE, saturates=True)), factor


def _not_0(scales: Array) -> Array:
    """Returns scales, float32, with 1 in place of 0."""
    return np.where(scales == 0, np.float32(1), scales).astype(np.float32)
