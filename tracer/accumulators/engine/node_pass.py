"""The dot products of a whole node in one pass over the columns of its images or rows.

The pass supports what tiles do. All other cases go through the blocks of `dots`.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tracer.accumulators.engine.column_source import ColumnSource
from tracer.accumulators.engine.matrices import Matrices, checked
from tracer.accumulators.engine.programs import Program, program
from tracer.accumulators.engine.sum_lanes import SumLanes
from tracer.accumulators.engine.tile_sums import Factors
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.statistics.sums import Clipped, UnlimitedSums
from tracer.interpreter.numeric import parallel
from tracer.interpreter.numeric.tile_tasks import Columns
from tracer.support.types import Array

_SUMS = 1 << 16
"""Sums that are measured at a time: 3 MiB of sums, extremes and events."""


@dataclass(frozen=True)
class NodePass:
    """Rows of factors, ready to be multiplied with columns whose numbers lie in `range`."""

    matrices: Matrices
    range: tuple[int, int]
    bias: Array | None
    plan: Program
    terms: Terms
    accumulator: Accumulator
    bits: int

    def suits(
        self, left: Array, range_: tuple[int, int], bias: Array | None, terms: Terms,
        accumulator: Accumulator,
    ) -> bool:  # fmt: skip
        """Whether `prepared` returns this pass for these arguments."""
        same = (range_, terms, accumulator) == (self.range, self.terms, self.accumulator)
        return same and all(
            np.array_equal(a, b) if a is not None and b is not None else a is b
            for a, b in ((self.matrices.left, left), (self.bias, bias))
        )

    @property
    def cannot_overflow(self) -> bool:
        """Whether no sum leaves the range of the accumulator, whatever the columns."""
        low, high = self.accumulator.range
        return bool((self.matrices.least >= low).all() and (self.matrices.most <= high).all())

    def count(self, source: ColumnSource, out: Array, parameters: Array | None) -> Array:
        """Writes limited sums, or bytes by `parameters`, to the flat `out`; returns counts.

        They are those of `Factors.count`.
        """
        return self._factors.count(self._in_order(source), out, parameters)

    def clip(self, source: ColumnSource, out: Array, parameters: Array | None) -> None:
        """Writes limited sums, or bytes by `parameters`, to the flat `out`."""
        self._factors.clip(self._in_order(source), out, None, parameters)

    def parts(self, source: ColumnSource) -> list[slice]:
        """Images whose sums are measured together."""
        images, lines, places = source.columns.sizes
        each = max(_SUMS // (len(self.matrices.left) * lines * places), 1)
        return parallel.pieces(images, each)

    def measured(self, source: ColumnSource, images: slice) -> tuple[UnlimitedSums, Clipped]:
        """Sums (M, P) of some images, without a range and in it.

        `values` is the array of final sums where no sum differs.
        """
        columns = source.columns.of_images(images, len(self.matrices.left))
        columns = replace(columns, offsets=columns.offsets[self.plan.sequence])
        shape, (low, high) = (len(self.matrices.left), columns.count), self.accumulator.range
        sums = UnlimitedSums(*(np.empty(shape, np.int64) for _ in range(3)))
        self._factors.observe(columns, sums.final, sums.low, sums.high)
        if sums.low.min() >= low and sums.high.max() <= high:
            return sums, Clipped(sums.final, np.broadcast_to(np.int64(0), shape))
        clipped = Clipped(*(np.empty(shape, np.int64) for _ in range(2)))
        self._factors.clip(columns, clipped.values, clipped.events)
        return sums, clipped

    def _in_order(self, source: ColumnSource) -> Columns:
        return replace(source.columns, offsets=source.columns.offsets[self.plan.sequence])

    @cached_property
    def _factors(self) -> Factors:
        lanes = SumLanes(self.matrices, self.plan, self.accumulator)
        return Factors.of(lanes, self.plan, self.bits)


def prepared(
    left: Array, range_: tuple[int, int], bias: Array | None, terms: Terms,
    accumulator: Accumulator,
) -> NodePass | None:  # fmt: skip
    """The pass of `left` (M, K) times columns in `range_`, plus `bias` (M); None if unsupported.

    Raises ModelError where magnitudes add up to 2^62.
    """
    plan = None if accumulator.order.reorders else program(accumulator.order, terms)
    if plan is None or not left.size:
        return None
    # Two columns of the ends of the range bound the sums of any columns.
    ends = np.broadcast_to(np.array(range_), (left.shape[1], 2))
    matrices = checked(left, ends, bias, terms)
    lanes = SumLanes(matrices, plan, accumulator)
    if not lanes.exact_bits or not lanes.limited_bits:
        return None
    bits = max(lanes.exact_bits, lanes.limited_bits)
    return NodePass(matrices, range_, bias, plan, terms, accumulator, bits)
