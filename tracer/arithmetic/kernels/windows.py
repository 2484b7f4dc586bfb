"""Sums of convolutions in the order of a program, see `tracer.arithmetic.trees`."""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.floats.kernels.lanes import fused
from tracer.accumulators.kernels.array_types import NUMBERS, kernel, read_only
from tracer.arithmetic.kernels.sums import WAY, add_term
from tracer.arithmetic.trees import ADD, BEGIN, JOIN
from tracer.interpreter.compiled_code import entry

_READ, _WRITE = read_only(types.float32, 3), types.Array(types.float32, 3, "C")
_ROW, _TABLE = read_only(types.float32), read_only(types.float32, 2)
_LANES = types.Array(types.float32, 1, "C")
_CACHED, _LEAST_WIDTH, _MOST_WIDTH = 1 << 17, 64, 512
"""Elements of `b` that stay in the second cache, while all rows of `a` read them."""


def _fits(program: Any, depth: int, way: Any, a: Any, b: Any, z: Any, out: Any) -> bool:
    groups, terms, columns = b.shape
    steps = program % 4
    if not program.size or program.min() < 0 or steps.max() > JOIN:
        return False
    held = np.cumsum(1 - steps)  # BEGIN adds a register, JOIN removes one
    return bool(
        (program // 4).max() < terms + bool(z.size) and (not z.size or z.shape == out.shape)
        and a.shape == (groups, out.shape[1], terms) and out.shape[::2] == (groups, columns)
        and held.min() >= 1 and held.max() <= depth and held[-1] == 1
    )  # fmt: skip


@kernel(types.void(_LANES, NUMBERS, _ROW, _TABLE, types.intp))
def _add_products(held: Any, run: Any, a: Any, b: Any, low: int) -> None:
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


@kernel(types.void(_LANES, _LANES))
def _join(held: Any, last: Any) -> None:
    for i in range(held.size):
        held[i] += last[i]


@entry(_fits)
@kernel(types.void(NUMBERS, types.intp, WAY, _READ, _READ, _READ, _WRITE))
def convolve(program: Any, depth: int, way: Any, a: Any, b: Any, z: Any, out: Any) -> None:
    """Computes `out` (G, M, N): products of rows of `a` (G, M, K) and columns of `b` (G, K, N).

    Term K of the program is the element of `z`, of the shape of `out`, or of size 0 for none.
    `depth` is the number of registers. `way` says whether a term is multiplied and added in one
    rounding (FMA), and whether registers begin with +0, which turns a first product of -0.
    """
    groups, terms, columns = b.shape
    most = max(_LEAST_WIDTH, min(_MOST_WIDTH, _CACHED // terms))
    registers = np.empty((depth, most), np.float32)
    for group in range(groups):
        for low in range(0, columns, most):
            high = min(low + most, columns)
            for row in range(out.shape[1]):
                top, at = -1, 0
                while at < program.size:
                    step, term = program[at] & 3, program[at] >> 2
                    if step == JOIN:
                        top -= 1
                        _join(registers[top, : high - low], registers[top + 1, : high - low])
                        at += 1
                        continue
                    top += step == BEGIN
                    held = registers[top, : high - low]
                    end = at
                    while way[0] and end < program.size and (
                        program[end] & 3 == ADD and program[end] >> 2 < terms
                    ):  # fmt: skip
                        end += 1
                    if end > at:
                        _add_products(held, program[at:end], a[group, row], b[group], low)
                    elif term < terms:
                        values = b[group, term, low:high]
                        add_term(held, a[group, row, term], values, step == BEGIN, way)
                    else:
                        add_term(held, np.float32(1), z[group, row, low:high], step == BEGIN, way)
                    at = max(end, at + 1)
                out[group, row, low:high] = registers[0, : high - low]
