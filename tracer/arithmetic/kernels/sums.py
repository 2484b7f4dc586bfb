"""Sums of products in the order of a program, see `tracer.arithmetic.trees`."""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.floats.kernels.lanes import fused
from tracer.accumulators.kernels.array_types import (
    NUMBERS,
    read_only,
    repeat_type,
    vector_type,
)
from tracer.arithmetic.trees import ADD, BEGIN, JOIN, SCALE
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels.machine_code import helper, inlined

_KINDS = types.float32, types.float64
_WAY, _WINDOW = repeat_type(types.boolean, 2), repeat_type(types.intp, 6)
_CACHED, _LEAST_WIDTH, _MOST_WIDTH = 1 << 17, 64, 512
"""Elements of `b` that stay in the second cache, while all rows of `a` read them."""


def _fits(
    program: Any, depth: int, way: Any, scale: float, operands: Any, out: Any, window: Any
) -> bool:
    a, b, beside = operands
    terms, steps = b.shape[1], program % 4
    if not program.size or program.min() < 0:
        return False
    held = np.cumsum(np.where(steps < JOIN, 1 - steps, -1))  # BEGIN adds a register
    ends = zip(window[::2], window[1::2], out.shape, strict=True)
    return bool(
        a.shape == (*out.shape[:2], terms) and b.shape[::2] == out.shape[::2]
        and terms > (program // 4).max() - bool(beside.size)
        and (not beside.size or beside.shape == out.shape)
        and all(0 <= low <= high <= size for low, high, size in ends)
        and held.min() >= 1 and held.max() <= depth and held[-1] == 1
    )  # fmt: skip


@inlined(
    *[types.void(vector_type(kind), kind, read_only(kind), types.boolean, _WAY) for kind in _KINDS]
)
def _add_term(held: Any, factor: Any, values: Any, begins: bool, way: Any) -> None:
    """Adds products to registers that lie side by side, or begins them with the products."""
    is_fused, from_zero = way
    if begins and from_zero:
        for i in range(held.size):
            held[i] = factor * values[i] + np.float32(0)
    elif begins:
        for i in range(held.size):
            held[i] = factor * values[i]
    elif is_fused:
        for i in range(held.size):
            held[i] = fused(factor, values[i], held[i])
    else:
        for i in range(held.size):
            held[i] += factor * values[i]


@helper(
    *[
        types.void(vector_type(kind), NUMBERS, read_only(kind), read_only(kind, 2), types.intp)
        for kind in _KINDS
    ]
)
def _add_run(held: Any, run: Any, a: Any, b: Any, low: int) -> None:
    """Adds products of a run of terms by FMA; a register is loaded once for four of them."""
    size = held.size
    for at in range(0, run.size - 3, 4):
        k0, k1, k2, k3 = run[at] >> 2, run[at + 1] >> 2, run[at + 2] >> 2, run[at + 3] >> 2
        a0, a1, a2, a3 = a[k0], a[k1], a[k2], a[k3]
        b0, b1 = b[k0, low : low + size], b[k1, low : low + size]
        b2, b3 = b[k2, low : low + size], b[k3, low : low + size]
        for i in range(size):
            two = fused(a1, b1[i], fused(a0, b0[i], held[i]))
            held[i] = fused(a3, b3[i], fused(a2, b2[i], two))
    for at in range(run.size // 4 * 4, run.size):
        last, values = a[run[at] >> 2], b[run[at] >> 2, low : low + size]
        for i in range(size):
            held[i] = fused(last, values[i], held[i])


@inlined(*[types.void(*[vector_type(kind)] * 2, types.boolean, kind) for kind in _KINDS])
def _join(held: Any, last: Any, scaled: bool, scale: Any) -> None:
    if scaled:
        for i in range(held.size):
            held[i] = fused(last[i], scale, held[i])
    else:
        for i in range(held.size):
            held[i] += last[i]


@entry(_fits,
    *[
        types.void(
            NUMBERS, types.intp, _WAY, kind,
            repeat_type(read_only(kind, 3), 3), types.Array(kind, 3, "C"), _WINDOW,
        )
        for kind in _KINDS
    ])  # fmt: skip
def products(
    program: Any, depth: int, way: Any, scale: Any, operands: Any, out: Any, window: Any
) -> None:
    """Computes a window of `out` (G, M, N): rows of `a` (G, M, K) times columns of `b` (G, K, N).

    `operands` are `a`, `b` and what has the elements (G, M, N) of term K, or nothing; `depth` is
    the number of registers. `way` says whether a term is multiplied and added in one rounding
    (FMA), and whether registers begin with +0, which turns a first product of -0. `window` are
    products, rows and columns: from, below.
    """
    a, b, beside = operands
    first_group, last_group, first_row, last_row, first_column, last_column = window
    terms, one = b.shape[1], a.dtype.type(1)
    most = max(_LEAST_WIDTH, min(_MOST_WIDTH, _CACHED // max(terms, 1)))
    registers = np.empty((depth, most), a.dtype)
    for group in range(first_group, last_group):
        for low in range(first_column, last_column, most):
            high = min(low + most, last_column)
            for row in range(first_row, last_row):
                top, at = -1, 0
                while at < program.size:
                    step, term = program[at] & 3, program[at] >> 2
                    if step in (JOIN, SCALE):
                        top -= 1
                        last = registers[top + 1, : high - low]
                        _join(registers[top, : high - low], last, step == SCALE, scale)
                        at += 1
                        continue
                    top += step == BEGIN
                    held, end = registers[top, : high - low], at
                    while way[0] and end < program.size and (
                        program[end] & 3 == ADD and program[end] >> 2 < terms
                    ):  # fmt: skip
                        end += 1
                    if end > at:
                        _add_run(held, program[at:end], a[group, row], b[group], low)
                    elif term < terms:
                        values = b[group, term, low:high]
                        _add_term(held, a[group, row, term], values, step == BEGIN, way)
                    elif step == BEGIN:
                        for i in range(high - low):
                            held[i] = beside[group, row, low + i]
                    else:
                        _add_term(held, one, beside[group, row, low:high], False, way)
                    at = max(end, at + 1)
                out[group, row, low:high] = registers[0, : high - low]
