"""The dot products of one node under its accumulator, counted as they are made."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

import numpy as np

from tracer.accumulators.engine import dots, node_pass
from tracer.accumulators.engine.column_source import Columns
from tracer.accumulators.engine.node_pass import Rows
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.statistics.bounds import Bounds, datatype, guaranteed, guaranteed_of_ranges
from tracer.accumulators.statistics.sums import in_rows
from tracer.accumulators.statistics.tally import Tally
from tracer.errors import ModelError
from tracer.interpreter.numeric.products import Product, integers
from tracer.support.types import Array

UNCHANGED = np.iinfo(np.int64).min
"""Stands where the accumulator has changed nothing: the node's own output is kept there."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """The dot products of a node: `terms` each, for so many output channels.

    `inputs` and `weights` are what the types of the operands hold; `stored` are the weights
    themselves, (channels, K), where every run has the same. `bias` is (channels). With `padded` an
    input may be 0 whatever its type.
    """

    channels: int
    terms: Terms
    inputs: tuple[int, int]
    weights: tuple[int, int]
    stored: Array | None = None
    bias: Array | None = None
    padded: bool = False

    def like(self, other: Reduction) -> bool:
        """Whether what bounds the sums is the same."""
        mine, others = ((r.channels, r.terms, r.inputs, r.weights, r.padded) for r in (self, other))
        return mine == others

    def bounds(self, accumulator: Accumulator) -> Bounds:
        """What the partial sums cannot leave, whatever the input."""
        if self.stored is None:
            bias = None if self.bias is None else (int(self.bias.min()), int(self.bias.max()))
            ranges = self.weights, self.inputs
            return guaranteed_of_ranges(*ranges, bias, self.terms, accumulator, self.padded)
        return guaranteed(
            self.stored, *self.inputs, self.bias, self.terms, accumulator, self.padded
        )

    def datatype(self, accumulator: Accumulator) -> int:
        """Bits that hold any sum of products of these types; a bias has no part in them."""
        return datatype(self.terms, self.weights, self.inputs, None, accumulator)


class SumRunner:
    """Sums blocks of dot products, from several threads, and tallies them.

    With `mark_unchanged` a sum that the accumulator did not change is written as UNCHANGED.
    """

    def __init__(self, accumulator: Accumulator, mark_unchanged: bool) -> None:
        self.accumulator = accumulator
        self.mark_unchanged = mark_unchanged
        self.tally: Tally | None = None
        self.reductions: list[Reduction] = []
        self._ready: dict[int, Rows] = {}
        self._formatted = False
        self._lock = Lock()

    def fresh_copy(self) -> SumRunner:
        """A meter that has seen nothing, of the same sums."""
        other = type(self)(self.accumulator, self.mark_unchanged)
        other._ready = self._ready
        return other

    def begin(self, reduction: Reduction) -> None:
        """Say what is about to be summed; sizes may change from run to run.

        Where the number of channels does they are no channels, and are counted as one.
        """
        if self.tally is None:
            self.tally = Tally.empty(reduction.channels, self.accumulator)
            self._formatted = self.accumulator.formats(reduction.terms)
        elif len(self.tally.outputs) not in (1, reduction.channels):
            self.tally = self.tally.folded()
        if not any(reduction.like(known) for known in self.reductions):
            self.reductions.append(reduction)

    def product(self, channels: slice, bias: Array | None, terms: Terms) -> Product:
        """What multiplies `left` (M, K) with `right` (K, P) into `out` (M, P), int64.

        The rows of `left` are `channels`, and `bias` (M) is theirs.
        """

        def product(left: Array, right: Array, out: Array) -> None:
            self._sum(left, right, bias, terms, channels, out)

        return product

    def gathered(
        self, left: Array, columns: Columns, bias: Array | None, terms: Terms, channels: slice,
        out: Array,
    ) -> bool:  # fmt: skip
        """Sum `left` (M, K) with columns that are gathered, in one pass, into `out` (N, C, ...).

        False, and nothing done, where no kernel sums so.
        """
        if not columns.count:
            return False
        known = self._ready.get(channels.start)
        if known is None or not known.are(left, columns.ends, bias):
            known = node_pass.rows(left, columns.ends, bias, terms, self.accumulator)
            if known is None:
                return False
            self._ready[channels.start] = known
        return self._sweep(known, columns, channels, out)

    def totals(self, numbers: Array, channels: slice, out: Array) -> None:
        """Sum `numbers` (K, C, P) over the first axis into `out` (C, P)."""
        depth, count, width = numbers.shape
        left = np.ones((1, depth), np.int16)
        right = numbers.reshape(depth, -1)
        self._sum(left, right, None, Terms(depth), channels, out.reshape(1, count * width))

    def _sum(
        self, left: Array, right: Array, bias: Array | None, terms: Terms, channels: slice,
        out: Array,
    ) -> None:  # fmt: skip
        seen, clipped = dots.measure(left, right, bias, terms, self.accumulator)
        exact = exact_sums(left, right, bias) if self._formatted else seen.final
        if self.accumulator.overflow == "error" and clipped.events.any():
            raise self._overflow(seen.low, seen.high)
        changed = clipped.values is not exact
        if not self.mark_unchanged:
            out[...] = clipped.values
        else:
            out[...] = UNCHANGED
            if changed:
                np.copyto(out, clipped.values, where=clipped.values != exact)
        assert self.tally is not None
        if len(self.tally.outputs) == 1:
            channels = slice(0, 1)
        rows = channels.stop - channels.start
        narrow = clipped.reshaped(rows) if changed else None
        part = self.tally.of(seen.reshaped(rows), narrow, in_rows(exact, rows))
        with self._lock:
            self.tally.take(channels, part)

    def _sweep(self, rows: Rows, columns: Columns, channels: slice, out: Array) -> bool:
        """Only sums that cannot overflow: those that do are measured by how far they are off."""
        if not self.mark_unchanged or self._formatted or not rows.safe:
            return False
        out[:, channels] = UNCHANGED
        self._take(channels, rows.tallied(columns))
        return True

    def _take(self, channels: slice, part: Tally) -> None:
        assert self.tally is not None
        folded = len(self.tally.outputs) == 1
        with self._lock:
            self.tally.take(slice(0, 1) if folded else channels, part.folded() if folded else part)

    def _overflow(self, low: Array, high: Array) -> ModelError:
        least, most = self.accumulator.range
        worst = int(self.accumulator.bits_for(low, high).max())
        return ModelError(
            f"a partial sum leaves [{least}, {most}], the range of {self.accumulator.bits} bits: "
            f"sums from {int(low.min())} to {int(high.max())} were seen",
            f"{worst} bits hold these; overflow 'saturate' counts them instead.",
        )


def exact_sums(left: Array, right: Array, bias: Array | None) -> Array:
    """The sums of exact products, int64, in no accumulator at all."""
    made = np.empty((len(left), right.shape[1]), np.int64)
    integers(left, right, made)
    return made if bias is None else made + bias[:, None]
