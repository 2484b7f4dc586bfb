"""Sums by the tiles of `interpreter.kernels.tiles`: limited, counted or observed.

`Matrices` are those of a block of dot products, checked, with bounds of the sums that they can
have. A `Program` is an order of accumulation: it lists groups of terms, each of which is added up
as soon as its terms are. `SumLanes` says which floats compute sums exactly in tiles, and what their
lanes hold: all follows from bounds. `kernels.steps` explains when a lane is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec import Overflow, Register, effect_of
from tracer.accumulators.spec.accumulator import Accumulator, shifted
from tracer.accumulators.spec.orders import Order, Stage, Terms
from tracer.accumulators.statistics.partial_sums import Tally
from tracer.errors import ModelError
from tracer.interpreter.numeric import parallel, tile_tasks
from tracer.support.types import Array

_DTYPES = tuple(map(np.dtype, ("int8", "uint8", "int16", "int32", "int64")))
_EXACT = {32: 1 << 24, 64: 1 << 53}
"""Floats of so many bits hold every integer up to these."""
LIMIT = 1 << 62
"""Sums of magnitudes stay below it, so that no step leaves 64 bits."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """`left` (M, K) and `right` (K, P), as kernels read them; `bias`, int64, broadcasts to (M, P).

    `factors` are the largest magnitudes of the two matrices. `least` and `most` (M), int64, bound
    every partial sum of a row, whatever the order of its products and the bias; no partial sum has
    a magnitude above `bound`.
    """

    left: Array
    right: Array
    bias: Array
    factors: tuple[int, int]
    least: Array
    most: Array
    bound: int

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the sums: (M, P)."""
        return self.left.shape[0], self.right.shape[1]

    @property
    def depth(self) -> int:
        """K, the number of terms of a sum."""
        return self.left.shape[1]

    @property
    def largest_term(self) -> int:
        """A magnitude that no product exceeds."""
        return self.factors[0] * self.factors[1]

    def magnitudes(self) -> Matrices:
        """Returns the matrices of the magnitudes, for the same number of sums."""
        kind = np.int16 if max(self.factors) < 1 << 15 else np.int64
        left, right = (np.abs(side.astype(kind)) for side in (self.left, self.right))
        most = self.factors[1] * left.sum(1, np.int64)
        bounds = {"least": np.zeros_like(most), "most": most, "bound": int(most.max(initial=0))}
        return replace(self, left=left, right=right, **bounds)

    def of_rows(self, rows: Array) -> Matrices:
        """Returns the matrices of some rows of sums."""
        names = ("left", "bias", "least", "most")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def single_sums(self, rows: Array, columns: Array) -> Matrices:
        """Returns scattered sums as one row of ones times their products."""
        terms = self.left[rows].T.astype(np.int64) * self.right[:, columns]
        ones, largest = np.ones((1, self.depth), np.int64), self.largest_term
        bound = np.full(1, self.bound)
        return Matrices(ones, np.ascontiguousarray(terms), self.bias[rows].T, (1, largest),
                        -bound, bound, self.bound)  # fmt: skip


def checked(left: Array, right: Array, bias: Array | None, terms: Terms) -> Matrices:
    """Returns matrices that fit each other and 64 bits. Raises ModelError for others."""
    _check(left, right, bias, terms)
    rows, (low, high) = len(left), extent(right)
    low, high = min(low, 0), max(high, 0)
    offset = np.zeros(rows, np.int64) if bias is None else bias.astype(np.int64)
    largest_bias = 0 if bias is None else max(map(abs, extent(bias)))
    factors = max(map(abs, extent(left))), max(-low, high)
    matrices = _readable(left), _readable(right)
    if left.shape[1] * factors[0] <= 1 << 24:  # exact in float32, whose sums are the fastest
        floats, ones = matrices[0].astype(np.float32), np.ones(left.shape[1], np.float32)
        total, size = ((each @ ones).astype(np.int64) for each in (floats, np.abs(floats)))
    else:
        wide = matrices[0].astype(np.int64)
        total, size = wide.sum(1), np.abs(wide).sum(1)
    # magnitudes of the positive and of the negative numbers of each row, modulo 2^64
    up, down = (size + total) >> 1, (size - total) >> 1
    if left.shape[1] * factors[0] * factors[1] + largest_bias >= LIMIT:
        sizes = [np.abs(side.astype(np.float64)) for side in (left, right, offset)]
        sums = sizes[0] @ sizes[1] + sizes[2][:, None]
        bound = int(sums.max(initial=0) * (1 + 1e-9))  # more than float64 can have rounded off
        if bound >= LIMIT:
            raise ModelError(
                f"sums of {left.shape[1]} products of up to {factors[0]} times {factors[1]}",
                "The sum of the magnitudes of products and bias must be below 2^62.",
            )
        least, most = np.full(rows, -bound), np.full(rows, bound)
    else:
        most = up * high - down * low + np.maximum(offset, 0)
        least = up * low - down * high + np.minimum(offset, 0)
        bound = max(int(most.max(initial=0)), -int(least.min(initial=0)))
    return Matrices(*matrices, offset[:, None], factors, least, most, bound)


