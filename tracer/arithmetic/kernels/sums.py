"""Sums of products: in the order of a program, see `tracer.arithmetic.trees`, and of integers.

Integers are added in pairs that saturate at 16 bits, as VPMADDUBSW adds them; or activations are
rounded to 8 bits and weights have 4, in blocks of 32 with two scales. Sources of the latter:
onnxruntime, core/mlas/lib/sqnbitgemm_kernel_avx512_int8_blklen32.h, the form with VNNI, and
sqnbitgemm_kernel_avx2_int8_blklen32.h, sqnbitgemm_m1_sym_kernel_avx2_int8_blklen32.h.
"""

from typing import Any

import numpy as np

from tracer.accumulators.floats.kernels.lanes import fused
from tracer.accumulators.kernels.single_sums import added, against_the_sum, into_range
from tracer.arithmetic.trees import ADD, BEGIN, JOIN, SCALE
from tracer.interpreter.compiled_code import entry
from tracer.interpreter.kernels import argument_types as types
from tracer.interpreter.kernels.argument_types import (
    FLAT_OUT,
    NUMBERS,
    TABLE,
    array_at,
    free,
    helper,
    inlined,
    new_doubles,
    new_floats,
    new_integers,
    read_only,
    repeat_type,
    start_of,
    vector_type,
)

_KINDS = types.float32, types.float64
_WAY, _WINDOW = repeat_type(types.boolean, 2), repeat_type(types.intp, 6)
_RUN, _ROWS, _COLUMNS = 256, 32, 256
"""Terms and columns of a part of `b`, which stays in the second cache while these rows read it."""


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
    if begins:
        for i in range(held.size):
            held[i] = 0 if from_zero else factor * values[i]
        if not from_zero:
            return
    if is_fused:  # of a negative product that vanishes, 0 + it is -0
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


@helper(
    *[
        types.void(
            vector_type(kind), NUMBERS, repeat_type(read_only(kind, 3), 3),
            repeat_type(types.intp, 3), _WAY,
        )
        for kind in _KINDS
    ]
)  # fmt: skip
def _advance(held: Any, steps: Any, operands: Any, place: Any, way: Any) -> None:
    """Adds the terms of several steps, or of one that may begin the register, by FMA or not."""
    a, b, beside = operands
    group, row, low = place
    term, begins, high = steps[0] >> 2, steps[0] & 3 == BEGIN, low + held.size
    is_product = term < b.shape[1]
    if is_product and way[0] and not begins:
        _add_run(held, steps, a[group, row], b[group], low)
        return
    values = b[group, term, low:high] if is_product else beside[group, row, low:high]
    if begins and not is_product:
        for i in range(held.size):
            held[i] = values[i]
    else:
        factor = a[group, row, term] if is_product else a.dtype.type(1)
        _add_term(held, factor, values, begins, way)


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
    a, b, _ = operands
    first_group, last_group, first_row, last_row, first_column, last_column = window
    terms = b.shape[1]
    shape = depth, min(_ROWS, last_row - first_row), _COLUMNS
    memory = new_doubles(shape[0] * shape[1] * shape[2])
    registers = array_at(start_of(memory.view(a.dtype)), shape)
    for group in range(first_group, last_group):
        for low in range(first_column, last_column, _COLUMNS):
            width = min(_COLUMNS, last_column - low)
            for first in range(first_row, last_row, _ROWS):
                rows = range(min(_ROWS, last_row - first))
                top, at = -1, 0
                while at < program.size:
                    step, end = program[at] & 3, at + 1
                    if step in (JOIN, SCALE):
                        top -= 1
                        for row in rows:
                            last = registers[top + 1, row, :width]
                            _join(registers[top, row, :width], last, step == SCALE, scale)
                        at = end
                        continue
                    while way[0] and step == ADD and end < min(program.size, at + _RUN) and (
                        program[end] & 3 == ADD and max(program[at], program[end]) >> 2 < terms
                    ):  # fmt: skip
                        end += 1
                    top += step == BEGIN
                    for row in rows:
                        place = group, first + row, low
                        held = registers[top, row, :width]
                        _advance(held, program[at:end], operands, place, way)
                    at = end
                for row in rows:
                    held, target = registers[0, row], out[group, first + row]
                    for i in range(width):  # a slice would be copied in numba's runtime
                        target[low + i] = held[i]
    free(memory)


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


