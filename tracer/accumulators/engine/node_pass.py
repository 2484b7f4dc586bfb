"""The dot products of a whole node in one pass over the columns of its images or rows.

The pass supports what tiles do. All other cases go through the blocks of `dots`. A `ColumnSource`
says where columns are read; `KeptPasses` keep what is prepared for the next run.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from tracer.accumulators.engine import tile_sums
from tracer.accumulators.engine.integer_arithmetic import Integers
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.statistics.partial_sums import Tally
from tracer.interpreter.numeric.tile_tasks import Columns
from tracer.interpreter.numeric.windows import Window, padded
from tracer.interpreter.operators import MemoryBudget
from tracer.support.types import Array

_AXES = 2
"""Spatial axes that the kernels support: lines and places."""
_MOST = 2
"""Passes that a node keeps."""
_FEWEST_BITS = 32
"""Bits of the floats that are the fastest."""
_BYTE = 8
_RARE = 1 / 8
"""Share of sums that leave the range, below which most tiles of them have none."""


@dataclass(eq=False)
class NodePass:
    """Rows of factors, ready to be multiplied with columns whose numbers lie in `range`.

    `is_rare` is whether few sums left the range when they were last counted: it is the same next
    time.
    """

    matrices: tile_sums.Matrices
    range: tuple[int, int]
    bias: Array | None
    plan: tile_sums.Program
    terms: Terms
    accumulator: Accumulator
    bits: int
    is_rare: bool = True

    def suits(self, sums: "Gathered", accumulator: Accumulator) -> bool:
        """Whether `prepared` returns this pass for these arguments."""
        case = sums.columns.range, sums.terms, accumulator
        return case == (self.range, self.terms, self.accumulator) and all(
            np.array_equal(a, b) if a is not None and b is not None else a is b
            for a, b in ((self.matrices.left, sums.left), (self.bias, sums.bias))
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

    def count(self, source: "ColumnSource", out: Array, parameters: Array | None) -> Array:
        """Writes limited sums, or bytes by `parameters`, to the flat `out`; returns counts.

        They are those of `Factors.count`.
        """
        columns = self._in_order(source)
        counts = self._factors.count(columns, out, parameters, self.is_rare)
        self.is_rare = int(counts[0]) < _RARE * columns.count * len(self.matrices.left)
        return counts

    def clip(self, source: "ColumnSource", out: Array, parameters: Array | None) -> None:
        """Writes limited sums, or bytes by `parameters`, to the flat `out`."""
        self._factors.clip(self._in_order(source), out, None, parameters)

    def tally(self, source: "ColumnSource", out: Array, parameters: Array | None) -> Tally:
        """Writes limited sums, or bytes by `parameters`, to the flat `out`; returns statistics."""
        return self._factors.tally(self._in_order(source), out, parameters)

    def _in_order(self, source: "ColumnSource") -> Columns:
        return replace(source.columns, offsets=source.columns.offsets[self.plan.sequence])

    @cached_property
    def _factors(self) -> tile_sums.Factors:
        lanes = tile_sums.SumLanes(self.matrices, self.plan, self.accumulator)
        return tile_sums.Factors.of(lanes, self.plan, self.bits)


def prepared(sums: "Gathered", accumulator: Accumulator) -> NodePass | None:
    """The pass of these sums, for any columns in the range of theirs; None if unsupported.

    Where the range of the rows bounds the sums well enough, their numbers are not looked at. Raises
    ModelError where magnitudes add up to 2^62.
    """
    left, range_, bias, terms = sums.left, sums.columns.range, sums.bias, sums.terms
    plan = None if accumulator.order.reorders else tile_sums.program(accumulator.order, terms)
    if plan is None or not left.size:
        return None
    # Two columns of the ends of the range bound the sums of any columns.
    ends = np.broadcast_to(np.array(range_), (left.shape[1], 2))
    if sums.range is not None and bias is None:
        matrices = tile_sums.bounded_matrices(left, ends, sums.range)
        if _bits(tile_sums.SumLanes(matrices, plan, accumulator)) == _FEWEST_BITS:
            return NodePass(matrices, range_, bias, plan, terms, accumulator, _FEWEST_BITS)
    matrices = tile_sums.checked(left, ends, bias, terms)
    bits = _bits(tile_sums.SumLanes(matrices, plan, accumulator))
    return NodePass(matrices, range_, bias, plan, terms, accumulator, bits) if bits else None


def _bits(lanes: tile_sums.SumLanes) -> int:
    """The bits of floats that compute limited sums and exact ones; 0 if there are none."""
    both = lanes.exact_bits, lanes.limited_bits
    return max(both) if all(both) else 0


class KeptPasses:
    """The latest passes of one node, as far as the room of its model suffices.

    A pass has the weights as integers and as floats. Nodes of one model share a `room`.
    """

    def __init__(self, room: MemoryBudget | None = None) -> None:
        self._room = room or MemoryBudget()
        self._passes: list[NodePass] = []

    def find(self, sums: "Gathered", accumulator: Accumulator) -> NodePass | None:
        """Returns the pass of these sums; None if it is not kept."""
        return next((each for each in self._passes if each.suits(sums, accumulator)), None)

    def keep(self, latest: NodePass) -> None:
        """Keeps a pass, in place of the oldest, if there is room."""
        while len(self._passes) >= _MOST:
            self._room.nbytes += self._passes.pop().nbytes
        if latest.nbytes <= self._room.nbytes:
            self._room.nbytes -= latest.nbytes
            self._passes.insert(0, latest)


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Columns of integers that lie in `range`."""

    columns: Columns
    range: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Dot products of rows `left` (M, K) with gathered columns, plus `bias` (M).

    The rows are output channels, unless they are activations with numbers in `range`.
    """

    left: Array
    columns: ColumnSource
    bias: Array | None
    terms: Terms
    range: tuple[int, int] | None = None

    @property
    def rows_are_channels(self) -> bool:
        """Whether each row is a channel."""
        return self.range is None


@dataclass(frozen=True, slots=True)
class PaddedImages:
    """Images laid out for `window`: `numbers` (N, C, lines, places), minus `shift`, padded."""

    numbers: Array
    shift: int
    window: Window
    range: tuple[int, int]

    @classmethod
    def of(cls, x: Integers, window: Window) -> "PaddedImages | None":
        """The images `x` (N, C, *size); None if they have more axes."""
        if len(window.kernel) > _AXES:
            return None
        numbers = np.ascontiguousarray(padded(x.numbers, window, x.padding + x.shift))
        lines = numbers.shape[2] if numbers.ndim == 2 + _AXES else 1
        shape = (*numbers.shape[:2], lines, numbers.shape[-1])
        ends = min(x.low, x.padding), max(x.high, x.padding)
        return cls(numbers.reshape(shape), x.shift, window, ends)

    def columns(self, groups: int, maps: int) -> ColumnSource:
        """The windows over each group of channels, for sums that are written to (N, maps, *out)."""
        count, depth, lines, places = self.numbers.shape
        (down, across), (height, width) = map(_lines_first, (self.window.strides, self.window.out))
        offsets = _offsets(self.window, depth // groups, lines, places)
        columns = Columns(
            self.numbers.reshape(-1),
            offsets,
            (count, height, width),
            (depth * lines * places, down * places, across),
            (maps * height * width, height * width, 1),
            groups,
            (depth // groups * lines * places, maps // groups * height * width),
            self.shift,
        )
        return ColumnSource(columns, self.range)


@lru_cache(maxsize=256)
def _offsets(window: Window, depth: int, lines: int, places: int) -> Array:
    """Where the terms of a window lie, from its first one, in images of so many places a line."""
    (below, beside), kernel = map(_lines_first, (window.dilations, window.kernel))
    positions = np.ogrid[:depth, : kernel[0], : kernel[1]]
    offsets = (positions[0] * lines + positions[1] * below) * places + positions[2] * beside
    return offsets.reshape(-1).astype(np.int64)


def from_blocks(a: Integers, part: slice, width: int) -> ColumnSource:
    """The rows of a part of the blocks of `a` (R, blocks, size), for sums (part, R, width)."""
    rows, blocks, size = a.numbers.shape
    source = np.ascontiguousarray(a.numbers).reshape(-1)
    columns = Columns(source, np.arange(size) + part.start * size, (rows, 1, 1),
                      (blocks * size, 0, 0), (width, 1, 0), part.stop - part.start,
                      (size, rows * width), a.shift)  # fmt: skip
    return ColumnSource(columns, (a.low, a.high))


def from_matrices(b: Integers, rows: int) -> ColumnSource:
    """The columns of each matrix of `b` (N, K, P), for sums that are written to (N, rows, P)."""
    count, depth, width = b.numbers.shape
    source, offsets = np.ascontiguousarray(b.numbers).reshape(-1), np.arange(depth) * width
    columns = Columns(source, offsets, (1, 1, width), (0, 0, 1), (0, width, 1), count,
                      (depth * width, rows * width), b.shift)  # fmt: skip
    return ColumnSource(columns, (b.low, b.high))


def from_first_axis(x: Integers) -> ColumnSource:
    """The columns of `x` (K, C, P), for sums of each channel C that are written to (1, C, P)."""
    depth, channels, width = x.numbers.shape
    source, offsets = np.ascontiguousarray(x.numbers).reshape(-1), np.arange(depth)
    columns = Columns(source, offsets * channels * width, (1, 1, width), (0, 0, 1),
                      (0, width, 1), channels, (width, width), x.shift)  # fmt: skip
    return ColumnSource(columns, (x.low, x.high))


def _lines_first(values: tuple[int, ...]) -> tuple[int, int]:
    """A number for lines and one for places; one axis is an image of one line."""
    return (1, values[0]) if len(values) == 1 else (values[0], values[1])