def bounded_matrices(left: Array, right: Array, left_range: tuple[int, int]) -> Matrices:
    """Matrices that fit each other, bounded by the range of the left one, without a bias."""
    rows, factors = len(left), tuple(max(map(abs, ends)) for ends in (left_range, extent(right)))
    bound = left.shape[1] * factors[0] * factors[1]
    bounds = np.full(rows, -bound), np.full(rows, bound)
    zeros = np.zeros((rows, 1), np.int64)
    return Matrices(_readable(left), right, zeros, (factors[0], factors[1]), *bounds, bound)


def extent(array: Array) -> tuple[int, int]:
    """The lowest and the highest number; 0 for an empty array."""
    return (int(array.min()), int(array.max())) if array.size else (0, 0)


def _check(left: Array, right: Array, bias: Array | None, terms: Terms) -> None:
    for name, array in (("left", left), ("right", right), ("bias", bias)):
        if array is not None and array.dtype.kind not in "iu":
            raise ModelError(
                f"the {name} operand of exact sums has type {array.dtype}", "It must be integers."
            )
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise ModelError(
            f"matrices of {list(left.shape)} and {list(right.shape)} cannot be multiplied"
        )
    if terms.count != left.shape[1]:
        raise ModelError(
            f"{terms.channels} channels, windows of {terms.window}: not {left.shape[1]} terms"
        )
    if bias is not None and bias.shape != (left.shape[0],):
        raise ModelError(f"a bias of shape {list(bias.shape)} for {left.shape[0]} rows")


