"""Computes the dot products of one node in its accumulator, and collects their statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np

from tracer.accumulators.engine import dots, node_pass
from tracer.accumulators.engine.integer_arithmetic import Finish
from tracer.accumulators.engine.node_pass import ColumnSource, Gathered, KeptPasses, NodePass
from tracer.accumulators.spec import WIDEST
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Order, Sequential, Terms
from tracer.accumulators.statistics.bounds import (
    Bounds,
    datatype,
    guaranteed,
    guaranteed_of_ranges,
    join,
)
from tracer.accumulators.statistics.partial_sums import (
    PartialSums,
    Tally,
    widest,
    widest_by_channel,
)
from tracer.errors import ModelError
from tracer.interpreter.numeric.products import Place, PlacedProduct, integers
from tracer.support.types import Array

Ends = int | tuple[int, ...]
"""The least or the greatest number of an operand, or one for each term."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """The dot products of a node: `terms` each, for `channels` output channels.

    `inputs` and `weights` are the ranges of the operands' types. `stored` (channels, K) are the
    weights if every run has the same. `bias` is (channels). With `padded` an input may be 0 even
    if its range lacks 0. A channel may have several `blocks`, each of which is a sum of its own:
    then `stored` is (channels * blocks, K), and the widest block counts. With `taps`, the inputs of
    a sum are 0 but for some positions of the window: those of one of these sets. `part` tells
    several kinds of sums of one node apart.
    """

    channels: int
    terms: Terms
    inputs: tuple[Ends, Ends]
    weights: tuple[int, int]
    stored: Array | None = None
    bias: Array | None = None
    padded: bool = False
    blocks: int = 1
    taps: tuple[tuple[int, ...], ...] = ()
    part: int = 0

    def same_bounds(self, other: Reduction) -> bool:
        """Whether the bounds of the sums are the same."""
        mine, theirs = (replace(each, stored=None, bias=None) for each in (self, other))
        return mine == theirs

    def compact(self) -> Reduction:
        """The same with stored weights in bytes, where bytes hold them: they stay to the end."""
        stored, byte = self.stored, np.iinfo(np.int8)
        if stored is None or not stored.size:
            return self
        fits = byte.min <= stored.min() and stored.max() <= byte.max
        return replace(self, stored=stored.astype(np.int8, copy=False)) if fits else self

    def bounds(self, accumulator: Accumulator) -> Bounds:
        """The bounds of the partial sums for any input."""
        parts = []
        for each in self._of_taps(accumulator.order):
            (low, high), bias = each._input_range, each.bias
            rule = each.terms, accumulator, each.padded
            if each.stored is None:
                ends = None if bias is None else (int(bias.min()), int(bias.max()))
                parts.append(guaranteed_of_ranges(each.weights, (low, high), ends, *rule))
            else:
                of_blocks = guaranteed(each.stored, low, high, bias, *rule)
                parts.append(of_blocks.widest(each.blocks))
        return join(parts)

    def datatype(self, accumulator: Accumulator) -> int:
        """Bits that hold any sum of products of these types, without a bias."""
        return max(
            datatype(each.terms, each.weights, each._input_range, None, accumulator)
            for each in self._of_taps(accumulator.order)
        )

    @property
    def _input_range(self) -> tuple[Array, Array]:
        """The least and the greatest inputs, one number or one for each term."""
        return np.asarray(self.inputs[0]), np.asarray(self.inputs[1])

    def _of_taps(self, order: Order) -> Iterator[Reduction]:
        """The same reduction for each set of taps. One after the other, zeros change no sum."""
        if not self.taps:
            yield self
        channels, window = self.terms.channels, self.terms.window
        for taps in self.taps:
            kept = np.zeros((channels, window), np.int64)
            kept[:, taps] = 1
            present = kept.reshape(-1)
            if type(order) is Sequential:
                stored = None if self.stored is None else self.stored[:, present > 0]
                terms = Terms(channels, (len(taps),))
                yield replace(self, terms=terms, stored=stored, taps=())
            else:
                low, high = ((end * present).tolist() for end in self._input_range)
                yield replace(self, inputs=(tuple(low), tuple(high)), taps=())


class SumRunner:
    """Computes blocks of dot products, from several threads, and adds them to a tally."""

    counts_by_channel = True
    """Whether statistics are of channels, so that rows must be channels."""

    def __init__(self, accumulator: Accumulator, passes: KeptPasses | None = None) -> None:
        """Runners of one node, of other widths too, may share their prepared `passes`."""
        self.accumulator = accumulator
        self.passes = passes or KeptPasses()
        self.tally: Tally | None = None
        self.reductions: list[Reduction] = []
        self._has_inner_widths = False
        self._lock = Lock()

    def fresh_copy(self) -> SumRunner:
        """A runner of the same sums without statistics."""
        return type(self)(self.accumulator, self.passes)

    def add(self, other: SumRunner) -> None:
        """Adds the statistics of a runner of the same node; batches may differ in size."""
        if other.tally is None:
            return
        if self.tally is None:
            self.tally = other.tally
        else:
            same_size = len(self.tally.outputs) == len(other.tally.outputs)
            self.tally = self.tally if same_size else self.tally.folded()
            self.tally.merge(other.tally if same_size else other.tally.folded())
        self.reductions += [
            each for each in other.reductions if not any(map(each.same_bounds, self.reductions))
        ]

    def partial_sums(self, node: str) -> PartialSums | None:
        """The statistics, with the bounds of the sums; None before the first run."""
        if self.tally is None:
            return None
        bounds = [each.bounds(self.accumulator) for each in self.reductions]
        bits, channels = [bound.bits for bound in bounds], len(self.tally.outputs)
        inner = [bound.inner_bits for bound in bounds if bound.inner_bits is not None]
        return PartialSums(
            node=node,
            tally=self.tally,
            guaranteed=widest(bits),
            guaranteed_any_order=widest([bound.any_order_bits for bound in bounds]),
            guaranteed_channels=widest_by_channel(bits, channels),
            datatype=max(each.datatype(self.accumulator) for each in self.reductions),
            guaranteed_inner=widest(inner) if inner else None,
            guaranteed_inner_channels=widest_by_channel(inner, channels) if inner else None,
        )

    def begin(self, reduction: Reduction) -> None:
        """Announces the next sums; their sizes may change from run to run.

        Where the number of channels changes, all channels are counted as one. Raises ModelError for
        widths of another number of channels.
        """
        widths = len(self.accumulator.widths)
        if widths and widths != reduction.channels:
            raise ModelError(
                f"widths for {widths} channels, and the node has {reduction.channels}",
                "Give one for each output channel, or one for all.",
            )
        if not self.counts_by_channel:
            self._has_inner_widths = self.accumulator.has_inner_widths(reduction.terms)
            return
        if self.tally is None:
            self.tally = Tally.empty(reduction.channels, self.accumulator)
            self._has_inner_widths = self.accumulator.has_inner_widths(reduction.terms)
        elif len(self.tally.outputs) not in (1, reduction.channels):
            self.tally = self.tally.folded()
        if not any(reduction.same_bounds(earlier) for earlier in self.reductions):
            self.reductions.append(reduction.compact())

    def product(self, channels: slice, bias: Array | None, terms: Terms) -> PlacedProduct:
        """The function that multiplies `left` (M, K) with `right` (K, P) into `out` (M, P), int64.

        The rows of `left`, and `bias` (M), are those of `channels`.
        """

        def product(left: Array, right: Array, out: Array, _: Place) -> None:
            for rows, those, accumulator in self._by_width(channels):
                own = None if bias is None else bias[rows]
                out[rows] = self._sum((left[rows], right, own, terms, accumulator), those)

        return product

    def _by_width(
        self, channels: slice
    ) -> Iterator[tuple[slice | Array, slice | Array, Accumulator]]:
        """Yields which of `channels` have one width, as places within them and as their numbers."""
        if not self.accumulator.widths:
            yield slice(None), channels, self.accumulator
            return
        widths = np.array(self.accumulator.widths[channels])
        for bits in np.unique(widths).tolist():
            rows = np.flatnonzero(widths == bits)
            yield rows, rows + channels.start, self.accumulator.of_channels(bits)

    def sum_gathered(self, sums: Gathered, out: Array, finish: Finish | None = None) -> bool:
        """Writes the sums to `out` (N, M, ...), int64, in one pass; with `finish` bytes of them.

        Returns False, and does nothing, where no kernel supports the pass.
        """
        one_step = finish is None or finish.floats.step.size == 1
        node_pass = self._prepared(sums) if sums.rows_are_channels or one_step else None
        if node_pass is not None:
            rows = len(sums.left)
            parameters = None if finish is None else finish.bytes.parameters(finish.floats, rows)
            self._run_pass(node_pass, sums.columns, out, parameters)
        return node_pass is not None

    def _prepared(self, sums: Gathered) -> NodePass | None:
        if self._has_inner_widths or self.accumulator.widths or not sums.columns.columns.count:
            return None
        if not sums.rows_are_channels:
            return None if self.counts_by_channel else node_pass.prepared(sums, self.accumulator)
        kept = self.passes.find(sums, self.accumulator)
        if kept is not None:
            return kept
        ready = node_pass.prepared(sums, self.accumulator)
        if ready is not None:
            self.passes.keep(ready)
        return ready

    def sum_first_axis(self, numbers: Array, channels: slice, out: Array) -> None:
        """Sums `numbers` (K, C, P) over the first axis into `out` (C, P)."""
        depth, _, width = numbers.shape
        left = np.ones((1, depth), np.int16)
        for rows, those, accumulator in self._by_width(channels):
            part = numbers[:, rows]
            right = part.reshape(depth, part.shape[1] * width)
            sums = self._sum((left, right, None, Terms(depth), accumulator), those)
            out[rows] = sums.reshape(part.shape[1:])

    def _sum(self, case: dots.Case, channels: slice | Array) -> Array:
        """Returns sums of these channels, and adds them to the tally.

        Raises ModelError for an overflow that is an error.
        """
        left, right, bias, _, accumulator = case
        sums, clipped = dots.measure(*case)
        exact = dots.exact_sums(left, right, bias) if self._has_inner_widths else sums.final
        if accumulator.overflow == "error" and clipped.events.any():
            raise self._overflow_error(accumulator, sums.low, sums.high)
        assert self.tally is not None
        if len(self.tally.outputs) == 1:
            channels = slice(0, 1)
        changed = clipped if clipped.values is not exact else None
        count = channels.stop - channels.start if isinstance(channels, slice) else len(channels)
        part = Tally.empty(0, accumulator).of(sums, changed, exact, count)
        with self._lock:
            self.tally.take(channels, part)
        return clipped.values

    def _run_pass(
        self, node_pass: NodePass, columns: ColumnSource, out: Array, parameters: Array | None
    ) -> None:
        """Writes limited sums, or bytes by `parameters`, and adds their statistics."""
        part = node_pass.tally(columns, out.reshape(-1), parameters)
        if self.accumulator.overflow == "error" and part.saturation_events.any():
            raise self._overflow_error(self.accumulator, part.acc_min, part.acc_max)
        assert self.tally is not None
        with self._lock:
            if len(self.tally.outputs) != len(part.outputs):
                part = part.folded(len(self.tally.outputs))
            self.tally.take(slice(None), part)

    @staticmethod
    def _overflow_error(accumulator: Accumulator, low: Array, high: Array) -> ModelError:
        least, most = accumulator.range
        bits = int(accumulator.bits_for(low, high).max())
        held = f"{bits} bits hold" if bits <= WIDEST else "No unsigned number holds"
        return ModelError(
            f"a partial sum leaves [{least}, {most}], the range of {accumulator.bits} bits: "
            f"sums from {int(low.min())} to {int(high.max())} occurred",
            f"{held} these; overflow 'saturate' counts them instead.",
        )


def exact_product(left: Array, right: Array, out: Array, _: Place) -> None:
    """Writes exact sums, int64, without a range."""
    integers(left, right, out)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of all channels together at the accumulator's own width; as in `Tally`."""

    overflow_outputs: int = 0
    transient_outputs: int = 0
    persistent_outputs: int = 0
    saturation_events: int = 0
    outputs_changed: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, n) + getattr(other, n) for n in self.__slots__))


