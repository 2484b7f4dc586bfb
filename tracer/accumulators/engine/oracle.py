"""Defines in numpy what an accumulator computes: one product at a time, in 64-bit integers.

It is slow and plain. Tests compare the compiled kernels with it.
"""

from typing import assert_never

import numpy as np

from tracer.accumulators.spec import Overflow, Register
from tracer.accumulators.spec.accumulator import Accumulator, rounded, shifted
from tracer.accumulators.spec.orders import Level, Terms
from tracer.accumulators.statistics.partial_sums import Clipped, UnlimitedSums
from tracer.support.types import Array


def observe(
    left: Array, right: Array, bias: Array | None, terms: Terms, accumulator: Accumulator
) -> UnlimitedSums:
    """Returns the sums of `left` (M, K) times `right` (K, P) plus `bias` (M) without a range.

    Operands are integers whose sums of magnitudes are below 2^62. `terms` says what K consists of.
    Sums are in the unit of the accumulator, which shifts between levels make coarser.
    """
    run = _Run(accumulator, limited=False)
    start = accumulator.in_unit(_start(left, right, bias), terms)
    final = run.sums(_products(left, right, accumulator), start, terms)
    return UnlimitedSums(final, run.low, run.high, run.clips)


def emulate(
    left: Array, right: Array, bias: Array | None, terms: Terms, accumulator: Accumulator
) -> Clipped:
    """Returns the same sums, brought into the range of `accumulator` at every step.

    The mode `error` is computed as `saturate`; the caller raises if there are events. Values are in
    the unit of the products.
    """
    run = _Run(accumulator, limited=True)
    start = accumulator.in_unit(_start(left, right, bias), terms)
    values = run.sums(_products(left, right, accumulator), start, terms)
    return Clipped(values << accumulator.shift(terms), run.events + run.clips)


def into_range(values: Array, low: int, high: int, overflow: Overflow) -> Array:
    """Returns `values`, int64, brought into [low, high] by the overflow mode."""
    match overflow:
        case "saturate" | "symmetric" | "error":
            return np.clip(values, low, high)
        case "wrap":
            wrapped = (values.astype(np.uint64) - _unsigned(low)) & _unsigned(high - low)
            return (wrapped + _unsigned(low)).astype(np.int64)
        case "zero":
            return np.where((values < low) | (values > high), 0, values)
        case _:
            assert_never(overflow)


def _unsigned(number: int) -> np.uint64:
    return np.uint64(number % (1 << 64))


def _start(left: Array, right: Array, bias: Array | None) -> Array:
    offset = np.zeros(len(left), np.int64) if bias is None else bias.astype(np.int64)
    return np.repeat(offset[:, None], right.shape[1], axis=1)


def _products(left: Array, right: Array, accumulator: Accumulator) -> Array:
    """All products (M, P, K): rounded, and limited to `product_bits`, if the accumulator says so.

    A rounded product counts in units of 2^`product_shift` while it is limited.
    """
    products = left.astype(np.int64)[:, None, :] * right.astype(np.int64).T[None]
    shift, bits = accumulator.product_shift, accumulator.product_bits
    if shift:
        products = rounded(products, shift, accumulator.product_rounding)
    if bits is not None:
        products = into_range(products, *accumulator.range_of(bits), accumulator.overflow)
    return products << shift


class _Run:
    """Adds up stage by stage; records extremes if unlimited, events if limited, and clips.

    Clips are events of stages with a register of their own, which is in force in either case.
    """

    def __init__(self, accumulator: Accumulator, limited: bool) -> None:
        self._accumulator = accumulator
        self._limited = limited

    def sums(self, products: Array, bias: Array, terms: Terms) -> Array:
        """The final sums (M, P) of products (M, P, K)."""
        shape = products.shape[:-1]
        self.low, self.high, self.events, self.clips = (np.zeros(shape, np.int64) for _ in range(4))
        first = self._accumulator.is_bias_first
        order = self._accumulator.order
        values = order.arrange(products, bias if first else np.zeros_like(bias))
        stages = order.stages(terms)
        # how many products have been taken with each of them, depth first
        walk = np.zeros(1, np.intp)
        for stage in reversed(stages):
            walk = stage.groups[walk].ravel()
            walk = walk[walk >= 0]
        taken = np.zeros(products.shape[-1], np.int64)
        taken[walk] = np.arange(1, len(walk) + 1)
        for stage in stages:
            taken = np.where(stage.groups >= 0, taken[stage.groups], 0)
            taken = np.maximum.accumulate(taken, axis=1)
            totals = np.zeros((*shape, len(stage.groups)), np.int64)
            if first and stage is stages[-1]:
                totals = self._add(totals, bias[..., None], np.ones(1, bool), stage.register)
            for step, positions in enumerate(stage.groups.T):
                totals = self._add(totals, values[..., positions], positions >= 0, stage.register)
                if stage.spill is not None and stage.spills_after(step):
                    totals = self._spill(totals, stage.spill, taken[:, step])
            taken = taken.max(1, initial=0)
            values = shifted(totals, stage.shift, taken)
        if not first:
            values = self._add(values, bias[..., None], np.ones(1, bool), None)
        return values[..., 0]

    def _spill(self, totals: Array, spill: Level, taken: Array) -> Array:
        """The sums as they are read back: without low bits, in the range of the narrow register."""
        assert spill.register is not None
        narrowed = shifted(totals, spill.shift, taken)
        limited = into_range(narrowed, *spill.register.range, spill.register.overflow)
        self.clips += (limited != narrowed).sum(-1)
        read = limited << (spill.shift.bits if spill.shift else 0)
        return self._add(np.zeros_like(totals), read, np.ones(1, bool), None)

    def _add(
        self, totals: Array, terms: Array, has_term: Array, register: Register | None
    ) -> Array:
        """One step of every group that still has a term."""
        if not has_term.size or not terms.size:
            return totals
        sums = totals + terms
        if register is not None:
            limited = into_range(sums, *register.range, register.overflow)
            self.clips += (has_term & (limited != sums)).sum(-1)
            return np.where(has_term, limited, totals)
        if not self._limited:
            self.low = np.minimum(self.low, np.where(has_term, sums, 0).min(-1))
            self.high = np.maximum(self.high, np.where(has_term, sums, 0).max(-1))
            return np.where(has_term, sums, totals)
        low, high = self._accumulator.range
        self.events += (has_term & ((sums < low) | (sums > high))).sum(-1)
        limited = into_range(sums, low, high, self._accumulator.overflow)
        return np.where(has_term, limited, totals)
