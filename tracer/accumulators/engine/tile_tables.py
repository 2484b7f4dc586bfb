"""Tables that tiles add statistics of sums to, and the tally that they amount to."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.statistics import bins
from tracer.accumulators.statistics.tally import EXTREMES, Tally
from tracer.interpreter.numeric import parallel
from tracer.support.types import Array

_INT64 = 64
"""Bits of a word of a table."""


@dataclass(frozen=True, slots=True)
class TileTables:
    """Statistics of `rows` rows of sums in floats of `bits`, a table for each thread.

    `words` (threads, any), int64, are laid out as `kernels.tally_layout` says.
    """

    bits: int
    rows: int
    words: Array

    @classmethod
    def empty(cls, bits: int, rows: int) -> "TileTables":
        """The tables of no sums."""
        layout = _layout(bits)
        words = np.zeros((parallel.allowed(), layout.size(rows)), np.int64)
        tables = cls(bits, rows, words)
        finals = tables._extremes[..., loaded("tally_layout").LEAST_FINAL :, :]
        finals[..., 0, :], finals[..., 1, :] = np.inf, -np.inf
        return tables

    def tally(self, columns: int, accumulator: Accumulator) -> Tally:
        """The statistics of `columns` sums in each row."""
        names, layout = loaded("tally_layout"), _layout(self.bits)
        tally = Tally.empty(self.rows, accumulator)
        tally.outputs[:] = columns
        histograms = self.words[:, : layout.rows].sum(0).reshape(3, -1)
        for name, number in (
            ("low_histogram", names.LOW),
            ("high_histogram", names.HIGH),
            ("final_histogram", names.FINAL),
        ):
            np.add.at(getattr(tally, name), _bins(self.bits), histograms[number])
        rows = self._rows
        widths = rows[..., : layout.words].sum(0).reshape(self.rows, 2, -1)
        counted = slice(1, 1 + layout.exponents)
        tally.prefix_widths[:, counted], tally.final_widths[:, counted] = widths.swapaxes(0, 1)
        words = rows[..., layout.words : layout.extremes]
        total, largest = words.sum(0), words[..., names.LARGEST].max(0)
        tally.saturation_events[:] = total[:, names.EVENTS]
        tally.outputs_changed[:] = total[:, names.CHANGED]
        tally.max_abs_error[:] = largest
        tally.error_sum[:] = total[:, [names.ERRORS_HIGH, names.ERRORS_LOW]]
        self._set_extremes(tally, 0.0 if accumulator.is_symmetric else 0.5)
        return tally

    def _set_extremes(self, tally: Tally, half: float) -> None:
        """Sets the extremes of sums whose lanes hold `half` more."""
        lanes = self._extremes
        for number, name in enumerate(EXTREMES):
            best = np.min if name.endswith("min") else np.max
            getattr(tally, name)[:] = best(lanes[..., number, :], axis=(0, 2)) - half

    @property
    def _rows(self) -> Array:
        """The words of each row: (threads, rows, any)."""
        layout = _layout(self.bits)
        return self.words[:, layout.rows :].reshape(len(self.words), self.rows, layout.row)

    @property
    def _extremes(self) -> Array:
        """The vectors of each row, floats: (threads, rows, 4, lanes)."""
        words = self._rows[..., _layout(self.bits).extremes :]
        lanes = words.view(f"float{self.bits}")
        return lanes.reshape(*lanes.shape[:2], len(EXTREMES), -1)


def _layout(bits: int) -> Any:
    return loaded("tally_layout").Layout(bits)


@cache
def _bins(bits: int) -> Array:
    """The bin of `bins.edges` that each bin of lanes lies in."""
    names, layout = loaded("tally_layout"), _layout(bits)
    number = np.arange(layout.signed)
    parts = 1 << names.PART_BITS
    octaves = np.exp2((number // parts + names.FIRST).astype(np.float64))
    least = np.ceil(octaves * (1 + number % parts / parts) - 0.5)
    sums = np.concatenate([least, -least - 1])
    return np.searchsorted(bins.edges(), sums, side="right") - 1
