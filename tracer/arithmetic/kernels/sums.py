"""Sums of products in the order of a program, see `tracer.arithmetic.trees`."""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.floats.kernels.lanes import fused, inlined
from tracer.accumulators.kernels.array_types import NUMBERS, kernel, read_only, repeat_type
from tracer.arithmetic.trees import BEGIN, JOIN
from tracer.interpreter.compiled_code import entry

_READ, _WRITE = read_only(types.float32, 2), types.Array(types.float32, 2, "C")
_LANES = types.Array(types.float32, 1, "C")
_WIDTH = 256
"""Columns at a time: their registers stay in the first cache."""


def _fits(program: Any, depth: int, way: Any, a: Any, b: Any, out: Any) -> bool:
    terms, steps = a.shape[1], program % 4
    if not program.size or program.min() < 0 or steps.max() > JOIN:
        return False
    held = np.cumsum(1 - steps)  # BEGIN adds a register, JOIN removes one
    return bool(
        len(b) == terms > (program // 4).max() and out.shape == (len(a), b.shape[1])
        and held.min() >= 1 and held.max() <= depth and held[-1] == 1
    )  # fmt: skip


@inlined(
    types.void(
        _LANES,
        types.float32,
        read_only(types.float32),
        types.boolean,
        repeat_type(types.boolean, 2),
    )
)
def _add(held: Any, factor: Any, values: Any, begins: bool, way: Any) -> None:
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


@entry(_fits)
@kernel(types.void(NUMBERS, types.intp, repeat_type(types.boolean, 2), _READ, _READ, _WRITE))
def products(program: Any, depth: int, way: Any, a: Any, b: Any, out: Any) -> None:
    """Computes `out` (M, N): the products of rows of `a` (M, K) and columns of `b` (K, N).

    `depth` is the number of registers. `way` says whether a term is multiplied and added in one
    rounding (FMA), and whether registers begin with +0, which turns a first product of -0.
    """
    registers = np.empty((depth, _WIDTH), np.float32)
    for low in range(0, out.shape[1], _WIDTH):
        width = min(_WIDTH, out.shape[1] - low)
        for row in range(out.shape[0]):
            top = -1
            for code in program:
                step, term = code & 3, code >> 2
                if step == JOIN:
                    for i in range(width):
                        registers[top - 1, i] += registers[top, i]
                    top -= 1
                    continue
                top += step == BEGIN
                values = b[term, low : low + width]
                _add(registers[top, :width], a[row, term], values, step == BEGIN, way)
            for i in range(width):
                out[row, low + i] = registers[0, i]
