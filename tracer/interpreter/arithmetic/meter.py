"""The dot products of one node under its accumulator, counted as they are made."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.arithmetic import dots
from tracer.interpreter.arithmetic.accumulator import Accumulator
from tracer.interpreter.arithmetic.bounds import (
    Bounds,
    datatype,
    guaranteed,
    guaranteed_of_ranges,
)
from tracer.interpreter.arithmetic.orders import Terms
from tracer.interpreter.arithmetic.tally import Tally
from tracer.interpreter.products import Product, integers
from tracer.interpreter.values import Array

KEPT = np.iinfo(np.int64).min
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


class Meter:
    """Sums blocks of dot products, from several threads, and tallies them.

    With `keeping` a sum that the accumulator did not change is written as KEPT.
    """

    def __init__(self, accumulator: Accumulator, keeping: bool) -> None:
        self.accumulator = accumulator
        self.keeping = keeping
        self.tally: Tally | None = None
        self.reduction: Reduction | None = None
        self._formatted = False
        self._lock = Lock()

    def begin(self, reduction: Reduction) -> None:
        """Say what is about to be summed; it is the same kind in every run."""
        if self.tally is None:
            self.tally = Tally.empty(reduction.channels, self.accumulator)
            self.reduction = reduction
            self._formatted = self.accumulator.formats(reduction.terms)

    def product(self, channels: slice, bias: Array | None, terms: Terms) -> Product:
        """What multiplies `left` (M, K) with `right` (K, P) into `out` (M, P), int64.

        The rows of `left` are `channels`, and `bias` (M) is theirs.
        """

        def product(left: Array, right: Array, out: Array) -> None:
            self._sum(left, right, bias, terms, channels, out)

        return product

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
        exact = _exact(left, right, bias) if self._formatted else seen.final
        if self.accumulator.overflow == "error" and clipped.events.any():
            raise self._overflow(seen.low, seen.high)
        changed = clipped.values is not exact
        if not self.keeping:
            out[...] = clipped.values
        else:
            out[...] = KEPT
            if changed:
                np.copyto(out, clipped.values, where=clipped.values != exact)
        assert self.tally is not None
        rows = channels.stop - channels.start
        narrow = clipped.reshaped(rows) if changed else None
        part = self.tally.of(seen.reshaped(rows), narrow, exact.reshape(rows, -1))
        with self._lock:
            self.tally.take(channels, part)

    def _overflow(self, low: Array, high: Array) -> ModelError:
        least, most = self.accumulator.range
        worst = int(self.accumulator.bits_for(low, high).max())
        return ModelError(
            f"a partial sum leaves [{least}, {most}], the range of {self.accumulator.bits} bits: "
            f"sums from {int(low.min())} to {int(high.max())} were seen",
            f"{worst} bits hold these; overflow 'saturate' counts them instead.",
        )


def _exact(left: Array, right: Array, bias: Array | None) -> Array:
    made = np.empty((len(left), right.shape[1]), np.int64)
    integers(left, right, made)
    return made if bias is None else made + bias[:, None]
