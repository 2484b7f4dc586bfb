"""Blocks of exact sums in any order, by programs, and in the order that depends on the terms."""

from __future__ import annotations

import numpy as np

from tracer.accumulators.engine import panels
from tracer.accumulators.engine.matrices import Operands
from tracer.accumulators.engine.programs import Program, evened, program
from tracer.accumulators.kernels import loaded
from tracer.accumulators.spec.accumulator import Accumulator, signed_range
from tracer.accumulators.spec.orders import Terms
from tracer.interpreter.numeric import parallel
from tracer.support.types import Array

_TILE, _NARROWEST = 256, 16
"""Columns that the steps of a program take at a time."""
_LONG = 3
"""Terms of a step, on average, from which sums are kept in vector registers."""
_COPIED = 1 << 20
"""Products of one block, where sums are made one by one."""
_INT32 = 1 << 31


def by_program(
    given: Operands,
    terms: Terms,
    accumulator: Accumulator,
    start: Array,
    outs: tuple[Array, Array, Array],
    observed: bool,
) -> None:
    """Any order that is a tree, and any overflow."""
    plan, brought = program(accumulator.order, terms), bites(given, accumulator)
    even = evened(accumulator.order, terms)
    assert plan is not None and even is not None
    rules = _rules(plan, accumulator, brought, limited=not observed)
    narrow = given.bound < _INT32 if observed else _narrow(given, plan, accumulator)
    if narrow:  # a range beyond the lanes is never left
        rules[:, 1:3] = np.clip(rules[:, 1:3], *signed_range(32))
    staged, registers = loaded("program_sums"), loaded("program_sums_vector")
    start = np.broadcast_to(start, given.shape)
    if narrow and _dense(given, plan, accumulator, observed):
        if plan.bits == (None, None):
            _by_groups(given, even, rules[0, 1:3], start, outs, observed)
            return
        rules[rules[:, 0] == staged.EXACT, 1:3] = signed_range(32)
        laid, steps, run = panels.dense(given, even, 32), even.steps, registers.run
    else:
        lane = np.dtype(np.int32 if narrow else np.int64)
        tile = min(_TILE, -(-given.shape[1] // _NARROWEST) * _NARROWEST)
        laid, steps, run = panels.plain(given, plan, tile, lane), plan.steps, staged.run

    def block(rows: slice, part: slice) -> None:
        run(laid.rows(rows), laid.depth, laid.panel(part), laid.tile, steps, rules,
            observed, start[rows, part], *(out[rows, part] for out in outs))  # fmt: skip

    panels.shared_out(given, laid, block)


def _by_groups(
    given: Operands, even: Program, limits: Array, start: Array,
    outs: tuple[Array, Array, Array], observed: bool,
) -> None:  # fmt: skip
    """Orders of two stages in one range: groups, and their sum."""
    kernels, laid = loaded("grouped_sums"), panels.dense(given, even, 32)
    lengths, band = even.steps[even.steps > 0], loaded("sequential_sums").ROWS
    ends = limits.astype(np.int32)
    safe = np.empty((-(-len(given.left) // band), len(lengths)), np.bool_)
    if not observed:
        reach = np.array([*given.span, *limits], np.int64)
        kernels.within(given.left, even.sequence, lengths, reach, safe)
    width, flat = given.shape[1], [out.reshape(-1) for out in outs]

    def block(some: slice, part: slice) -> None:
        bands = slice(some.start // band, -(-some.stop // band))
        rows = slice(bands.start * band, bands.stop * band)
        left, pairs = laid.left[rows].reshape(-1), laid.pairs[rows].reshape(-1)
        place = some.start * width + part.start
        if observed:
            kernels.observe(left, laid.depth, laid.panel(part), laid.tile, lengths,
                            start[some, part], *flat, place, width)  # fmt: skip
        else:
            kernels.clip(left, pairs, laid.depth, laid.panel(part), laid.tile, lengths, safe[bands],
                         start[some, part], ends, *flat[:2], place, width)  # fmt: skip

    panels.shared_out(given, laid, block)


def grouped(given: Operands, plan: Program, accumulator: Accumulator) -> bool:
    """Whether a kernel clips groups of terms, and sums those plainly that stay within."""
    narrow = _narrow(given, plan, accumulator)
    dense = _dense(given, plan, accumulator, observed=False)
    return narrow and dense and plan.bits == (None, None)


def _dense(given: Operands, plan: Program, accumulator: Accumulator, observed: bool) -> bool:
    """Whether steps are long enough for vector registers, and saturate, or do nothing."""
    saturates = observed or accumulator.overflow not in ("wrap", "zero")
    long = len(plan.sequence) >= _LONG * len(plan.steps)
    return saturates and long and not bites(given, accumulator)


def balanced(
    given: Operands,
    terms: Terms,
    accumulator: Accumulator,
    start: Array,
    outs: tuple[Array, Array, Array],
    observed: bool,
) -> None:
    """The order `sorted`, one sum at a time: each has an order of its own."""
    plan, brought = program(accumulator.order, terms), bites(given, accumulator)
    assert plan is not None
    rules = _rules(plan, accumulator, brought, limited=not observed)
    left = given.left.astype(np.int64)
    exact = given.bias if accumulator.bias == "first" else np.zeros_like(given.bias)
    exact, start = (np.broadcast_to(begun, given.shape) for begun in (exact, start))
    kernels = loaded("sorted_sums")
    wide = max(_COPIED // max(given.depth * len(left), 1), 1)
    parts = parallel.pieces(given.shape[1], wide)

    def block(index: int) -> None:
        part = parts[index]
        right = given.right[:, part].T.astype(np.int64, order="C")
        kernels.run(left, right, rules, observed, exact[:, part], start[:, part],
                    *(out[:, part] for out in outs))  # fmt: skip

    parallel.run_blocks(len(parts), block)


def bites(given: Operands, accumulator: Accumulator) -> bool:
    """Whether products may leave the width they have of their own."""
    if accumulator.product_bits is None:
        return False
    low, high = accumulator.range_of(accumulator.product_bits)
    return given.term > min(high, -low)


def _narrow(given: Operands, plan: Program, accumulator: Accumulator) -> bool:
    """Whether int32 lanes hold every step of a program."""
    low, high = accumulator.range
    own = max((1 << bits - 1 for bits in plan.bits if bits is not None), default=0)
    reach = min(max(-low, high), given.bound)
    larger = max(given.term, min(own, given.bound), reach)
    return max(*given.factors, given.term, reach + larger) < _INT32


def _rules(plan: Program, accumulator: Accumulator, brought: bool, limited: bool) -> Array:
    """What each register does beyond its range, and last what is done to products."""
    kernels = loaded("program_sums")
    rule = {"wrap": kernels.WRAP, "zero": kernels.ZERO}.get(accumulator.overflow, kernels.SATURATE)
    rows = [
        (kernels.SATURATE, *signed_range(bits), 0)
        if bits is not None
        else (rule if limited else kernels.EXACT, *accumulator.range, 1)
        for bits in plan.bits
    ]
    width = accumulator.product_bits
    own = (rule, *accumulator.range_of(width), 0) if width and brought else (kernels.EXACT, 0, 0, 0)
    return np.array([*rows, own], np.int64)
