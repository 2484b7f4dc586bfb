"""How far the partial sums of a layer reach on calibration data, in the order of its terms."""

from __future__ import annotations

import numpy as np

from tracer.narrowing.layers import Layer
from tracer.narrowing.need import Registers
from tracer.support.types import Array, FloatArray

_MOST_NUMBERS = 1 << 27
"""Partial sums that are computed; columns beyond are left out, every so many."""
_BLOCK = 1 << 22
"""Partial sums at a time."""


def least_units(
    layer: Layer, inputs: FloatArray, registers: Registers, margin: float
) -> FloatArray:
    """Returns the least real numbers (M,) for an integer of a sum at which all sums fit.

    A row fits whose partial sums, transient ones too, reach the largest number of the register
    divided by `margin`.
    """
    return margin * reached(layer, inputs, registers) / registers.need.most


def reached(
    layer: Layer, inputs: FloatArray, registers: Registers, order: Array | None = None
) -> FloatArray:
    """Returns the largest magnitudes (M,) of partial sums of the layer as it is, in real units.

    `inputs` (count, groups, K) are real. `order` (K,) is that of the terms [default: their own].
    Each register begins anew, and the bias comes first where a register has it.
    """
    most = np.zeros(len(layer.integers))
    for group, rows in enumerate(np.split(np.arange(len(most)), layer.groups)):
        start = starts_of(layer, registers)[rows]
        few = of_few(inputs[:, group], layer.integers[rows].size)
        outputs = of_outputs(few, layer.weights[rows], start, registers, order)
        most[rows] = outputs.max(0, initial=0)
    return most


def of_few(inputs: FloatArray, size: int) -> FloatArray:
    """Returns every so many of the inputs (count, K) of a layer with `size` weights."""
    return inputs[:: max(len(inputs) * size // _MOST_NUMBERS, 1)]


def starts_of(layer: Layer, registers: Registers) -> FloatArray:
    """Returns what the first register of each sum (M,) begins with: the bias, or 0."""
    if layer.bias is None or not registers.has_bias:
        return np.zeros(len(layer.integers))
    return layer.bias


def of_outputs(
    inputs: FloatArray,
    weights: FloatArray,
    start: FloatArray,
    registers: Registers,
    order: Array | None = None,
) -> FloatArray:
    """Returns the largest magnitude of a partial sum of each output (count, M).

    They are those of inputs (count, K) times weights (M, K), with the terms in an `order` (K,).
    """
    if order is not None:
        weights, inputs = weights[:, order], inputs[:, order]
    height = max(_BLOCK // weights.size, 1)
    blocks = (inputs[first : first + height] for first in range(0, len(inputs), height))
    return np.concatenate([of_terms(x[:, None] * weights, start, registers.starts) for x in blocks])


def of_terms(terms: FloatArray, start: FloatArray, starts: tuple[int, ...]) -> FloatArray:
    """Returns the largest magnitudes of the partial sums of terms (..., K).

    A register takes the terms from one of `starts` to the next; the first begins with `start`.
    """
    most = np.broadcast_to(np.abs(start), terms.shape[:-1])
    ends = (*starts[1:], terms.shape[-1])
    for number, (low, high) in enumerate(zip(starts, ends, strict=True)):
        sums = np.cumsum(terms[..., low:high], axis=-1)
        sums += (start if number == 0 else 0 * start)[..., None]
        most = np.maximum(most, np.abs(sums).max(-1, initial=0))
    return most
