"""Sums of products in the order of a program, see `tracer.arithmetic.trees`."""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.floats.kernels.lanes import fused, inlined
from tracer.accumulators.kernels.array_types import NUMBERS, kernel, read_only, repeat_type
from tracer.arithmetic.trees import BEGIN, JOIN, SCALE
from tracer.interpreter.compiled_code import entry

_KINDS = types.float32, types.float64
WAY, _WINDOW = repeat_type(types.boolean, 2), repeat_type(types.intp, 4)
_WIDTH = 256
"""Columns at a time: their registers stay in the first cache."""


def _fits(
    program: Any, depth: int, way: Any, scale: float, operands: Any, out: Any, window: Any
) -> bool:
    a, b, bias = operands
    terms, steps = a.shape[1], program % 4
    if not program.size or program.min() < 0:
        return False
    held = np.cumsum(np.where(steps < JOIN, 1 - steps, -1))  # BEGIN adds a register
    top, bottom, left, right = window
    return bool(
        len(b) == terms > (program // 4).max() - (bias.size > 0)
        and out.shape == (len(a), b.shape[1]) and bias.shape in ((0, 0), out.shape)
        and 0 <= top <= bottom <= len(out) and 0 <= left <= right <= out.shape[1]
        and held.min() >= 1 and held.max() <= depth and held[-1] == 1
    )  # fmt: skip


@inlined(
    *[
        types.void(types.Array(kind, 1, "C"), kind, read_only(kind), types.boolean, WAY)
        for kind in _KINDS
    ]
)
def add_term(held: Any, factor: Any, values: Any, begins: bool, way: Any) -> None:
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


@inlined(*[types.void(*[types.Array(kind, 1, "C")] * 2, types.boolean, kind) for kind in _KINDS])
def _join(held: Any, last: Any, scaled: bool, scale: Any) -> None:
    if scaled:
        for i in range(held.size):
            held[i] = fused(last[i], scale, held[i])
    else:
        for i in range(held.size):
            held[i] += last[i]


@entry(_fits)
@kernel(
    *[
        types.void(
            NUMBERS, types.intp, WAY, kind,
            repeat_type(read_only(kind, 2), 3), types.Array(kind, 2, "C"), _WINDOW,
        )
        for kind in _KINDS
    ]
)  # fmt: skip
def products(
    program: Any, depth: int, way: Any, scale: Any, operands: Any, out: Any, window: Any
) -> None:
    """Computes a window of `out` (M, N): products of rows of `a` (M, K) and columns of `b` (K, N).

    `operands` are `a`, `b` and `bias` (M, N), which is term K and may be empty; `depth` is the
    number of registers. `way` says whether a term is multiplied and added in one rounding (FMA),
    and whether registers begin with +0, which turns a first product of -0. `window` are rows, then
    columns: from, below.
    """
    a, b, bias = operands
    first_row, last_row, first_column, last_column = window
    registers = np.empty((depth, _WIDTH), a.dtype)
    one = a.dtype.type(1)
    for low in range(first_column, last_column, _WIDTH):
        width = min(_WIDTH, last_column - low)
        for row in range(first_row, last_row):
            top = -1
            for code in program:
                step, term = code & 3, code >> 2
                if step in (JOIN, SCALE):
                    top -= 1
                    _join(registers[top, :width], registers[top + 1, :width], step == SCALE, scale)
                    continue
                top += step == BEGIN
                held = registers[top, :width]
                if term < len(b):
                    add_term(held, a[row, term], b[term, low : low + width], step == BEGIN, way)
                elif step == BEGIN:
                    held[:] = bias[row, low : low + width]
                else:
                    add_term(held, one, bias[row, low : low + width], False, way)
            for i in range(width):
                out[row, low + i] = registers[0, i]