_ROW, _SCALES = read_only(types.int32), read_only(types.float32)
_FLOATS, _CODES = read_only(types.float32, 2), read_only(types.int32, 2)
_LANES = read_only(types.int64, 2)
_FOLDED = 4
"""Columns whose lanes are folded together."""


def _pairs_fit(
    codes: Any, scales: Any, sums: Any, bias: Any, out: Any, lanes: Any, together: int
) -> bool:
    rows, columns = out.shape
    depth, blocks = codes[0].shape[1], scales[0].shape[1]
    size = depth // max(blocks, 1)
    corrected = sums[0].shape[1]
    return bool(
        depth == size * blocks and all(each.shape[1] == 3 for each in lanes)
        and len(lanes[0]) in (0, 8, 16) and len(lanes[1]) in (0, 8, 16)
        and all(pair[0].shape == (rows, wide) and pair[1].shape == (columns, wide)
                for pair, wide in ((codes, depth), (scales, blocks), (sums, corrected)))
        and all((each >= 0).all() and each[:, 1:].max(initial=0) <= size - 4 for each in lanes)
        and lanes[1][:, 0].max(initial=0) == 0 and bias.size in (0, columns)
    )  # fmt: skip


@inlined(types.int64(_ROW, _ROW, types.intp, types.int64, types.int64))
def _some(left: Any, right: Any, low: int, first: int, second: int) -> int:
    """The sum of four products from `first` on, and of four from `second` on, unless it is 0."""
    total = 0
    for k in range(low + first, low + first + 4):
        total += left[k] * right[k]
    if second:
        for k in range(low + second, low + second + 4):
            total += left[k] * right[k]
    return total


@inlined(types.void(
    _ROW, _ROW, *[_SCALES] * 2, *[vector_type(types.float32)] * 2, repeat_type(_LANES, 2),
    types.int64,
))  # fmt: skip
def _fill(
    left: Any, right: Any, scales: Any, others: Any, held: Any, wide: Any, lanes: Any, at_once: int
) -> None:
    """Adds all blocks of a row and a column to 16 lanes, `wide`, and these to 8, `held`.

    A row of the first `lanes` tells which of the blocks `at_once` a lane adds, and where its
    products begin. The blocks that are left are added as the second tell, to `wide` if they are 16.
    """
    groups, last = lanes
    size = left.size // max(scales.size, 1)
    whole = scales.size // at_once * at_once if at_once else 0
    wide[:] = 0
    for first in range(0, whole, max(at_once, 1)):
        for lane in range(len(groups)):
            block = first + groups[lane, 0]
            total = _some(left, right, size * block, groups[lane, 1], groups[lane, 2])
            wide[lane] = fused(np.float32(total), scales[block] * others[block], wide[lane])
    is_wide = len(last) > len(held)
    if not is_wide:
        for lane in range(8):
            held[lane] = wide[lane] + wide[lane + 8]
    for block in range(whole, scales.size):
        scale = scales[block] * others[block]
        for lane in range(len(last)):
            total = _some(left, right, size * block, last[lane, 1], last[lane, 2])
            if is_wide:
                wide[lane] = fused(np.float32(total), scale, wide[lane])
            else:
                held[lane] = fused(np.float32(total), scale, held[lane])
    if is_wide:
        for lane in range(8):
            held[lane] = wide[lane] + wide[lane + 8]


@inlined(types.float32(vector_type(types.float32)))
def _fold(held: Any) -> Any:
    """The sum of 8 lanes, half of which are added to the others in turn."""
    even = (held[0] + held[4]) + (held[2] + held[6])
    return even + ((held[1] + held[5]) + (held[3] + held[7]))


@inlined(types.float32(vector_type(types.float32)))
def _fold_fours(lanes: Any) -> Any:
    """The sum of 8 or 16 lanes, as those of four columns are added together: by fours first."""
    low = ((lanes[0] + lanes[1]) + lanes[2]) + lanes[3]
    high = ((lanes[4] + lanes[5]) + lanes[6]) + lanes[7]
    if lanes.size > 8:
        low += ((lanes[8] + lanes[9]) + lanes[10]) + lanes[11]
        high += ((lanes[12] + lanes[13]) + lanes[14]) + lanes[15]
    return low + high


