"""Turns orders of accumulation into programs, and computes sums one by one.

A program lists groups of terms: each group is added up as soon as its terms are.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tracer.accumulators.engine.matrices import Matrices
from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import Order, Stage, Terms
from tracer.accumulators.spec.register import Register
from tracer.interpreter.numeric import parallel
from tracer.interpreter.numeric.tile_tasks import Groups
from tracer.support.types import Array

_COPIED = 1 << 20
"""Products of one block."""

Outs = tuple[Array, Array, Array]
"""int64 (M, P): final sums, and their least and greatest partial sums or, twice, their events."""


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
    numbers, by_sign = _rounding(plan.sequence, accumulator), accumulator.order.reorders
    width = max(_COPIED // max(matrices.depth * len(left), 1), 1)
    parts = parallel.pieces(matrices.shape[1], width)
    clips = np.empty((0, 0), np.int64) if clips is None else clips

    def block(index: int) -> None:
        part = parts[index]
        right = matrices.right[plan.sequence, part].T.astype(np.int64, order="C")
        sums = (out[:, part] for out in (*outs, clips))
        loaded("single_sums").run(
            left, right, plan.groups.groups, rules, *numbers, by_sign,
            observed, exact[:, part], start[:, part], *sums,
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
