"""Where a thread's statistics of sums lie in a table of int64 words."""

from dataclasses import dataclass

from tracer.interpreter.kernels.vectors import REGISTER

PART_BITS = 3
"""Bits of a float after its first one that tell the bins of an octave apart."""
LOW, HIGH, FINAL = range(3)
"""Histograms: of the least and of the greatest sums on the way, of the final sums."""
EVENTS, CHANGED, LARGEST, ERRORS_HIGH, ERRORS_LOW = range(5)
"""Words of a row: steps that left the range; sums other than the exact ones; their largest error,
and all errors added up, in units of 2^32 and of 1."""
LEAST, GREATEST, LEAST_FINAL, GREATEST_FINAL = range(4)
"""Vectors of a row: extremes of the sums in each lane."""
FIRST = -1
"""The exponent of the least lane: one half."""


@dataclass(frozen=True)
class Layout:
    """The words of sums in floats of `bits`: histograms, then the same words for each row.

    A lane holds the sum plus one half. Its exponent is the width that the sum needs, its exponent
    and `PART_BITS` more bits are its bin: in both, a negative number n mirrors -n - 1.
    """

    bits: int

    @property
    def fraction(self) -> int:
        """Bits of a float after its first one."""
        return 23 if self.bits == 32 else 52

    @property
    def exponents(self) -> int:
        """Exponents that lanes have."""
        return self.fraction + 1 - FIRST

    @property
    def signed(self) -> int:
        """Bins of lanes of one sign."""
        return self.exponents << PART_BITS

    @property
    def histogram(self) -> int:
        """Words of a histogram: bins of positive lanes, then of negative ones."""
        return 2 * self.signed

    @property
    def rows(self) -> int:
        """The first word of the first row."""
        return 3 * self.histogram

    @property
    def words(self) -> int:
        """The first of the five counts of a row, after two counts by exponent."""
        return 2 * self.exponents

    @property
    def extremes(self) -> int:
        """The first word of the vectors of a row."""
        return self.words + 5

    @property
    def row(self) -> int:
        """Words of a row."""
        return self.extremes + 4 * REGISTER // 64

    def size(self, rows: int) -> int:
        """Words of a table of so many rows."""
        return self.rows + rows * self.row
