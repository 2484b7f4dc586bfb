"""Signal and noise of a tensor over many batches: of the whole, and of each of its channels."""

from __future__ import annotations

import math

import numpy as np

from tracer.metrics.reference import channel_axes, squares_along
from tracer.records.transformed import WorstChannel
from tracer.support.types import Array, FloatArray

_LOST = 1 / 4
"""Noise / signal above which a channel is lost: that is 6.02 dB, what a bit is worth."""


class Noise:
    """Sums of the squares of a tensor's values x and of its errors x - q.

    `axis` is that of the channels, negative if counted from the end. Without it, all axes that may
    have them are looked at.
    """

    def __init__(self, axis: int | None = None) -> None:
        self._axis = axis
        self._whole = np.zeros((2, 1))
        self._by_axis: dict[int, FloatArray | None] = {}

    def add(self, values: Array, errors: Array) -> None:
        """Adds a batch: float64 arrays of one shape, with 0 for what is not to count."""
        self._whole += _sums(0, values.reshape(1, -1), errors.reshape(1, -1))
        for axis in self._axes(values.ndim):
            sums = _sums(axis, values, errors)
            before = self._by_axis.get(axis, np.zeros_like(sums))
            if before is None or before.shape != sums.shape:  # a length, then
                self._by_axis[axis] = None
            else:
                self._by_axis[axis] = before + sums

    def _axes(self, rank: int) -> tuple[int, ...]:
        if self._axis is None or not -rank <= self._axis < rank:
            return channel_axes(rank)
        return tuple(axis for axis in (self._axis % rank,) if axis)  # axis 0 has samples

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


def _sums(axis: int, values: Array, errors: Array) -> FloatArray:
    """Returns (signal, noise) of each slice along an axis."""
    return np.stack([squares_along(axis, each) for each in (values, errors)])


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
    with np.errstate(invalid="ignore"):  # of infinities on both sides
        return np.asarray(np.divide(noise, signal, out=silent, where=(signal > 0) & (noise > 0)))
