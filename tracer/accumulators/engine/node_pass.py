"""The dot products of a whole node in one pass over the columns of its images or rows.

The pass supports what tiles do. All other cases go through the blocks of `dots`.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tracer.accumulators.engine.column_source import ColumnSource
from tracer.accumulators.engine.matrices import Matrices, checked, within
from tracer.accumulators.engine.programs import Program, program
from tracer.accumulators.engine.sum_lanes import SumLanes
from tracer.accumulators.engine.tile_sums import Factors
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.statistics.tally import Tally
from tracer.interpreter.numeric.tile_tasks import Columns
from tracer.support.types import Array

_FEWEST_BITS = 32
"""Bits of the floats that are the fastest."""
_BYTE = 8
_RARE = 1 / 8
"""Share of sums that leave the range, below which most tiles of them have none."""


class _Overflow:
    """Whether few sums left the range when they were last counted; it is the same next time."""

    def __init__(self) -> None:
        self.is_rare = True

    def learn(self, outside: int, sums: int) -> None:
        """Remembers the counts of a pass."""
        self.is_rare = outside < _RARE * sums


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
    def nbytes(self) -> int:
        """Bytes of the factors, as integers and as floats."""
        left = self.matrices.left
        return left.nbytes + left.size * self.bits // _BYTE

    @property
    def cannot_overflow(self) -> bool:
        """Whether no sum leaves the range of the accumulator, whatever the columns."""
        low, high = self.accumulator.range
        return bool((self.matrices.least >= low).all() and (self.matrices.most <= high).all())

    def count(self, source: ColumnSource, out: Array, parameters: Array | None) -> Array:
        """Writes limited sums, or bytes by `parameters`, to the flat `out`; returns counts.

        They are those of `Factors.count`.
        """
        columns, overflow = self._in_order(source), self._overflow
        counts = self._factors.count(columns, out, parameters, overflow.is_rare)
        overflow.learn(int(counts[0]), columns.count * len(self.matrices.left))
        return counts

    def clip(self, source: ColumnSource, out: Array, parameters: Array | None) -> None:
        """Writes limited sums, or bytes by `parameters`, to the flat `out`."""
        self._factors.clip(self._in_order(source), out, None, parameters)

    def tally(self, source: ColumnSource, out: Array, parameters: Array | None) -> Tally:
        """Writes limited sums, or bytes by `parameters`, to the flat `out`; returns statistics."""
        return self._factors.tally(self._in_order(source), out, parameters)

    @cached_property
    def _overflow(self) -> _Overflow:
        return _Overflow()

    def _in_order(self, source: ColumnSource) -> Columns:
        return replace(source.columns, offsets=source.columns.offsets[self.plan.sequence])

    @cached_property
    def _factors(self) -> Factors:
        lanes = SumLanes(self.matrices, self.plan, self.accumulator)
        return Factors.of(lanes, self.plan, self.bits)


def prepared(
    left: Array, range_: tuple[int, int], bias: Array | None, terms: Terms,
    accumulator: Accumulator, left_range: tuple[int, int] | None = None,
) -> NodePass | None:  # fmt: skip
    """The pass of `left` (M, K) times columns in `range_`, plus `bias` (M); None if unsupported.

    Where the type of `left`, its `left_range`, bounds the sums well enough, its numbers are not
    looked at. Raises ModelError where magnitudes add up to 2^62.
    """
    plan = None if accumulator.order.reorders else program(accumulator.order, terms)
    if plan is None or not left.size:
        return None
    # Two columns of the ends of the range bound the sums of any columns.
    ends = np.broadcast_to(np.array(range_), (left.shape[1], 2))
    if left_range is not None and bias is None:
        matrices = within(left, ends, left_range)
        if _bits(SumLanes(matrices, plan, accumulator)) == _FEWEST_BITS:
            return NodePass(matrices, range_, bias, plan, terms, accumulator, _FEWEST_BITS)
    matrices = checked(left, ends, bias, terms)
    bits = _bits(SumLanes(matrices, plan, accumulator))
    return NodePass(matrices, range_, bias, plan, terms, accumulator, bits) if bits else None


def _bits(lanes: SumLanes) -> int:
    """The bits of floats that compute limited sums and exact ones; 0 if there are none."""
    both = lanes.exact_bits, lanes.limited_bits
    return max(both) if all(both) else 0