class OverflowCounter(SumRunner):
    """Computes the same sums, with `counts` in place of statistics.

    It skips sums that cannot leave the range by their bounds.
    """

    counts_by_channel = False

    def __init__(self, accumulator: Accumulator, passes: KeptPasses | None = None) -> None:
        super().__init__(accumulator, passes)
        self.counts = Counts()

    def _sum(self, case: dots.Case, channels: slice | Array) -> Array:
        left, right, bias, _, accumulator = case
        low, high = accumulator.range
        final, clipped = dots.final_and_clipped(*case)
        exact = dots.exact_sums(left, right, bias) if self._has_inner_widths else final
        changed = clipped.values != exact
        # An output has events exactly if it overflows: its first step outside is an exact sum.
        flags = clipped.events, (final < low) | (final > high), changed
        outside, persistent, changes = (int(np.count_nonzero(each)) for each in flags)
        self._add(outside, persistent, int(clipped.events.sum()), changes)
        return clipped.values

    def _run_pass(
        self, node_pass: NodePass, columns: ColumnSource, out: Array, parameters: Array | None
    ) -> None:
        flat = out.reshape(-1)
        if node_pass.cannot_overflow:
            node_pass.clip(columns, flat, parameters)
        else:
            self._add(*node_pass.count(columns, flat, parameters).tolist())

    def _add(self, outside: int, persistent: int, events: int, changed: int) -> None:
        with self._lock:
            self.counts += Counts(outside, outside - persistent, persistent, events, changed)


class LimitedSums(SumRunner):
    """Computes the same sums, without statistics."""

    counts_by_channel = False

    def _sum(self, case: dots.Case, channels: slice | Array) -> Array:
        return dots.final_and_clipped(*case)[1].values

    def _run_pass(
        self, node_pass: NodePass, columns: ColumnSource, out: Array, parameters: Array | None
    ) -> None:
        node_pass.clip(columns, out.reshape(-1), parameters)
