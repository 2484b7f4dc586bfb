"""Sums of products in a float accumulator or by block multiply-adds, and what happened to them."""

from dataclasses import dataclass
from typing import assert_never

import numpy as np

from tracer.accumulators.floats import compiled_sums, oracle
from tracer.accumulators.floats.state import State
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class FloatSums:
    """Sums (M, P), each with what happened on its way.

    `values`, float32: what the accumulator holds at the end. `overflowed`, bool: whether a step
    left the range of a format. `terms`, integers: products other than 0; `swamped`: those among
    them that did not change the sum (of a block: of which alignment left no bit). `exact`, float64:
    the start and the same products, added one by one in float64.
    """

    values: Array
    overflowed: Array
    swamped: Array
    terms: Array
    exact: Array


def sum_products(
    left: Array,
    right: Array,
    start: Array | None,
    accumulator: FloatAccumulator | BlockFma,
    seed: int = 0,
    first_output: int = 0,
) -> FloatSums:
    """Returns the sums of `left` (M, K) times `right` (K, P), floats in the format of operands.

    `start` (M,) is the first term of each row of sums; None is 0. Operands are float32 numbers, of
    any float type; for a block multiply-add of operands with scales, they are `scaled_numbers`, of
    which those of a block share a scale. Threads may call it at once. Raises UsageError where a
    block multiply-add gets operands that are not in its format.

    Stochastic rounding hashes the seeds (of the rule, and `seed`, say of the node), the index of
    the output and the step. Outputs count down the columns: (m, p) has the index `first_output` + p
    M + m. So the columns of a product may be summed in blocks: a block that begins with column c
    has `first_output` c M, and any division gives the same sums.
    """
    rows, columns = len(left), right.shape[1]
    begin = np.zeros(rows) if start is None else np.asarray(start, np.float64)
    first, indices = begin[:, None], None
    if isinstance(accumulator, FloatAccumulator) and accumulator.rounding.name == "sr":
        indices = np.arange(rows * columns).reshape(columns, rows).T + first_output
    sides = left, right
    is_turned = columns < rows  # vectors of the kernels have columns in their lanes
    if is_turned:
        sides, first = (right.T, left.T), first.T
        indices = None if indices is None else indices.T
    with np.errstate(all="ignore"):
        state = _summed(*sides, first, accumulator, seed, indices)
    arrays = (_single(state.values, accumulator), state.overflowed, state.swamped, state.terms,
              state.exact)  # fmt: skip
    return FloatSums(*(each.T if is_turned else each for each in arrays))


def _summed(
    left: Array, right: Array, start: Array, accumulator: FloatAccumulator | BlockFma, seed: int,
    indices: Array | None,
) -> State:  # fmt: skip
    """Returns the sums by the way that has the rule."""
    match accumulator:
        case FloatAccumulator():
            return compiled_sums.sequential(left, right, start, accumulator, seed, indices)
        case BlockFma(rule="aligned"):
            return compiled_sums.blocks(left, right, start, accumulator)
        case BlockFma():
            factors, columns = (np.asarray(side, np.float64) for side in (left, right))
            begin = np.broadcast_to(start, (len(left), right.shape[1]))
            return oracle.blocks(factors, columns, begin, accumulator)
        case _:
            assert_never(accumulator)


def _single(values: Array, accumulator: FloatAccumulator | BlockFma) -> Array:
    """Returns float32; NaN of a block multiply-add has the bits of its register's format."""
    single = values.astype(np.float32, copy=False)
    if isinstance(accumulator, BlockFma):
        unused = 23 - accumulator.register.fraction_bits
        nan = np.array([0x7FFFFFFF >> unused << unused], np.uint32).view(np.float32)
        single[np.isnan(single)] = nan
    return single
