"""Sums of products of integers: in pairs that saturate at 16 bits, as VPMADDUBSW adds them, and of
activations rounded to 8 bits and weights of 4, in blocks of 32 with two scales.

Source of the latter: onnxruntime, core/mlas/lib/sqnbitgemm_kernel_avx512_int8_blklen32.h, the form
with VNNI.
"""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.floats.kernels.lanes import fused
from tracer.accumulators.kernels.array_types import read_only, repeat_type, vector_type
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels.machine_code import helper, inlined

_LEAST, _MOST = -(1 << 15), (1 << 15) - 1
_WIDTH = 1 << 12
"""Columns at a time, which stay in the first cache."""


def _are_products(a: Any, b: Any, out: Any) -> bool:
    groups, rows, columns = out.shape
    fits = a.shape == (groups, rows, b.shape[1]) and b.shape[::2] == (groups, columns)
    return bool(fits)


@helper(
    types.void(types.Array(types.int32, 1, "C"), *[types.int32] * 2, *[read_only(types.int16)] * 2)
)
def _add_pairs(sums: Any, a0: int, a1: int, b0: Any, b1: Any) -> None:
    for i in range(sums.size):
        pair = a0 * b0[i] + a1 * b1[i]
        sums[i] += min(max(pair, _LEAST), _MOST)


@entry(_are_products,
    types.void(*[read_only(types.int16, 3)] * 2, types.Array(types.int32, 3, "C")))  # fmt: skip
def add_pairs(a: Any, b: Any, out: Any) -> None:
    """Computes `out` (G, M, N): products of rows of `a` (G, M, K) and columns of `b` (G, K, N).

    Terms 2 k and 2 k + 1 are added and limited to 16 bits; an odd last one stands alone.
    """
    groups, terms, columns = b.shape
    for group in range(groups):
        for low in range(0, columns, _WIDTH):
            high = min(low + _WIDTH, columns)
            for row in range(out.shape[1]):
                sums = out[group, row, low:high]
                sums[:] = 0
                for k in range(0, terms, 2):
                    other = min(k + 1, terms - 1)
                    last = a[group, row, other] if other > k else 0
                    first, second = b[group, k, low:high], b[group, other, low:high]
                    _add_pairs(sums, a[group, row, k], last, first, second)


BLOCK = 32
_ROW, _SCALES = read_only(types.int32), read_only(types.float32)
_FLOATS, _CODES = read_only(types.float32, 2), read_only(types.int32, 2)
_AT_ONCE = 4
"""Blocks that are added in 16 lanes, and columns whose lanes are folded together."""


def _fits(codes: Any, scales: Any, sums: Any, bias: Any, out: Any) -> bool:
    rows, columns = out.shape
    blocks = scales[0].shape[1]
    return bool(
        codes[0].shape == (rows, BLOCK * blocks) and codes[1].shape == (columns, BLOCK * blocks)
        and all(pair[0].shape == (rows, blocks) and pair[1].shape == (columns, blocks)
                for pair in (scales, sums))
        and bias.size in (0, columns)
    )  # fmt: skip


@inlined(types.int64(_ROW, _ROW, types.intp))
def _four(left: Any, right: Any, low: int) -> int:
    """The sum of four products."""
    total = 0
    for k in range(low, low + 4):
        total += left[k] * right[k]
    return total


@inlined(types.void(_ROW, _ROW, _SCALES, _SCALES, repeat_type(vector_type(types.float32), 2)))
def _fill(left: Any, right: Any, scales: Any, others: Any, lanes: Any) -> None:
    """Adds all blocks of a row and a column to 8 lanes, those of four blocks in 16 lanes first."""
    wide, held = lanes
    whole = scales.size // _AT_ONCE * _AT_ONCE
    wide[:] = 0
    for first in range(0, whole, _AT_ONCE):
        for lane in range(16):  # of blocks 0, 2, 0, 2, 1, 3, 1, 3, two lanes each
            block = first + 2 * (lane // 2 % 2) + lane // 8
            low = BLOCK * block + 16 * (lane // 4 % 2) + 4 * (lane % 2)
            total = _four(left, right, low) + _four(left, right, low + 8)
            wide[lane] = fused(np.float32(total), scales[block] * others[block], wide[lane])
    for lane in range(8):
        held[lane] = wide[lane] + wide[lane + 8]
    for block in range(whole, scales.size):
        scale = scales[block] * others[block]
        for lane in range(8):
            total = _four(left, right, BLOCK * block + 4 * lane)
            held[lane] = fused(np.float32(total), scale, held[lane])


@inlined(types.float32(vector_type(types.float32), types.boolean))
def _fold(held: Any, together: bool) -> Any:
    """The sum of 8 lanes, as that of four columns `together` or of a column alone."""
    if together:
        low = ((held[0] + held[1]) + held[2]) + held[3]
        return low + (((held[4] + held[5]) + held[6]) + held[7])
    even = (held[0] + held[4]) + (held[2] + held[6])
    return even + ((held[1] + held[5]) + (held[3] + held[7]))


@entry(_fits,
    types.void(
        repeat_type(_CODES, 2), repeat_type(_FLOATS, 2), repeat_type(_FLOATS, 2),
        read_only(types.float32), types.Array(types.float32, 2, "C"),
    ))  # fmt: skip
def rounded_products(codes: Any, scales: Any, sums: Any, bias: Any, out: Any) -> None:
    """Computes `out` (M, N) of codes (M, 32 B) and (N, 32 B), and scales (M, B) and (N, B).

    `sums` are the scaled sums of the activations of a block, and minus the scaled zero points of
    the weights, in the shapes of the scales; their product is added last.
    """
    rows, columns = out.shape
    lanes = np.empty(16, np.float32), np.empty(8, np.float32)
    for m in range(rows):
        for n in range(columns):
            _fill(codes[0][m], codes[1][n], scales[0][m], scales[1][n], lanes)
            result = _fold(lanes[1], n < columns // _AT_ONCE * _AT_ONCE)
            if bias.size:
                result += bias[n]
            last = np.float32(0)
            for block in range(scales[0].shape[1]):
                last = fused(sums[0][m, block], sums[1][n, block], last)
            out[m, n] = result + last
