"""Defines in numpy what float accumulators and block multiply-adds compute, step by step.

It is slow and plain. Tests compare the compiled kernels with it, bit by bit.
"""

from dataclasses import dataclass, field
from typing import assert_never

import numpy as np

from tracer.accumulators.floats import draws
from tracer.accumulators.floats.casting import limited, to_grid
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.accumulators.spec.float_format import FloatFormat
from tracer.support.types import Array


@dataclass
class State:
    """Sums (M, P) on their way, and what happened to them."""

    values: Array
    overflowed: Array = field(init=False)
    swamped: Array = field(init=False)
    terms: Array = field(init=False)
    exact: Array = field(init=False)

    def __post_init__(self) -> None:
        shape = self.values.shape
        self.overflowed = np.zeros(shape, bool)
        self.swamped, self.terms = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.exact = self.values.copy()

    def count(self, products: Array, unchanged: Array) -> None:
        """Counts products (M, P) other than 0, and those of them that changed nothing."""
        self.terms += products != 0
        self.swamped += (products != 0) & unchanged
        self.exact += products


def sequential(
    left: Array, right: Array, start: Array, accumulator: FloatAccumulator, outputs: Array
) -> State:
    """Sums `left` (M, K) times `right` (K, P), float64, after `start` (M, P).

    `outputs` (M, P), uint64, are the bits of `draws.of_outputs`. Steps 2 k and 2 k + 1 of a sum are
    the rounding of product k and of the sum with it; step 2 K is the rounding of the start, and
    steps from 2 K + 1 on add chunks.
    """
    depth, step = left.shape[1], _Step(accumulator, outputs)
    state = State(start)
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
        name = self.accumulator.rounding.name
        random = draws.at_step(self.outputs, step) if name == "sr" else None
        rounded = to_grid(values, form, name, random)
        result, outside = limited(rounded, form, self.accumulator.saturates)
        state.overflowed |= outside
        return result + 0.0  # -0 becomes +0


def odd_sum(a: Array, b: Array) -> Array:
    """Returns a + b in float64, rounded to odd: any later rounding to 51 bits or fewer is exact.

    Where the sum is no float64, the neighbour whose last bit is 1 (Boldo and Melquiond, 2008). The
    error of the sum is exact (Knuth's TwoSum).
    """
    total = np.asarray(a + b)
    part = total - a
    error = (a - (total - part)) + (b - part)
    is_even = (total.view(np.int64) & 1) == 0
    beside = np.nextafter(total, np.copysign(np.inf, error))
    inexact = np.isfinite(total) & (error != 0) & is_even
    return np.where(inexact, beside, total)


def blocks(left: Array, right: Array, start: Array, accumulator: BlockFma) -> State:
    """Sums `left` (M, K) times `right` (K, P), float64, after `start` (M, P)."""
    state = State(start)
    total = put(state, start, accumulator.register, "rne")
    size = accumulator.promote or max(left.shape[1], 1)
    for first in range(0, left.shape[1], size):
        part = slice(first, first + size)
        value = np.zeros_like(start) if accumulator.promote else total
        value = _chained(state, left[:, part], right[part], value, accumulator)
        total = put(state, odd_sum(total, value), _SINGLE, "rne") if accumulator.promote else value
    state.values = total
    return state


_SINGLE = FloatFormat(8, 23)


def put(state: State, values: Array, form: FloatFormat, name: str) -> Array:
    """Returns `values` in a format; notes in the state which were outside its range."""
    result, outside = limited(to_grid(values, form, name), form, saturates=False)  # type: ignore[arg-type]
    state.overflowed |= outside
    return result + 0.0


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
    for first in range(0, left.shape[1], 2 * a.length):
        inner = np.zeros_like(value)
        for odd in (0, 1):
            k = np.arange(first, min(first + 2 * a.length, left.shape[1]))
            k = k[(k - first) // 2 % 2 == odd]
            inner = _block(state, left[:, k], right[k], inner, a)
        value = put(state, odd_sum(inner, value), a.out, "rne")
    return value


def _block(state: State, left: Array, right: Array, value: Array, a: BlockFma) -> Array:
    """One block of at most `length` products (M, k) times (k, P), added to `value` (M, P)."""
    products = left[:, :, None] * right[None]
    total, is_kept = aligned(left, right, value, a)
    for k in range(products.shape[1]):
        state.count(products[:, k], ~is_kept[:, k])
    special = value + products.sum(1)  # finite numbers do not overflow in float64
    return put(state, np.where(np.isfinite(special), total, special), a.out, a.rounding)


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
    return np.ldexp(units.astype(np.float64), greatest - a.fraction), terms != 0


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
