"""The accumulator's definition in numpy: every product, one at a time, in 64-bit integers.

Slow and plain. The compiled kernels have the same signatures, and are tested against these.
"""

from __future__ import annotations

import numpy as np

from tracer.accumulators.spec.accumulator import Accumulator, signed_range
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.statistics.sums import Clipped, Excursions
from tracer.support.types import Array


def observe(
    left: Array, right: Array, bias: Array | None, terms: Terms, accumulator: Accumulator
) -> Excursions:
    """Sums of `left` (M, K) times `right` (K, P) plus `bias` (M) as if there were no limit.

    Operands are integers; sums of their magnitudes must be below 2^62. `terms` says what K
    consists of.
    """
    run = _Run(accumulator, limited=False)
    final = run.sums(_products(left, right, accumulator), _start(left, right, bias), terms)
    return Excursions(final, run.low, run.high)


def emulate(
    left: Array, right: Array, bias: Array | None, terms: Terms, accumulator: Accumulator
) -> Clipped:
    """The same sums, brought back into the range of `accumulator` at every step.

    `error` is computed as `saturate`; its events are for the caller to raise.
    """
    run = _Run(accumulator, limited=True)
    values = run.sums(_products(left, right, accumulator), _start(left, right, bias), terms)
    return Clipped(values, run.events)


def brought_back(values: Array, low: int, high: int, overflow: str) -> Array:
    """`values`, int64, in the range [low, high], by what `overflow` does beyond it."""
    if overflow == "wrap":
        wrapped = (values.astype(np.uint64) - _unsigned(low)) & _unsigned(high - low)
        return (wrapped + _unsigned(low)).astype(np.int64)
    if overflow == "zero":
        return np.where((values < low) | (values > high), 0, values)
    return np.clip(values, low, high)


def _unsigned(number: int) -> np.uint64:
    return np.uint64(number % (1 << 64))


def _start(left: Array, right: Array, bias: Array | None) -> Array:
    wide = np.zeros(len(left), np.int64) if bias is None else bias.astype(np.int64)
    return np.repeat(wide[:, None], right.shape[1], axis=1)


def _products(left: Array, right: Array, accumulator: Accumulator) -> Array:
    """All products (M, P, K), in the width of products if they have one."""
    wide = left.astype(np.int64)[:, None, :] * right.astype(np.int64).T[None]
    if accumulator.product_bits is None:
        return wide
    return brought_back(wide, *accumulator.range_of(accumulator.product_bits), accumulator.overflow)


class _Run:
    """Adds up stage by stage, and notes where the sums have been."""

    def __init__(self, accumulator: Accumulator, limited: bool) -> None:
        self._accumulator = accumulator
        self._limited = limited

    def sums(self, products: Array, bias: Array, terms: Terms) -> Array:
        """The final sums (M, P) of products (M, P, K)."""
        shape = products.shape[:-1]
        self.low, self.high, self.events = (np.zeros(shape, np.int64) for _ in range(3))
        first = self._accumulator.bias == "first"
        order = self._accumulator.order
        values = order.arrange(products, bias if first else np.zeros_like(bias))
        stages = order.stages(terms)
        for stage in stages:
            totals = np.zeros((*shape, len(stage.groups)), np.int64)
            if first and stage is stages[-1]:
                totals = self._add(totals, bias[..., None], np.ones(1, bool), stage.bits)
            for places in stage.groups.T:
                totals = self._add(totals, values[..., places], places >= 0, stage.bits)
            values = totals
        if not first:
            values = self._add(values, bias[..., None], np.ones(1, bool), None)
        return values[..., 0]

    def _add(self, totals: Array, terms: Array, there: Array, bits: int | None) -> Array:
        """One step of every group that still has a term."""
        if not there.size or not terms.size:
            return totals
        sums = totals + terms
        if bits is not None:
            return np.where(there, np.clip(sums, *signed_range(bits)), totals)
        if not self._limited:
            self.low = np.minimum(self.low, np.where(there, sums, 0).min(-1))
            self.high = np.maximum(self.high, np.where(there, sums, 0).max(-1))
            return np.where(there, sums, totals)
        kept = brought_back(sums, *self._accumulator.range, self._accumulator.overflow)
        low, high = self._accumulator.range
        self.events += (there & ((sums < low) | (sums > high))).sum(-1)
        return np.where(there, kept, totals)
