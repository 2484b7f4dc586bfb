"""The statistics of one node's sums in a float accumulator, and the bins of relative errors.

Bins are fixed, so that histograms of any data can be added. Each octave of errors from 2^-60 to
2^60 has 8 bins of the same width. The first bin has smaller errors, which count as 0: float64 does
not tell them from its own rounding. The last one has greater and infinite errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import reduce

import numpy as np

from tracer.accumulators.kernels import loaded
from tracer.errors import UsageError
from tracer.support.types import Array, IntArray

_ERROR_FRACTION = 3
"""Eight bins an octave: a limit of a bin is at most an eighth above any error in it."""
_LEAST_OCTAVE, _GREATEST_OCTAVE = -60, 60
_FRACTION_BITS, _BIAS = 52, 1023  # of a float64
UNUSED_BITS = _FRACTION_BITS - _ERROR_FRACTION
"""Bits of a float64 that do not tell its bin."""
BELOW_ERRORS = ((_LEAST_OCTAVE + _BIAS) << _ERROR_FRACTION) - 1
"""The other bits of errors in the first bin, or less."""
ERROR_BINS = ((_GREATEST_OCTAVE - _LEAST_OCTAVE) << _ERROR_FRACTION) + 2
"""The number of bins."""


def error_limit(position: int) -> float:
    """Returns the number below which all errors of a bin are: 0 for the first, infinite at last."""
    if position == 0:
        return 0.0
    if position == ERROR_BINS - 1:
        return float("inf")
    octave, part = divmod(position, 1 << _ERROR_FRACTION)
    return float(np.ldexp((1 << _ERROR_FRACTION) + part, octave + _LEAST_OCTAVE - _ERROR_FRACTION))


def error_percentile(counts: IntArray, percent: int) -> float | None:
    """Returns the limit that so many percent of the counted errors do not exceed.

    It is that of the bin in which the error of this rank lies; None without errors.
    """
    total = int(counts.sum())
    if not total:
        return None
    rank = -(-total * percent // 100)
    return error_limit(int(np.searchsorted(np.cumsum(counts), rank)))


@dataclass(frozen=True, slots=True, eq=False)
class FloatTally:
    """Statistics of one node's sums, of all outputs together.

    `accumulator` and `operands` are spellings; `operands` is None where operands keep the type of
    the graph. `outputs` counts sums, `overflow_outputs` those that left the range of a format on
    their way. `terms` counts products other than 0, `swamped` those among them that did not change
    their sum.

    The relative error of a sum is |value - exact| / |exact|, where `exact` is the sum of the same
    products in float64: infinite where only `exact` is 0. `error_histogram` counts these errors in
    the bins of `bins`, and `greatest_error` is the greatest one. Sums that are NaN, or have
    no exact value, are in `nan_outputs` instead.
    """

    accumulator: str
    operands: str | None
    outputs: int
    overflow_outputs: int
    nan_outputs: int
    terms: int
    swamped: int
    greatest_error: float
    error_histogram: IntArray = field(repr=False)

    @classmethod
    def empty(cls, accumulator: str, operands: str | None) -> FloatTally:
        """Returns the statistics of no sums."""
        histogram = np.zeros(ERROR_BINS, np.int64)
        return cls(accumulator, operands, 0, 0, 0, 0, 0, 0.0, histogram)

    def plus(
        self, values: Array, overflowed: Array, swamped: Array, terms: Array, exact: Array
    ) -> FloatTally:
        """Returns the statistics with further sums, described by arrays of any one shape.

        They are those of `floats.casting.State`: values are float32.
        """
        histogram = np.zeros(ERROR_BINS, np.int64)
        sides = (np.ascontiguousarray(values, np.float32), np.ascontiguousarray(exact, np.float64))
        nan_outputs, greatest = loaded("sum_statistics").count(
            *(each.reshape(-1) for each in sides), histogram
        )
        return self.merged(
            FloatTally(
                self.accumulator,
                self.operands,
                values.size,
                int(np.count_nonzero(overflowed)),
                nan_outputs,
                int(terms.sum()),
                int(swamped.sum()),
                greatest,
                histogram,
            )
        )

    def merged(self, other: FloatTally) -> FloatTally:
        """Returns the statistics of the sums of both, in whatever order.

        Raises UsageError for a tally of another accumulator.
        """
        mine, others = ((each.accumulator, each.operands) for each in (self, other))
        if mine != others:
            raise UsageError(
                "statistics of different accumulators cannot be merged",
                f"One is of {_described(*mine)}, the other of {_described(*others)}.",
            )
        sums = {name: getattr(self, name) + getattr(other, name) for name in SUMMED}
        greatest = max(self.greatest_error, other.greatest_error)
        return FloatTally(*mine, greatest_error=greatest, **sums)

    @property
    def swamped_share(self) -> float | None:
        """The share of the terms that did not change their sum; None without terms."""
        return self.swamped / self.terms if self.terms else None

    def error_percentile(self, percent: int) -> float | None:
        """Returns the relative error that so many percent of the sums do not exceed.

        It is the upper limit of a bin, so at most an eighth too large; None without sums.
        """
        return error_percentile(self.error_histogram, percent)

    def counts(self) -> Mapping[str, int]:
        """Returns the counts of the node by name."""
        return {name: getattr(self, name) for name in COUNTS}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FloatTally):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, each.name), getattr(other, each.name))
            for each in fields(self)
        )

    __hash__ = None  # type: ignore[assignment]  # an array is not hashable


COUNTS = ("outputs", "overflow_outputs", "nan_outputs", "terms", "swamped")
SUMMED = (*COUNTS, "error_histogram")
"""Quantities of two tallies that are added."""


def _described(accumulator: str, operands: str | None) -> str:
    return accumulator if operands is None else f"{accumulator} with operands in {operands}"


@dataclass(frozen=True, slots=True)
class FloatPartialSums:
    """The sums of the node with key `node`."""

    node: str
    tally: FloatTally

    @classmethod
    def merged(cls, parts: Sequence[FloatPartialSums]) -> FloatPartialSums:
        """Returns the sums of one node in several parts of the data, in whatever order."""
        return cls(parts[0].node, reduce(FloatTally.merged, [part.tally for part in parts]))
