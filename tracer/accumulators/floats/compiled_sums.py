"""Runs the kernels of float sums on threads, with what `oracle` takes and returns."""

import numpy as np

from tracer.accumulators.floats import draws, oracle, scaled_blocks, single_sums
from tracer.accumulators.floats.column_blocks import share
from tracer.accumulators.floats.kernel_formats import NO_EXPONENT, wide_format
from tracer.accumulators.floats.kernels import loaded
from tracer.accumulators.floats.scaled_numbers import parted
from tracer.accumulators.floats.scaled_numbers import values as unscaled
from tracer.accumulators.floats.single_sums import Factors
from tracer.accumulators.floats.state import State
from tracer.accumulators.spec.block_fma import SINGLE, BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.errors import UsageError
from tracer.support.types import Array


def sequential(
    left: Array, right: Array, start: Array, accumulator: FloatAccumulator, seed: int,
    indices: Array | None,
) -> State:  # fmt: skip
    """Returns the sums of `oracle.sequential`; operands may have any float type.

    `start` is (M or 1, P or 1). `indices` (M, P) are None for rules that draw nothing.
    """
    sides = Factors.of(left, right)
    largest = _bound(sides, start, accumulator)
    if largest is not None:
        single = single_sums.sequential(sides, start, accumulator, largest)
        if single is not None:
            return single
    kernels = loaded("sequential")
    start = np.broadcast_to(start, (len(left), right.shape[1]))
    outs, factors = _outs(start), _wide(left)
    product = accumulator.product_format
    formats = accumulator.format, product or accumulator.format
    forms = tuple(wide_format(each, accumulator.saturates) for each in formats)
    rule = getattr(kernels, accumulator.rounding.name.upper())
    is_odd = product is None or product.fraction_bits > accumulator.format.fraction_bits
    is_usual = rule != kernels.SR and largest is not None
    bits = np.empty((len(left), 0), np.uint64)
    if rule == kernels.SR:
        assert indices is not None
        key = draws.key(accumulator.rounding.seed, seed)
        bits = np.ascontiguousarray(draws.of_outputs(key, indices))

    def work(rows: slice, low: int, columns: Array) -> None:
        kernels.run(
            factors[rows], columns, low, bits[rows], forms, rule, product is None, is_odd, is_usual,
            accumulator.chunk or 0, tuple(each[rows] for each in outs),
        )  # fmt: skip

    share(left, right, np.float64, work)
    return _state(outs)


def blocks(left: Array, right: Array, start: Array, accumulator: BlockFma) -> State:
    """Returns the sums of `oracle.blocks`, of products that are aligned.

    Operands may have any float type, and are scaled numbers for blocks with scales; `start` is
    (M or 1, P or 1). Raises UsageError for operands that are not in their format.
    """
    shape = len(left), right.shape[1]
    match accumulator.scaling:
        case "none":
            single = single_sums.blocks(left, right, start, accumulator)
            return _wide_blocks(left, right, start, accumulator) if single is None else single
        case "tiles":
            start = np.broadcast_to(start, shape)
            return scaled_blocks.tiled(left, right, start, accumulator, blocks)
        case _ if accumulator.group > 1:
            return _grouped_blocks(left, right, np.broadcast_to(start, shape), accumulator)
        case _:
            return _wide_blocks(left, right, start, accumulator)


def _wide_blocks(left: Array, right: Array, start: Array, accumulator: BlockFma) -> State:
    """Blocks of products in lanes of float64."""
    kernels = loaded("blocks")
    begin, shape = State.beginning(start), (len(left), right.shape[1])
    first = begin.put(start, accumulator.register)
    outs = _outs(np.broadcast_to(first, shape), np.broadcast_to(start, shape))
    if accumulator.schedule == "split":
        order = oracle.split_order(left.shape[1], accumulator.length)
        missing = len(order) - left.shape[1]
        left = np.pad(left, ((0, 0), (0, missing)))[:, order]
        right = np.pad(right, ((0, missing), (0, 0)))[order]
    ends, joins = _program(accumulator, left.shape[1])
    factors, factor_powers = _factors(left, accumulator)
    total = SINGLE if accumulator.promote else accumulator.out

    def work(rows: slice, low: int, columns: Array) -> None:
        kernels.run(
            (factors[rows], factor_powers[rows]), _factors(columns, accumulator), low, ends, joins,
            (wide_format(accumulator.out), wide_format(total)), _limits(accumulator),
            accumulator.rounding == "rne", tuple(each[rows] for each in outs),
        )  # fmt: skip

    share(left, right, _kind(right), work)
    state = _state(outs)
    state.overflowed |= begin.overflowed
    return state


