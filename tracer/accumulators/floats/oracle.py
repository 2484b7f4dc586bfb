"""Defines in numpy what float accumulators and block multiply-adds compute, step by step.

It is slow and plain. Tests compare the compiled kernels with it, bit by bit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from tracer.accumulators.floats import draws, matrix_cores, scaled_blocks
from tracer.accumulators.floats.rounding_to_odd import odd_sum
from tracer.accumulators.floats.scaled_numbers import values as unscaled
from tracer.accumulators.floats.state import State
from tracer.accumulators.spec.block_fma import SINGLE, BlockFma, Rule
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.accumulators.spec.float_format import FloatFormat
from tracer.support.types import Array


def sequential(
    left: Array, right: Array, start: Array, accumulator: FloatAccumulator, seed: int,
    indices: Array,
) -> State:  # fmt: skip
    """Sums `left` (M, K) times `right` (K, P), float64, after `start` (M, P).

    The draws of an output depend on its index in `indices` (M, P). Steps 2 k and 2 k + 1 of a sum
    are the rounding of product k and of the sum with it; step 2 K is the rounding of the start, and
    steps from 2 K + 1 on add chunks.
    """
    outputs = draws.of_outputs(draws.key(accumulator.rounding.seed, seed), indices)
    depth, step = left.shape[1], _Step(accumulator, outputs)
    state = State.beginning(start)
    size = accumulator.chunk or max(depth, 1)
    total = step.put(state, start, accumulator.format, 2 * depth)
    for number, first in enumerate(range(0, depth, size)):
        value = np.zeros_like(start) if accumulator.chunk else total
        for k in range(first, min(first + size, depth)):
            exact = left[:, k, None] * right[None, k]
            product = exact
            if accumulator.product_format is not None:
                product = step.put(state, exact, accumulator.product_format, 2 * k)
            after = step.put(state, odd_sum(value, product), accumulator.format, 2 * k + 1)
            state.count(exact, after == value)
            value = after
        if accumulator.chunk:
            value = step.put(
                state, odd_sum(total, value), accumulator.format, 2 * depth + 1 + number
            )
        total = value
    state.values = total
    return state


@dataclass(frozen=True)
class _Step:
    """Rounds to a format at a step of all sums."""

    accumulator: FloatAccumulator
    outputs: Array

    def put(self, state: State, values: Array, form: FloatFormat, step: int) -> Array:
        """Returns `values` in a format; notes in the state which were outside its range."""
        rounding, saturates = self.accumulator.rounding.name, self.accumulator.saturates
        random = draws.at_step(self.outputs, step) if rounding == "sr" else None
        return state.put(values, form, rounding, saturates, random)


def blocks(left: Array, right: Array, start: Array, accumulator: BlockFma) -> State:
    """Sums `left` (M, K) times `right` (K, P), float64, after `start` (M, P).

    Operands with `scaling` are scaled numbers.
    """
    if accumulator.scaling == "tiles":
        return scaled_blocks.tiled(left, right, start, accumulator, blocks)
    state = State.beginning(start)
    total = state.put(start, accumulator.register)
    size = accumulator.promote or max(left.shape[1], 1)
    for first in range(0, left.shape[1], size):
        part = slice(first, first + size)
        value = np.zeros_like(start) if accumulator.promote else total
        value = _chained(state, left[:, part], right[part], value, accumulator)
        total = state.put(odd_sum(total, value), SINGLE) if accumulator.promote else value
    state.values = total
    return state


def _chained(state: State, left: Array, right: Array, value: Array, a: BlockFma) -> Array:
    match a.schedule:
        case "chain":
            for first in range(0, left.shape[1], a.length):
                part = slice(first, first + a.length)
                value = _block(state, left[:, part], right[part], value, a)
            return value
        case "split":
            return _split(state, left, right, value, a)
        case _:
            assert_never(a.schedule)


def _split(state: State, left: Array, right: Array, value: Array, a: BlockFma) -> Array:
    """Two interleaved blocks from 0, then the sum before, added to nearest."""
    order = split_order(left.shape[1], a.length)
    left, right = (np.pad(left, ((0, 0), (0, len(order) - left.shape[1]))),
                   np.pad(right, ((0, len(order) - len(right)), (0, 0))))  # fmt: skip
    for pair in order.reshape(-1, 2, a.length):
        inner = np.zeros_like(value)
        for k in pair:
            inner = _block(state, left[:, k], right[k], inner, a)
        value = state.put(odd_sum(inner, value), a.out)
    return value


def split_order(depth: int, length: int) -> Array:
    """Returns the order of k in pairs of whole blocks: 0, 1, 4, 5, ... and 2, 3, 6, 7, ..."""
    whole = -(-depth // (2 * length)) * 2 * length
    k = np.arange(whole)
    return k[np.lexsort((k, k // 2 % 2, k // (2 * length)))]


def _block(state: State, left: Array, right: Array, value: Array, a: BlockFma) -> Array:
    """One block of at most `length` products (M, k) times (k, P), added to `value` (M, P)."""
    products = unscaled(left)[:, :, None] * unscaled(right)[None]
    rule = _RULES[a.rule] if a.scaling == "none" else scaled_blocks.aligned
    total, is_kept = rule(left, right, value, a)
    for k in range(products.shape[1]):
        state.count(products[:, k], ~is_kept[:, k])
    special = value + products.sum(1)  # finite numbers do not overflow in float64
    return state.put(np.where(np.isfinite(special), total, special), a.out, a.rounding)


def aligned(left: Array, right: Array, value: Array, a: BlockFma) -> tuple[Array, Array]:
    """Returns the exact sum of terms truncated at the greatest exponent, in 64-bit integers.

    Also whether each product (M, k, P) has bits that are not truncated.
    """
    left_digits, left_exponents = _digits(left, a.operands)
    right_digits, right_exponents = _digits(right, a.operands)
    value_digits, value_exponents = _digits(value, a.register)
    digits = left_digits[:, :, None] * right_digits[None]
    exponents = left_exponents[:, :, None] + right_exponents[None]
    exponents[digits == 0] = _NO_EXPONENT
    greatest = np.maximum(exponents.max(1), np.where(value_digits, value_exponents, _NO_EXPONENT))
    if a.least is not None:
        greatest = np.maximum(greatest, a.least)
    below = a.fraction - 2 * a.operands.fraction_bits
    terms = _shifted(digits, below + exponents - greatest[:, None])
    start = _shifted(
        value_digits, a.fraction - a.register.fraction_bits + value_exponents - greatest
    )
    units = start + terms.sum(1)
    is_kept = (terms != 0) | ~np.isfinite(left[:, :, None] * right[None])
    return np.ldexp(units.astype(np.float64), greatest - a.fraction), is_kept


_RULES: Mapping[Rule, Callable[[Array, Array, Array, BlockFma], tuple[Array, Array]]] = {
    "aligned": aligned, "exact": matrix_cores.exact, "pairwise": matrix_cores.pairwise,
    "late": matrix_cores.late, "odd-even": matrix_cores.odd_even,
}  # fmt: skip
_NO_EXPONENT = -(1 << 11)
"""Below the exponent of any term other than 0."""


def _digits(values: Array, form: FloatFormat) -> tuple[Array, Array]:
    """Returns significands in units of their last bit, and exponents, int64; infinity is 0."""
    finite = np.where(np.isfinite(values), values, 0.0)
    exponents = np.maximum(np.frexp(finite)[1] - 1, form.least_exponent).astype(np.int64)
    digits = np.ldexp(finite, form.fraction_bits - exponents).astype(np.int64)
    return digits, exponents


def _shifted(digits: Array, places: Array) -> Array:
    """Returns digits times 2^places, truncated towards 0."""
    magnitude = np.abs(digits)
    up, down = np.clip(places, 0, 62), np.clip(-places, 0, 62)
    return np.sign(digits) * ((magnitude << up) >> down)
