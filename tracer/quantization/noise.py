"""Signal and noise of a tensor over many batches: of the whole, and of each of its channels."""

from __future__ import annotations

import math

import numpy as np

from tracer.metrics.channels import channel_axes
from tracer.records.quantized import WorstChannel
from tracer.support.types import Array, FloatArray

_LOST = 1 / 4
"""Noise / signal above which a channel is lost: that is 6.02 dB, what a bit is worth."""


class Noise:
    """Sums of the squares of a tensor's values x and of its errors x - q."""

    def __init__(self) -> None:
        self._whole = np.zeros((2, 1))
        self._by_axis: dict[int, FloatArray | None] = {}

    def add(self, values: Array, errors: Array) -> None:
        """Adds a batch: float64 arrays of one shape, with 0 for what is not to count."""
        squares = np.square(values), np.square(errors)
        self._whole += [[each.sum()] for each in squares]
        for axis in channel_axes(values.ndim):
            others = tuple(each for each in range(values.ndim) if each != axis)
            sums = np.stack([each.sum(axis=others) for each in squares])
            before = self._by_axis.get(axis, np.zeros_like(sums))
            is_alike = before is not None and before.shape == sums.shape
            self._by_axis[axis] = before + sums if is_alike else None  # a length, then

    @property
    def share(self) -> float:
        """Noise / signal: 0 without noise, infinite for noise alone and for NaN."""
        return float(_shares(self._whole)[0])

    @property
    def worst_channel(self) -> WorstChannel | None:
        """The noisiest channel; None for a tensor without channels, or with one."""
        found = []
        for axis, sums in self._by_axis.items():
            if sums is not None and sums.shape[1] > 1:
                shares = _shares(sums)
                index = int(shares.argmax())
                found.append((float(shares[index]), axis, index, shares))
        if not found:
            return None
        share, axis, index, shares = max(found, key=lambda each: each[0])
        lost = int((shares > _LOST).sum())
        return WorstChannel(axis, index, decibels(share), lost, len(shares))


def decibels(share: float) -> float:
    """Returns the SQNR for noise / signal; infinite for 0, and minus infinite for infinity."""
    if not 0 < share < math.inf:
        return math.copysign(math.inf, 0.5 - share)
    return 10 * math.log10(1 / share)


def _shares(sums: FloatArray) -> FloatArray:
    """Returns noise / signal of each column of (signal, noise), float64."""
    signal, noise = sums
    noise = np.where(np.isnan(noise), np.inf, noise)  # no number where the other graph has one
    silent = np.where(noise > 0, np.inf, 0.0)
    return np.asarray(np.divide(noise, signal, out=silent, where=(signal > 0) & (noise > 0)))