def _grouped_blocks(left: Array, right: Array, start: Array, accumulator: BlockFma) -> State:
    """Blocks of sums of groups; numbers of a group share a scale."""
    kernels, a = loaded("grouped_blocks"), accumulator
    begin = State.beginning(start)
    outs = _outs(begin.put(start, a.register), start)
    factors = _groups(left, a, 1)

    def work(rows: slice, low: int, columns: Array) -> None:
        kernels.run(
            tuple(each[rows] for each in factors), _groups(columns, a, 0), low, a.length, a.group,
            wide_format(a.out), _limits(a), a.rounding == "rne", tuple(each[rows] for each in outs),
        )  # fmt: skip

    share(left, right, _kind(right), work)
    state = _state(outs)
    state.overflowed |= begin.overflowed
    return state


def _groups(numbers: Array, a: BlockFma, axis: int) -> tuple[Array, Array, Array]:
    """Returns elements, the scales of groups along an axis, and 2 to their exponents."""
    elements, scales = parted(numbers)
    _powers(elements, a)  # refuses what is no element
    ours = np.abs(scales[:: a.group] if axis == 0 else scales[:, :: a.group])
    return elements, _wide(ours), np.ldexp(1.0, scaled_blocks.scale_exponents(ours, a))


def _limits(a: BlockFma) -> tuple[float, float, float]:
    """Returns the least greatest exponent, the least one of a sum, and the unit, as powers."""
    least = NO_EXPONENT if a.least is None else a.least
    return 2.0**least, a.register.least_normal, 2.0**a.fraction


def _kind(numbers: Array) -> type[np.generic]:
    """Returns the type of columns that are given to a kernel, or parted before."""
    return np.complex64 if np.iscomplexobj(numbers) else np.float64


def _factors(numbers: Array, a: BlockFma) -> tuple[Array, Array]:
    """Returns numbers, float64, and 2 to their exponents: of an element, times its scale."""
    if not np.iscomplexobj(numbers):
        wide = _wide(numbers)
        return wide, _powers(wide, a)
    elements, scales = parted(numbers)
    return unscaled(numbers), _powers(elements, a) * np.where(np.isfinite(scales), scales, 0.0)


def _bound(sides: Factors, start: Array, accumulator: FloatAccumulator) -> float | None:
    """Returns what no sum exceeds; None if a product or a sum may leave the range, or is flushed.

    A rounding multiplies a magnitude by at most 1 + 2^-`fraction_bits`, or adds a least number; a
    product is rounded three times at most: alone, in its sum, and in the sum of its chunk.
    """
    formats = [accumulator.format, accumulator.product_format or accumulator.format]
    if any(form.subnormals != "kept" for form in formats):
        return None
    depth = sides.left.shape[1]
    roundings = 3 * depth + 3
    growth = np.exp(roundings * 2.0 ** -min(form.fraction_bits for form in formats))
    added = roundings * 2.0 ** max(form.least_bit for form in formats)
    exact = depth * sides.largest + float(np.abs(start).max(initial=0))
    bound = float((exact + added) * growth)
    return bound if bound <= min(form.largest for form in formats) else None


def _program(a: BlockFma, depth: int) -> tuple[Array, Array]:
    """Returns the ends of blocks, and 1 for those after which the sum is added to a total."""
    ends = np.minimum(np.arange(a.length, depth + a.length, a.length), depth)
    joined = 2 * a.length if a.schedule == "split" else a.promote
    joins = np.zeros(len(ends), np.int64)
    if joined is not None:
        joins[(ends % joined == 0) | (ends == depth)] = 1
    return ends, joins


def _powers(values: Array, a: BlockFma) -> Array:
    """Returns 2 to the exponent of each operand; 0 for 0, infinity and NaN."""
    out = np.empty_like(values)
    others = loaded("blocks").powers(values.reshape(-1), wide_format(a.operands), out.reshape(-1))
    if others:
        raise UsageError(
            f"{others} operands of {a} are no numbers of {a.operands}",
            f"Cast the operands to {a.operands}, or choose a block that multiplies what they are.",
        )
    return out


def _outs(start: Array, exact: Array | None = None) -> tuple[Array, ...]:
    """Returns the arrays that kernels write: values, exact sums, terms, swamped, overflows."""
    counts = (np.zeros(start.shape, np.int64) for _ in range(3))
    sums = np.add(start if exact is None else exact, 0.0, order="C")  # no -0
    return (start.copy("C"), sums, *counts)


def _state(outs: tuple[Array, ...]) -> State:
    values, exact, terms, swamped, overflowed = outs
    return State(values, overflowed != 0, swamped, terms, exact)


def _wide(values: Array) -> Array:
    """Returns float64, row after row."""
    return np.ascontiguousarray(values, np.float64)
