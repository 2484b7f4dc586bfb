"""Sums by the tiles of `interpreter.kernels.tiles`: limited, counted or observed.

`SumLanes` says which floats compute sums exactly in tiles, and what their lanes hold: all follows
from bounds. `kernels.steps` explains when a lane is exact. `TileTables` has statistics of sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from tracer.accumulators.engine.programs import Matrices, Program, products_may_change
from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec import Overflow, Register, effect_of
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.statistics import partial_sums
from tracer.accumulators.statistics.partial_sums import EXTREMES, Tally
from tracer.interpreter.numeric import parallel, tile_tasks
from tracer.interpreter.numeric.tile_tasks import Columns, Groups, Lanes
from tracer.support.types import Array

_EXACT = {32: 1 << 24, 64: 1 << 53}
"""Floats of so many bits hold every integer up to these."""


@dataclass(frozen=True)
class Factors:
    """The rows of a matrix (M, K) as floats, in the order of the terms; `bias` (M), int64."""

    left: Array
    bias: Array
    lanes: SumLanes
    groups: Groups

    @classmethod
    def of(cls, lanes: SumLanes, plan: Program, bits: int) -> Factors:
        """The left matrix, in floats of `bits`, with a bias for each row."""
        matrices = lanes.matrices
        in_order = np.array_equal(plan.sequence, np.arange(matrices.depth))
        left = matrices.left if in_order else matrices.left[:, plan.sequence]
        floats = left.astype(f"float{bits}")
        if lanes.accumulator.product_shift:
            floats *= 2.0**-lanes.accumulator.product_shift
        return cls(floats, np.broadcast_to(matrices.bias[:, 0], len(left)), lanes, plan.groups)

    def clip(
        self, columns: Columns, values: Array, events: Array | None,
        parameters: Array | None = None,
    ) -> None:  # fmt: skip
        """Writes limited sums, and the number of steps that left the range if asked.

        Without events `parameters` (M, 8) may say what bytes are written in place of sums.
        """
        steps, overflow = loaded("steps"), self.lanes.overflow
        if events is None:
            store = steps.VALUES if parameters is None else steps.BYTES
            self._run(steps.limiting(overflow), store, columns, [values], True, parameters)
        else:
            store = steps.VALUES_AND_EVENTS
            self._run(steps.counting(overflow), store, columns, [values, events], True)

    def count(self, columns: Columns, out: Array, parameters: Array | None, rare: bool) -> Array:
        """Writes limited sums, or bytes by `parameters` (M, 8); returns the four counts.

        `rare` is faster where few sums leave the range; sums without a range must be exact.
        """
        steps, overflow = loaded("steps"), self.lanes.overflow
        if rare:
            step, store = steps.EXTREMES, steps.rare_counts(overflow, parameters is not None)
        else:
            step = steps.counting(overflow)
            store = steps.COUNTS if parameters is None else steps.BYTES_AND_COUNTS
        tables = np.zeros((parallel.allowed(), steps.COUNTS_SIZE), np.int64)
        self._run(step, store, columns, [out], True, parameters, tables)
        counts: Array = tables.sum(0)[:4]
        return counts

    def tally(self, columns: Columns, out: Array, parameters: Array | None) -> Tally:
        """Writes limited sums, or bytes by `parameters` (M, 8); returns statistics by row.

        Sums without a range must be exact.
        """
        store = loaded("tally_stores").tally(self.lanes.overflow, parameters is not None)
        tables = TileTables.empty(8 * self.left.itemsize, len(self.left))
        step = loaded("steps").EXTREMES
        self._run(step, store, columns, [out], True, parameters, tables.words)
        return tables.tally(columns.count, self.lanes.accumulator)

    def observe(self, columns: Columns, final: Array, low: Array, high: Array) -> None:
        """Writes sums without a range, and their extremes on the way from 0."""
        step, store = loaded("steps").EXTREMES, loaded("steps").SUMS_AND_EXTREMES
        self._run(step, store, columns, [final, low, high], False)

    def own_events(self, columns: Columns, final: Array, events: Array) -> None:
        """Writes sums without a range, and the steps that left a register with its own width."""
        store = loaded("steps").VALUES_AND_EVENTS
        self._run(loaded("steps").FREE, store, columns, [final, events], False)

    def _run(
        self, step: Any, store: Any, columns: Columns, outs: list[Array], limited: bool,
        parameters: Array | None = None, tables: Array | None = None,
    ) -> None:  # fmt: skip
        parts, lanes = columns.matrices, self.lanes.lanes(limited)
        left = self.left.reshape(parts, -1, self.left.shape[1])
        bias = self.bias.reshape(parts, -1)
        ends = None if self.lanes.accumulator.is_bias_first else bias.astype(left.dtype)
        begins = (bias * (ends is None) + 0.5 * lanes.half).astype(left.dtype)
        if parameters is not None:
            parameters = parameters.reshape(parts, -1, parameters.shape[1])
        inner, register = None, self.lanes.inner
        if register is not None:  # register 0 has a range of its own
            steps = loaded("steps")
            limit = steps.counting if step.states == 1 else steps.limiting
            inner = limit(register.overflow).code
        step = replace(step, grouped=self.groups.registers > 0, ends=ends is not None,
                       inner=inner, product=self.lanes.product)  # fmt: skip
        flat = [out.reshape(-1).view(f"i{out.itemsize}") for out in outs]
        tile_tasks.run(step, store, left, begins, columns, flat, lanes, parameters, ends,
                       self.groups, tables)  # fmt: skip


def of_matrix(matrices: Matrices, sequence: Array) -> Columns:
    """The columns of the right matrix, in the order of the terms, for results (M, P)."""
    columns = matrices.right.shape[1]
    return Columns(matrices.right.reshape(-1), sequence * columns, (1, 1, columns),
                   (0, 0, 1), (0, columns, 1))  # fmt: skip


@dataclass(frozen=True)
class SumLanes:
    """The lanes of sums of these matrices, by a program, in an accumulator."""

    matrices: Matrices
    plan: Program | None
    accumulator: Accumulator

    @cached_property
    def limited_bits(self) -> int:
        """The bits of the smallest floats in which limited sums are exact; 0 if there are none."""
        if not self._suits or self.overflow not in loaded("steps").RULES:
            return 0
        most = min(max(self.accumulator.range[1], self._own_limit), self._bound) + 1
        modes = [self.overflow] if self.inner is None else [self.overflow, self.inner.overflow]
        if any(effect_of(mode).outside == "any" for mode in modes):  # it depends on all digits
            most += max(most, self._largest_product, self._largest_bias)
        return self._smallest(most)

    @cached_property
    def exact_bits(self) -> int:
        """The bits of the smallest floats in which sums without a range are exact; 0 if none."""
        most = self._bound + 1
        if self.inner is not None and effect_of(self.inner.overflow).outside == "any":
            most += max(most, self._largest_product)
        return self._smallest(most) if self._suits else 0

    @cached_property
    def overflow(self) -> Overflow:
        """The overflow mode; where no sum leaves the range, the simplest one."""
        leaves = self._bound > self.accumulator.range[1]
        return self.accumulator.overflow if leaves else "saturate"

    @property
    def inner(self) -> Register | None:
        """The range of register 0, if it is not the accumulator's."""
        return None if self.plan is None else self.plan.registers[0]

    @cached_property
    def product(self) -> Any:
        """The code of products that may change; else None."""
        if not self._changing:
            return None
        rounding = self.accumulator.product_rounding.name if self._shift else None
        overflow = self.accumulator.overflow if self._limits_products else None
        return loaded("steps").product(overflow, rounding)

    def lanes(self, limited: bool) -> Lanes:
        """What lanes hold of sums that are limited, or without a range."""
        symmetric = self.accumulator.is_symmetric
        most = min(self.accumulator.range[1], self._bound)
        outer = own = _lane(most, symmetric) if limited else (0, 0)
        if self.inner is not None:
            is_symmetric = effect_of(self.inner.overflow).is_symmetric
            own = _lane(min(self._own_limit, self._bound), is_symmetric)
        highest = self._highest_product if self._limits_products else None
        product = (0, 0) if highest is None else _lane(highest, symmetric)
        return Lanes(*outer, *own, *product, 2 << self._shift)

    @property
    def _suits(self) -> bool:
        """Whether tiles have the order and the products of these sums, with a bias for each row."""
        plan, accumulator = self.plan, self.accumulator
        if plan is None or accumulator.order.reorders or self.matrices.bias.shape[1] > 1:
            return False
        if any(plan.registers[min(1, len(plan.registers) - 1) :]):
            return False
        tiles = loaded("steps")
        if self.inner is not None and self.inner.overflow not in tiles.RULES:
            return False
        rounds = not self._shift or accumulator.product_rounding.name in tiles.ROUNDINGS
        return not self._changing or (accumulator.overflow in tiles.RULES and rounds)

    @cached_property
    def _changing(self) -> bool:
        return products_may_change(self.matrices, self.accumulator)

    @property
    def _shift(self) -> int:
        return self.accumulator.product_shift

    @cached_property
    def _own_limit(self) -> int:
        """The highest number of register 0, if it has a range of its own; else 0."""
        return 0 if self.inner is None else self.inner.range[1]

    @property
    def _highest_product(self) -> int | None:
        """The highest product, in units of its lowest bit that is kept; None has no limit."""
        bits = self.accumulator.product_bits
        return None if bits is None else self.accumulator.range_of(bits)[1]

    @property
    def _limits_products(self) -> bool:
        """Whether a rounded product may leave its range."""
        highest = self._highest_product
        return highest is not None and highest <= self.matrices.largest_term >> self._shift

    @cached_property
    def _bound(self) -> int:
        """A magnitude that no sum exceeds, whatever its registers and products become.

        It is at least 1: the limits 0 and -0 turn a sum of 0 into -0, whose bits count as changed.
        """
        if not self._own_limit and not self._changing:
            return max(1, self.matrices.bound)
        return max(1, self.matrices.depth * self._largest_product + self._largest_bias)

    @cached_property
    def _largest_bias(self) -> int:
        return int(np.abs(self.matrices.bias).max(initial=0))

    @property
    def _largest_product(self) -> int:
        """A magnitude that no product exceeds, rounded and limited."""
        rounded = self.matrices.largest_term + ((1 << self._shift) if self._shift else 0)
        highest = self._highest_product
        return rounded if highest is None else min(rounded, (highest + 1) << self._shift)

    def _smallest(self, most: int) -> int:
        """The bits of floats that hold halves up to `most`, the operands and changing products."""
        if not self.matrices.depth:
            return 0
        products = self.matrices.largest_term + 1 if self._changing else 0
        largest = max(*self.matrices.factors, 2 * most, 2 * products)
        return next((bits for bits, limit in _EXACT.items() if largest <= limit), 0)


