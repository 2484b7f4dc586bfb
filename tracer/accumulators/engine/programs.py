"""Turns orders of accumulation into programs, and computes blocks of sums by their kernels.

A program lists the steps of an order: each group is added up as soon as its terms are. In the
order `sorted` the steps depend on the products, so it has a kernel of its own.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tracer.accumulators.engine import panels
from tracer.accumulators.engine.matrices import INT32, Matrices
from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.accumulator import Accumulator, signed_range
from tracer.accumulators.spec.orders import Order, Stage, Terms
from tracer.interpreter.numeric import parallel
from tracer.interpreter.numeric.tile_tasks import Groups
from tracer.support.types import Array

_TILE, _NARROWEST = 256, 16
"""The most and the fewest columns that a step of `program_sums` takes at a time."""
_COPIED = 1 << 20
"""Products of one block, where sums are computed one by one."""

Outs = tuple[Array, Array, Array]
"""int64 (M, P): final sums, and their least and greatest partial sums or, twice, their events."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Terms in the order they are taken, and what is done with them.

    `sequence`, int64, are positions among the products. `groups` are those of their terms, in which
    registers are added up. `bits` has for each register its own width, or None for the
    accumulator's.
    """

    sequence: Array
    groups: Groups
    bits: tuple[int | None, ...]

    @property
    def has_one_width(self) -> bool:
        """Whether every register has the width of the accumulator."""
        return all(bits is None for bits in self.bits)


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
    registers = Groups(np.array(groups, np.int64).reshape(-1, 2), len(stages) - 1)
    return Program(np.array(sequence, np.int64), registers, tuple(s.bits for s in stages))


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
    """Computes sums in any order that is a tree; without a range if `observed`.

    `clips` (M, P) receives the steps that left a register with a width of its own.
    """
    rules = _rules(matrices, plan, accumulator, observed)
    narrow = (
        _observes_int32(matrices, accumulator)
        if observed
        else _fits_int32(matrices, plan, accumulator)
    )
    if narrow:  # sums never leave a range that is wider than the lanes
        rules[:, 1:3] = np.clip(rules[:, 1:3], *signed_range(32))
    kernels, lane = loaded("program_sums"), np.dtype(np.int32 if narrow else np.int64)
    tile = min(_TILE, -(-matrices.shape[1] // _NARROWEST) * _NARROWEST)
    layout = panels.for_loops(matrices, plan.sequence, tile, lane)

    listed = [step for terms, last in plan.groups.groups.tolist()
              for step in (terms, *range(-1, -last - 1, -1))]  # fmt: skip
    steps = np.array(listed, np.int64)
    clips = np.empty((0, 0), np.int64) if clips is None else clips

    def block(rows: slice, columns: slice) -> None:
        left = layout.left[rows].reshape(-1)
        kernels.run(left, layout.depth, layout.panel(columns), layout.tile, steps, rules,
                    *_rounding(plan.sequence, accumulator), observed, start[rows, columns],
                    *(out[rows, columns] for out in (*outs, clips)))  # fmt: skip

    panels.run_in_blocks(matrices.shape, layout, block)


def sum_sorted(
    matrices: Matrices, plan: Program, accumulator: Accumulator, start: Array, outs: Outs,
    observed: bool,
) -> None:  # fmt: skip
    """Computes sums in the order `sorted`, one by one; each has its own order of terms."""
    rules = _rules(matrices, plan, accumulator, observed)
    left = matrices.left.astype(np.int64)
    bias = matrices.bias if accumulator.is_bias_first else np.zeros_like(matrices.bias)
    exact = np.broadcast_to(bias, matrices.shape)
    numbers = _rounding(np.arange(matrices.depth), accumulator)
    kernels = loaded("sorted_sums")
    width = max(_COPIED // max(matrices.depth * len(left), 1), 1)
    parts = parallel.pieces(matrices.shape[1], width)

    def block(index: int) -> None:
        part = parts[index]
        right = matrices.right[:, part].T.astype(np.int64, order="C")
        kernels.run(left, right, rules, *numbers, observed, exact[:, part], start[:, part],
                    *(out[:, part] for out in outs))  # fmt: skip

    parallel.run_blocks(len(parts), block)


def _observes_int32(matrices: Matrices, accumulator: Accumulator) -> bool:
    """Whether int32 lanes hold every sum without a range."""
    return matrices.bound < INT32 and not accumulator.product_shift


def _fits_int32(matrices: Matrices, plan: Program, accumulator: Accumulator) -> bool:
    """Whether int32 lanes hold every step of a program."""
    low, high = accumulator.range
    own = max((1 << bits - 1 for bits in plan.bits if bits is not None), default=0)
    reach = min(max(-low, high), matrices.bound)
    larger = max(matrices.largest_term, min(own, matrices.bound), reach)
    largest = max(*matrices.factors, matrices.largest_term, reach + larger)
    return largest < INT32 and not accumulator.product_shift


def _rules(matrices: Matrices, plan: Program, accumulator: Accumulator, observed: bool) -> Array:
    """The rules (registers + 1, 4), int64, of the registers, and last of products.

    A rule is what to do outside the range, the range, and whether events count.
    """
    kernels = loaded("program_sums")
    rule = kernels.rule_of(accumulator.overflow)
    rows = [
        (kernels.SATURATE, *signed_range(bits), 1)
        if bits is not None
        else (kernels.EXACT if observed else rule, *accumulator.range, 1)
        for bits in plan.bits
    ]
    width, products = accumulator.product_bits, (kernels.EXACT, 0, 0, 0)
    if width is not None and products_may_change(matrices, accumulator):
        products = (rule, *accumulator.range_of(width), 0)
    return np.array([*rows, products], np.int64)


def _rounding(positions: Array, accumulator: Accumulator) -> tuple[Array, Array]:
    """How kernels round products: the low bits dropped and the rule; a salt for each position."""
    rule = accumulator.product_rounding
    number = loaded("product_rounding").rule_of(rule.name)
    return np.array([accumulator.product_shift, number], np.int64), rule.salts(positions)


def _is_tree(count: int, stages: tuple[Stage, ...]) -> bool:
    """Whether every product, and every sum but the last, goes into one sum."""
    for stage in stages:
        positions = stage.groups[stage.groups >= 0]
        if not np.array_equal(np.sort(positions), np.arange(count)):
            return False
        count = len(stage.groups)
    return count == 1