def _readable(array: Array) -> Array:
    """The array, contiguous, in a type that the kernels read."""
    return np.ascontiguousarray(array, None if array.dtype in _DTYPES else np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Terms in the order they are taken, and what is done with them.

    `sequence`, int64, are positions among the products. `groups` are those of their terms, in which
    registers are added up; `spills`, int64, is 1 for those after which the last one is narrowed.
    The sums of each of `stages` have a register.
    """

    sequence: Array
    groups: tile_tasks.Groups
    spills: Array
    stages: tuple[Stage, ...]

    @property
    def registers(self) -> tuple[Register | None, ...]:
        """The range of each register, or None for the accumulator's."""
        return tuple(stage.register for stage in self.stages)


@lru_cache(maxsize=64)
def program(order: Order, terms: Terms) -> Program | None:
    """The program of an order; None if some product or sum is not added exactly once."""
    stages = order.stages(terms)
    if not _is_tree(terms.count, stages):
        return None
    sequence: list[int] = []
    groups: list[list[int]] = []

    def add_up(level: int, group: int) -> None:
        """Adds a group to its register; one that is empty changes no register."""
        positions = [each for each in stages[level].groups[group].tolist() if each >= 0]
        for step, position in enumerate(positions):
            before = len(groups)
            if level:
                add_up(level - 1, position)
                if len(groups) > before:
                    groups[-1][1] = level
            else:
                sequence.append(position)
                if step and not stages[0].spills_after(step - 1):
                    groups[-1][0] += 1
                else:
                    groups.append([1, 0, 0])
            if groups and stages[level].spills_after(step):
                groups[-1][2] = 1

    add_up(len(stages) - 1, 0)
    numbers = np.array(groups, np.int64).reshape(-1, 3)
    joined = tile_tasks.Groups(np.ascontiguousarray(numbers[:, :2]), len(stages) - 1)
    return Program(np.array(sequence, np.int64), joined, numbers[:, 2], stages)


def products_may_change(matrices: Matrices, accumulator: Accumulator) -> bool:
    """Whether products are rounded, or may leave the range of `product_bits`."""
    if accumulator.product_shift:
        return True
    if accumulator.product_bits is None:
        return False
    low, high = accumulator.range_of(accumulator.product_bits)
    return matrices.largest_term > min(high, -low)


def _is_tree(count: int, stages: tuple[Stage, ...]) -> bool:
    """Whether every product, and every sum but the last, goes into one sum."""
    for stage in stages:
        positions = stage.groups[stage.groups >= 0]
        if not np.array_equal(np.sort(positions), np.arange(count)):
            return False
        count = len(stage.groups)
    return count == 1


@dataclass(frozen=True)
class Factors:
    """The rows of a matrix (M, K) as floats, in the order of the terms; `bias` (M), int64."""

    left: Array
    bias: Array
    lanes: SumLanes
    groups: tile_tasks.Groups

    @classmethod
    def of(cls, lanes: SumLanes, plan: Program, bits: int) -> Factors:
        """The left matrix, in floats of `bits`, with a bias for each row."""
        matrices = lanes.matrices
        in_order = np.array_equal(plan.sequence, np.arange(matrices.depth))
        left = matrices.left if in_order else matrices.left[:, plan.sequence]
        floats = left.astype(f"float{bits}")
        if lanes.accumulator.product_shift:
            floats *= 2.0**-lanes.accumulator.product_shift
        bias = shifted(matrices.bias[:, 0], plan.stages[0].shift)
        return cls(floats, np.broadcast_to(bias, len(left)), lanes, plan.groups)

    def clip(
        self, columns: tile_tasks.Columns, values: Array, events: Array | None,
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

    def count(
        self, columns: tile_tasks.Columns, out: Array, parameters: Array | None, rare: bool
    ) -> Array:
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

    def tally(self, columns: tile_tasks.Columns, out: Array, parameters: Array | None) -> Tally:
        """Writes limited sums, or bytes by `parameters` (M, 8); returns statistics by row.

        Sums without a range must be exact.
        """
        stores = loaded("tally_stores")
        store = stores.tally(self.lanes.overflow, parameters is not None)
        tables = stores.TileTables.empty(8 * self.left.itemsize, len(self.left))
        step = loaded("steps").EXTREMES
        self._run(step, store, columns, [out], True, parameters, tables.words)
        tally: Tally = tables.tally(columns.count, self.lanes.accumulator)
        return tally

    def observe(self, columns: tile_tasks.Columns, final: Array, low: Array, high: Array) -> None:
        """Writes sums without a range, and their extremes on the way from 0."""
        step, store = loaded("steps").EXTREMES, loaded("steps").SUMS_AND_EXTREMES
        self._run(step, store, columns, [final, low, high], False)

    def own_events(self, columns: tile_tasks.Columns, final: Array, events: Array) -> None:
        """Writes sums without a range, and the steps that left a register with its own width."""
        store = loaded("steps").VALUES_AND_EVENTS
        self._run(loaded("steps").FREE, store, columns, [final, events], False)

    def _run(
        self, step: Any, store: Any, columns: tile_tasks.Columns, outs: list[Array], limited: bool,
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
                       inner=inner, product=self.lanes.product,
                       passed=self.lanes.passed)  # fmt: skip
        flat = [out.reshape(-1).view(f"i{out.itemsize}") for out in outs]
        tile_tasks.run(step, store, left, begins, columns, flat, lanes, parameters, ends,
                       self.groups, tables)  # fmt: skip


def of_matrix(matrices: Matrices, sequence: Array) -> tile_tasks.Columns:
    """The columns of the right matrix, in the order of the terms, for results (M, P)."""
    columns = matrices.right.shape[1]
    return tile_tasks.Columns(matrices.right.reshape(-1), sequence * columns, (1, 1, columns),
                   (0, 0, 1), (0, columns, 1))  # fmt: skip


@dataclass(frozen=True)
class SumLanes:
    """The lanes of sums of these matrices, by a program, in an accumulator."""

    matrices: Matrices
    plan: Program
    accumulator: Accumulator

    @cached_property
    def limited_bits(self) -> int:
        """The bits of the smallest floats in which limited sums are exact; 0 if there are none."""
        if not self._suits or self.accumulator.is_unsigned:
            return 0
        if self.overflow not in loaded("steps").RULES:
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
        return self.plan.registers[0]

    @cached_property
    def product(self) -> Any:
        """The code of products that may change; else None."""
        if not self._changing:
            return None
        rounding = self.accumulator.product_rounding.name if self._shift else None
        overflow = self.accumulator.overflow if self._limits_products else None
        return loaded("steps").product(overflow, rounding)

    @property
    def passed(self) -> Any:
        """The code of what leaves register 0, if a shift follows; else None."""
        shift = self.plan.stages[0].shift
        return None if shift is None else loaded("steps").passing(shift.bits, shift.rounding)

    def lanes(self, limited: bool) -> tile_tasks.Lanes:
        """What lanes hold of sums that are limited, or without a range."""
        symmetric = self.accumulator.is_symmetric
        most = min(self.accumulator.range[1], self._bound)
        outer = own = _lane(most, symmetric) if limited else (0, 0)
        if self.inner is not None:
            is_symmetric = effect_of(self.inner.overflow).is_symmetric
            own = _lane(min(self._own_limit, self._bound), is_symmetric)
        highest = self._highest_product if self._limits_products else None
        product = (0, 0) if highest is None else _lane(highest, symmetric)
        return tile_tasks.Lanes(*outer, *own, *product, 2 << self._shift)

    @property
    def _suits(self) -> bool:
        """Whether tiles have the order and the products of these sums, with a bias for each row."""
        plan, accumulator = self.plan, self.accumulator
        if accumulator.order.reorders or self.matrices.bias.shape[1] > 1:
            return False
        if accumulator.is_unsigned and accumulator.product_bits is not None:
            return False
        if any(plan.registers[min(1, len(plan.registers) - 1) :]) or plan.spills.any():
            return False
        tiles = loaded("steps")
        passed = plan.stages[0].shift
        if any(stage.shift for stage in plan.stages[1:]) or (
            passed is not None and passed.rounding not in tiles.ROUNDINGS
        ):
            return False
        own = self.inner
        if own is not None and (own.unsigned or own.overflow not in tiles.RULES):
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
