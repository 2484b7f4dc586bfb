"""Which of many accumulators add integers to given sums: all register widths of one order."""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.kernels.array_types import FLAT_OUT, NUMBERS, TABLE, read_only, repeat_type
from tracer.accumulators.kernels.single_sums import added, against_the_sum, into_range
from tracer.interpreter.compiled_code import entry


def _fits(
    products: Any, shift: int, groups: Any, rules: Any, flags: Any, bias: Any, sums: Any, equal: Any
) -> bool:
    depth, registers = products.shape[1], rules.shape[1] - 1
    return bool(
        rules.shape[2] == 3 and groups.shape[1] == 2 and groups.min(initial=0) >= 0
        and groups[:, 0].sum() == depth and groups[:, 1].max(initial=0) < registers
        and len(sums) == len(bias) == len(products) and len(equal) == len(rules) and 0 <= shift < 64
    )  # fmt: skip


@entry(_fits,
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
    terms, spare = np.empty(depth, np.int64), np.empty(depth, np.int64)
    registers, seen = np.empty(last, np.int64), np.empty(3, np.int64)
    leaving = np.empty((0, 6), np.int64)
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
