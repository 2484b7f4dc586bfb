"""How far the partial sums of a layer reach on calibration data, in the order of its terms."""

from __future__ import annotations

import numpy as np

from tracer.narrowing.need import Registers
from tracer.narrowing.samples import LayerSamples
from tracer.support.types import Array, FloatArray

_MOST_NUMBERS = 1 << 27
"""Partial sums that are computed; columns beyond are left out, every so many."""
_BLOCK = 1 << 22
"""Partial sums at a time."""


def least_units(samples: LayerSamples, registers: Registers, margin: float) -> FloatArray:
    """Returns the least real numbers (M,) for an integer of a sum at which all sums fit.

    A row fits whose partial sums, transient ones too, reach the largest number of the register
    divided by `margin`.
    """
    return margin * reached(samples, registers) / registers.need.most


def reached(samples: LayerSamples, registers: Registers, order: Array | None = None) -> FloatArray:
    """Returns the largest magnitudes (M,) of partial sums of the layer as it is, in real units.

    `order` (K,) is that of the terms, and their own by default. Each register begins anew, and the
    bias comes first where a register has it.
    """
    layer = samples.layer
    most = np.zeros(len(layer.integers))
    for group, rows in enumerate(np.split(np.arange(len(most)), layer.groups)):
        weights, inputs = layer.weights[rows], samples.wide[:, group]
        if order is not None:
            weights, inputs = weights[:, order], inputs[:, order]
        start = np.zeros(len(rows))
        if layer.bias is not None and registers.has_bias:
            start = layer.bias[rows]
        inputs = inputs[:: max(inputs.shape[0] * weights.size // _MOST_NUMBERS, 1)]
        most[rows] = _reached(inputs, weights, start, registers.starts)
    return most


def _reached(
    inputs: FloatArray, weights: FloatArray, start: FloatArray, starts: tuple[int, ...]
) -> FloatArray:
    most = np.abs(start)
    height = max(_BLOCK // weights.size, 1)
    ends = (*starts[1:], weights.shape[1])
    for first in range(0, len(inputs), height):
        products = inputs[first : first + height, None] * weights
        for number, (low, high) in enumerate(zip(starts, ends, strict=True)):
            sums = np.cumsum(products[:, :, low:high], axis=2)
            sums += (start if number == 0 else 0 * start)[:, None]
            most = np.maximum(most, np.abs(sums).max((0, 2)))
    return most