@entry(_pairs_fit,
    types.void(
        repeat_type(_CODES, 2), repeat_type(_FLOATS, 2), repeat_type(_FLOATS, 2),
        read_only(types.float32), types.Array(types.float32, 2, "C"), repeat_type(_LANES, 2),
        types.int64,
    ))  # fmt: skip
def rounded_products(
    codes: Any, scales: Any, sums: Any, bias: Any, out: Any, lanes: Any, together: int
) -> None:
    """Computes `out` (M, N) of codes (M, K) and (N, K), and scales (M, B) and (N, B) of blocks.

    `sums` are the scaled sums of the activations of a block, and minus the scaled zero points of
    the weights; their product is added last. `lanes` tell which products a lane adds of whole
    groups of blocks, and of the blocks that are left, as in `_fill`. From the row `together` on,
    lanes of four columns are folded together, before and of columns that are left by halves.
    """
    rows, columns = out.shape
    wide, held = new_floats(16), new_floats(8)
    at_once = 0
    for lane in range(len(lanes[0])):
        at_once = max(at_once, lanes[0][lane, 0] + 1)
    for m in range(rows):
        for n in range(columns):
            pair = codes[0][m], codes[1][n]
            _fill(*pair, scales[0][m], scales[1][n], held, wide, lanes, at_once)
            result = _fold(held)
            if m >= together and n < columns // _FOLDED * _FOLDED:
                result = _fold_fours(held if len(lanes[1]) == 8 else wide)
            if bias.size:
                result += bias[n]
            last = np.float32(0)
            for block in range(sums[0].shape[1]):
                last = fused(sums[0][m, block], sums[1][n, block], last)
            out[m, n] = result + last
    free(wide)
    free(held)


def _counts_fit(
    products: Any, shift: int, groups: Any, rules: Any, flags: Any, bias: Any, sums: Any, equal: Any
) -> bool:
    depth, registers = products.shape[1], rules.shape[1] - 1
    return bool(
        rules.shape[2] == 3 and groups.shape[1] == 2 and groups.min(initial=0) >= 0
        and groups[:, 0].sum() == depth and groups[:, 1].max(initial=0) < registers
        and len(sums) == len(bias) == len(products) and len(equal) == len(rules) and 0 <= shift < 64
    )  # fmt: skip


@entry(_counts_fit,
    types.void(
        TABLE, types.int64, TABLE, read_only(types.int64, 3), repeat_type(types.boolean, 2),
        NUMBERS, NUMBERS, FLAT_OUT
    ))  # fmt: skip
def count_equal(
    products: Any, shift: int, groups: Any, rules: Any, flags: Any, bias: Any, sums: Any, equal: Any
) -> None:
    """Writes how many of the first sums each accumulator gives, up to the first that differs.

    `products` (N, K) are in the order of the terms, in units of 2^`shift`. `rules` (C, registers
    + 1, 3) has a table as in `single_sums.run` for each accumulator. The flags say whether terms
    are taken against the sign of the sum, and whether the `bias` (N) comes last; else it is first.
    """
    by_sign, is_last = flags
    depth, last = products.shape[1], rules.shape[1] - 1
    terms, spare = new_integers(depth), new_integers(depth)
    registers, seen = new_integers(last), new_integers(3)
    leaving = array_at(start_of(seen), (0, 6))
    for number in range(len(rules)):
        own = rules[number]
        kind, low, high = own[last, 0], own[last, 1], own[last, 2]
        end = own[last - 1]
        equal[number] = len(sums)
        for row in range(len(sums)):
            for k in range(depth):
                terms[k] = into_range(products[row, k], kind, low, high) << shift
            if by_sign:
                against_the_sum(terms, 0 if is_last else bias[row], spare)
            first = into_range(bias[row], end[0], end[1], end[2])
            total = added(0 if is_last else first, terms, groups, own, leaving, registers, seen)
            if is_last:
                total = into_range(total + bias[row], end[0], end[1], end[2])
            if total != sums[row]:
                equal[number] = row
                break
    free(terms)
    free(spare)
    free(registers)
    free(seen)