def _lane(most: int, is_symmetric: bool) -> tuple[int, int]:
    """Twice the limit of a lane, and 1 where it holds the sum plus one half."""
    half = 0 if is_symmetric else 1
    return 2 * most + half, half


@dataclass(frozen=True, slots=True)
class TileTables:
    """Statistics of `rows` rows of sums in floats of `bits`, a table for each thread.

    `words` (threads, any), int64, are laid out as `kernels.tally_stores.Layout` says.
    """

    bits: int
    rows: int
    words: Array

    @classmethod
    def empty(cls, bits: int, rows: int) -> TileTables:
        """The tables of no sums."""
        layout = _layout(bits)
        words = np.zeros((parallel.allowed(), layout.size(rows)), np.int64)
        tables = cls(bits, rows, words)
        finals = tables._extremes[..., loaded("tally_stores").LEAST_FINAL :, :]
        finals[..., 0, :], finals[..., 1, :] = np.inf, -np.inf
        return tables

    def tally(self, columns: int, accumulator: Accumulator) -> Tally:
        """The statistics of `columns` sums in each row."""
        names, layout = loaded("tally_stores"), _layout(self.bits)
        tally = Tally.empty(self.rows, accumulator)
        tally.outputs[:] = columns
        histograms = self.words[:, : layout.rows].sum(0).reshape(3, -1)
        for name, number in (
            ("low_histogram", names.LOW),
            ("high_histogram", names.HIGH),
            ("final_histogram", names.FINAL),
        ):
            np.add.at(getattr(tally, name), _bins(self.bits), histograms[number])
        rows = self._rows
        widths = rows[..., : layout.words].sum(0).reshape(self.rows, 2, -1)
        counted = slice(1, 1 + layout.exponents)
        tally.prefix_widths[:, counted], tally.final_widths[:, counted] = widths.swapaxes(0, 1)
        words = rows[..., layout.words : layout.extremes]
        total, largest = words.sum(0), words[..., names.LARGEST].max(0)
        tally.saturation_events[:] = total[:, names.EVENTS]
        tally.outputs_changed[:] = total[:, names.CHANGED]
        tally.max_abs_error[:] = largest
        tally.error_sum[:] = total[:, [names.ERRORS_HIGH, names.ERRORS_LOW]]
        lanes, half = self._extremes, 0.0 if accumulator.is_symmetric else 0.5
        for number, name in enumerate(EXTREMES):
            best = np.min if name.endswith("min") else np.max
            getattr(tally, name)[:] = best(lanes[..., number, :], axis=(0, 2)) - half
        return tally

    @property
    def _rows(self) -> Array:
        """The words of each row: (threads, rows, any)."""
        layout = _layout(self.bits)
        return self.words[:, layout.rows :].reshape(len(self.words), self.rows, layout.row)

    @property
    def _extremes(self) -> Array:
        """The vectors of each row, floats: (threads, rows, 4, lanes)."""
        words = self._rows[..., _layout(self.bits).extremes :]
        lanes = words.view(f"float{self.bits}")
        return lanes.reshape(*lanes.shape[:2], len(EXTREMES), -1)


def _layout(bits: int) -> Any:
    return loaded("tally_stores").Layout(bits)


@cache
def _bins(bits: int) -> Array:
    """The bin of `bin_edges` that each bin of lanes lies in."""
    names, layout = loaded("tally_stores"), _layout(bits)
    number = np.arange(layout.signed)
    parts = 1 << names.PART_BITS
    octaves = np.exp2((number // parts + names.FIRST).astype(np.float64))
    least = np.ceil(octaves * (1 + number % parts / parts) - 0.5)
    sums = np.concatenate([least, -least - 1])
    return np.searchsorted(partial_sums.bin_edges(), sums, side="right") - 1
