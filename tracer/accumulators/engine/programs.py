"""Turns orders of accumulation into programs, and computes sums one by one.

A program lists groups of terms: each group is added up as soon as its terms are. `Matrices` are
those of a block of dot products, checked, with bounds of the sums that they can have.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec import Register
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Order, Stage, Terms
from tracer.errors import ModelError
from tracer.interpreter.numeric import parallel
from tracer.interpreter.numeric.tile_tasks import Groups
from tracer.support.types import Array

_DTYPES = tuple(map(np.dtype, ("int8", "uint8", "int16", "int32", "int64")))

LIMIT = 1 << 62
"""Sums of magnitudes stay below it, so that no step leaves 64 bits."""
_COPIED = 1 << 20
"""Products of one block."""
Outs = tuple[Array, Array, Array]
"""int64 (M, P): final sums, and their least and greatest partial sums or, twice, their events."""


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


def checked(left: Array, right: Array, bias: Array | None, terms: Terms) -> Matrices:
    """Returns matrices that fit each other and 64 bits. Raises ModelError for others."""
    _check(left, right, bias, terms)
    rows, (low, high) = len(left), extent(right)
    low, high = min(low, 0), max(high, 0)
    offset = np.zeros(rows, np.int64) if bias is None else bias.astype(np.int64)
    largest_bias = 0 if bias is None else max(map(abs, extent(bias)))
    factors = max(map(abs, extent(left))), max(-low, high)
    matrices = _readable(left), _readable(right)
    up, down = _sizes(matrices[0], factors[0])
    if left.shape[1] * factors[0] * factors[1] + largest_bias >= LIMIT:
        bound = _exact_bound(left, right, offset)
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


def _sizes(rows: Array, largest: int) -> tuple[Array, Array]:
    """For each row, the magnitudes of positive and of negative numbers added up, modulo 2^64."""
    if rows.shape[1] * largest <= 1 << 24:  # exact in float32, whose sums are the fastest
        floats, ones = rows.astype(np.float32), np.ones(rows.shape[1], np.float32)
        total, size = ((each @ ones).astype(np.int64) for each in (floats, np.abs(floats)))
    else:
        wide = rows.astype(np.int64)
        total, size = wide.sum(1), np.abs(wide).sum(1)
    return (size + total) >> 1, (size - total) >> 1


def _readable(array: Array) -> Array:
    """The array, contiguous, in a type that the kernels read."""
    return np.ascontiguousarray(array, None if array.dtype in _DTYPES else np.int64)


def _exact_bound(left: Array, right: Array, bias: Array) -> int:
    """The largest sum of magnitudes of products and bias, for sums near 64 bits."""
    sizes, other_sizes = (np.abs(side.astype(np.float64)) for side in (left, right))
    sums = sizes @ other_sizes + np.abs(bias.astype(np.float64))[:, None]
    return int(sums.max(initial=0) * (1 + 1e-9))  # more than float64 can have rounded off


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Terms in the order they are taken, and what is done with them.

    `sequence`, int64, are positions among the products. `groups` are those of their terms, in which
    registers are added up. `registers` has for each its own range, or None for the accumulator's.
    """

    sequence: Array
    groups: Groups
    registers: tuple[Register | None, ...]

    @property
    def has_one_width(self) -> bool:
        """Whether every register has the width of the accumulator."""
        return all(register is None for register in self.registers)


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
        if not level and positions:
            sequence.extend(positions)
            groups.append([len(positions), 0])
        for position in positions if level else ():
            before = len(groups)
            add_up(level - 1, position)
            if len(groups) > before:
                groups[-1][1] = level

    add_up(len(stages) - 1, 0)
    joined = Groups(np.array(groups, np.int64).reshape(-1, 2), len(stages) - 1)
    return Program(np.array(sequence, np.int64), joined, tuple(s.register for s in stages))


def products_may_change(matrices: Matrices, accumulator: Accumulator) -> bool:
    """Whether products are rounded, or may leave the range of `product_bits`."""
    if accumulator.product_shift:
        return True
    if accumulator.product_bits is None:
        return False
    low, high = accumulator.range_of(accumulator.product_bits)
    return matrices.largest_term > min(high, -low)


def sum_by_program(
    matrices: Matrices, plan: Program, accumulator: Accumulator, start: Array, outs: Outs,
    observed: bool, clips: Array | None = None,
) -> None:  # fmt: skip
    """Computes sums in any order that has a program; without a range if `observed`.

    `clips` (M, P) receives the steps that left a register with a width of its own.
    """
    rules = _rules(matrices, plan, accumulator, observed)
    left = np.ascontiguousarray(matrices.left[:, plan.sequence], np.int64)
    bias = matrices.bias if accumulator.is_bias_first else np.zeros_like(matrices.bias)
    exact = np.broadcast_to(bias, matrices.shape)
    rule, by_sign = accumulator.product_rounding, accumulator.order.reorders
    number = loaded("single_sums").rounding_rule(rule.name)
    rounding = np.array([accumulator.product_shift, number], np.int64), rule.salts(plan.sequence)
    width = max(_COPIED // max(matrices.depth * len(left), 1), 1)
    parts = parallel.pieces(matrices.shape[1], width)
    clips = np.empty((0, 0), np.int64) if clips is None else clips

    def block(index: int) -> None:
        part = parts[index]
        right = matrices.right[plan.sequence, part].T.astype(np.int64, order="C")
        sums = tuple(out[:, part] for out in (*outs, clips))
        loaded("single_sums").run(
            left, right, plan.groups.groups, rules, rounding, (by_sign, observed),
            (exact[:, part], start[:, part]), sums,
        )  # fmt: skip

    parallel.run_blocks(len(parts), block)


def _rules(matrices: Matrices, plan: Program, accumulator: Accumulator, observed: bool) -> Array:
    """The rules (registers + 1, 3), int64, of the registers, and last of products.

    A rule is what to do outside the range, and the range.
    """
    kernels = loaded("single_sums")
    rule = kernels.rule_of(accumulator.overflow)
    rows = [
        (kernels.rule_of(register.overflow), *register.range)
        if register is not None
        else (kernels.EXACT if observed else rule, *accumulator.range)
        for register in plan.registers
    ]
    width, products = accumulator.product_bits, (kernels.EXACT, 0, 0)
    if width is not None and products_may_change(matrices, accumulator):
        products = (rule, *accumulator.range_of(width))
    return np.array([*rows, products], np.int64)


def _is_tree(count: int, stages: tuple[Stage, ...]) -> bool:
    """Whether every product, and every sum but the last, goes into one sum."""
    for stage in stages:
        positions = stage.groups[stage.groups >= 0]
        if not np.array_equal(np.sort(positions), np.arange(count)):
            return False
        count = len(stage.groups)
    return count == 1
