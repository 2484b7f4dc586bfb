"""The integers that a node reads its activations as."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer.support.types import FloatArray


@dataclass(frozen=True, slots=True)
class Grid:
    """The integers `low` <= 0 to `high` >= 0 times `step`, that inputs are rounded to."""

    step: float
    low: int
    high: int

    @property
    def bits(self) -> int:
        """Bits that number the integers."""
        return (self.high - self.low).bit_length()

    @property
    def extent(self) -> int:
        """The largest magnitude of an integer."""
        return max(self.high, -self.low)

    def integers(self, values: FloatArray) -> FloatArray:
        """Returns real inputs as integers of the grid."""
        result: FloatArray = np.clip(np.rint(values / self.step), self.low, self.high)
        return result

    def of_bits(self, bits: int, kept: float) -> Grid:
        """Returns a grid of at most `bits` bits over a share of the range."""
        count = (1 << bits) - 1
        step = self.step * kept * (self.high - self.low) / count
        low = max(round(self.low * self.step * kept / step), -count)
        return Grid(step, low, low + count)

    def of_extent(self, extent: int, kept: float) -> Grid:
        """Returns a grid of integers up to `extent` over a share of the range."""
        step = self.step * kept * self.extent / extent
        low, high = (round(end * self.step * kept / step) for end in (self.low, self.high))
        return Grid(step, max(low, -extent), min(high, extent))

    def clipped(self, kept: float) -> Grid:
        """Returns the grid without the values beyond a share of its range."""
        return Grid(self.step, round(self.low * kept), round(self.high * kept))
