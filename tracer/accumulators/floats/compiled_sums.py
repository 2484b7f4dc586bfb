"""Runs the kernels of float sums on threads, with what `oracle` takes and returns.

Where no step loses a bit that counts, lanes are float32: the results are the same, at three times
the speed of lanes of float64.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np

from tracer.accumulators.floats import casting, oracle
from tracer.accumulators.floats.casting import (
    NO_EXPONENT,
    State,
    odd_sum,
    parted,
    single_format,
    unscaled,
    wide_format,
)
from tracer.accumulators.floats.kernels import loaded
from tracer.accumulators.spec.block_fma import SINGLE, BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.accumulators.spec.orders import Stage, Terms
from tracer.errors import UsageError
from tracer.interpreter.numeric import parallel
from tracer.support.types import Array

_UNUSED = (1 << 12) - 1
"""Bits of a float32 that neither of two factors has, if float32 holds every product of them."""
_LEAST_NORMAL, _FRACTION, _LARGEST_EXPONENT = 2.0**-126, 23, 127
"""Of float32."""
_LEAST_INEXACT = 2.0**-100
"""Of products whose last bit, of 48, is a number of float32."""
_MOST_FRACTION = 10
"""Sums of numbers with 11 significant bits, rounded to 24, round to 11 as if they were exact
(Figueroa, When is double rounding innocuous?, 1995)."""
_LEAST_BLOCK, _LEAST_START, _LARGEST_BLOCK = 2.0**-96, 2.0**-70, 2.0**120
"""Where powers of 2 of a block, their inverses and their units are numbers of float32."""
_MOST_OPERAND = 11
"""Bits of fraction of an operand that leave those of a product to float32."""
_MOST_UNITS = 1 << 30
"""int32 holds twice as many."""
_WIDE = 256
"""Columns that a kernel takes at once: their sums stay in the first-level cache."""
_WORK = 1 << 22
"""Products of a block of work: some milliseconds, so that threads finish together."""
_GROUPED = 1 << 21
"""Sums of groups that are held at a time, 16 MB."""
_Work = Callable[[slice, int, Array, Array, Array], None]
"""Takes rows, the first column, and columns; writes values, and counts of lost products."""
BlockWork = Callable[[slice, int, Array], None]
"""Computes the sums of some rows and columns: it takes rows, the first column, and columns."""


def sequential(
    left: Array, right: Array, start: Array, accumulator: FloatAccumulator, seed: int,
    indices: Array | None,
) -> State:  # fmt: skip
    """Sums `left` (M, K) times `right` (K, P), of any float type, after `start` (M or 1, P or 1).

    The draws of an output depend on its index in `indices` (M, P), None for rules that draw
    nothing. Steps 2 k and 2 k + 1 of a sum are the rounding of product k and of the sum with it;
    step 2 K is the rounding of the start, and steps from 2 K + 1 on add chunks.
    """
    sides = Factors.of(left, right)
    largest = sides.bound(start, accumulator)
    if largest is not None:
        single = single_sequential(sides, start, accumulator, largest)
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
    way = rule, product is None, is_odd, rule != kernels.SR and largest is not None
    bits = np.empty((len(left), 0), np.uint64)
    if rule == kernels.SR:
        assert indices is not None
        key = casting.draw_key(accumulator.rounding.seed, seed)
        bits = np.ascontiguousarray(casting.draw_words(key, indices))

    def work(rows: slice, low: int, columns: Array) -> None:
        kernels.run(
            factors[rows], columns, low, bits[rows], forms, way, accumulator.chunk or 0,
            tuple(each[rows] for each in outs),
        )  # fmt: skip

    share(left, right, np.float64, work)
    return _state(outs)


def by_stages(
    left: Array, right: Array, start: Array, accumulator: FloatAccumulator, terms: Terms
) -> State:
    """Returns sums in another order than that of k: each group of a stage is added from 0.

    The last one begins with `start`, (M or 1, P or 1), unless that is added at its end.
    """
    first, *others = accumulator.order.stages(terms)
    state = State.beginning(np.zeros((len(left), right.shape[1])) + start)
    width = max(_GROUPED // max(len(first.groups) * len(left), 1), 1)
    for part in parallel.pieces(right.shape[1], width):
        begin = start[:, part] if start.shape[1] > 1 else start
        some = _staged(left, right[:, part], begin, accumulator, (first, *others))
        for name in State.__dataclass_fields__:
            getattr(state, name)[:, part] = getattr(some, name)
    return state


def _staged(
    left: Array, right: Array, start: Array, accumulator: FloatAccumulator,
    stages: Sequence[Stage],
) -> State:  # fmt: skip
    state = State.beginning(np.zeros((len(left), right.shape[1])) + start)
    is_first, zero = accumulator.bias == "first", np.zeros((1, 1))
    name = accumulator.rounding.name
    begin = state.put(state.values, accumulator.format, name, accumulator.saturates)

    def add(total: Array, values: Array, own: FloatAccumulator = accumulator) -> Array:
        return state.put(odd_sum(total, values), own.format, name, own.saturates)

    sums, plain = [], accumulator.adder_of(stages[0])
    for row in stages[0].groups:
        group = row[row >= 0]
        is_last = is_first and len(stages) == 1
        own = start if is_last else zero
        part = sequential(left[:, group], right[group], own, plain, 0, None)
        state.overflowed |= part.overflowed
        state.swamped += part.swamped
        state.terms += part.terms
        state.exact += part.exact - own
        sums.append(part.values.astype(np.float64))
    for stage in stages[1:]:
        totals, own_add = [], partial(add, own=accumulator.adder_of(stage))
        for row in stage.groups:
            total = begin if is_first and stage is stages[-1] else np.zeros_like(begin)
            totals.append(reduce(own_add, (sums[k] for k in row if k >= 0), total))
        sums = totals
    state.values = sums[0] if is_first else add(sums[0], begin)
    return state


def blocks(left: Array, right: Array, start: Array, accumulator: BlockFma) -> State:
    """Returns the sums of `oracle.blocks`, of products that are aligned.

    Operands may have any float type, and are scaled numbers for blocks with scales; `start` is
    (M or 1, P or 1). Raises UsageError for operands that are not in their format.
    """
    match accumulator.scaling:
        case "none":
            single = single_blocks(left, right, start, accumulator)
            return _wide_blocks(left, right, start, accumulator) if single is None else single
        case "tiles":
            start = np.broadcast_to(start, (len(left), right.shape[1]))
            return oracle.tiled(left, right, start, accumulator, blocks)
        case _:
            return _wide_blocks(left, right, start, accumulator)


def _wide_blocks(left: Array, right: Array, start: Array, a: BlockFma) -> State:
    """Blocks of products, or of sums of groups of them, in lanes of float64."""
    kernels, is_grouped = loaded("blocks"), a.scaling != "none" and a.group > 1
    begin, shape = State.beginning(start), (len(left), right.shape[1])
    first = begin.put(start, a.register)
    outs = _outs(np.broadcast_to(first, shape), np.broadcast_to(start, shape))
    if a.schedule == "split":
        order = oracle.split_order(left.shape[1], a.length)
        missing = len(order) - left.shape[1]
        left = np.pad(left, ((0, 0), (0, missing)))[:, order]
        right = np.pad(right, ((0, missing), (0, 0)))[order]
    form, total = wide_format(a.out), SINGLE if a.promote else a.out
    parts = (
        ((a.length, a.group), form)
        if is_grouped
        else (_program(a, left.shape[1]), (form, wide_format(total)))
    )
    least = NO_EXPONENT if a.least is None else a.least
    limits = 2.0**least, a.register.least_normal, 2.0**a.fraction
    run = kernels.run_grouped if is_grouped else kernels.run
    factors = _groups(left, a, 1) if is_grouped else _factors(left, a)

    def work(rows: slice, low: int, columns: Array) -> None:
        ours = _groups(columns, a, 0) if is_grouped else _factors(columns, a)
        run(
            tuple(each[rows] for each in factors), ours, low, *parts, limits,
            a.rounding.name == "rne", tuple(each[rows] for each in outs),
        )  # fmt: skip

    share(left, right, np.complex64 if np.iscomplexobj(right) else np.float64, work)
    state = _state(outs)
    state.overflowed |= begin.overflowed
    return state


def _groups(numbers: Array, a: BlockFma, axis: int) -> tuple[Array, Array, Array]:
    """Returns elements, the scales of groups along an axis, and 2 to their exponents."""
    elements, scales = parted(numbers)
    _powers(elements, a)  # refuses what is no element
    ours = np.abs(scales[:: a.group] if axis == 0 else scales[:, :: a.group])
    return elements, _wide(ours), np.ldexp(1.0, oracle.scale_exponents(ours, a))


def _factors(numbers: Array, a: BlockFma) -> tuple[Array, Array]:
    """Returns numbers, float64, and 2 to their exponents: of an element, times its scale."""
    if not np.iscomplexobj(numbers):
        wide = _wide(numbers)
        return wide, _powers(wide, a)
    elements, scales = parted(numbers)
    return unscaled(numbers), _powers(elements, a) * np.where(np.isfinite(scales), scales, 0.0)


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


def _state(outs: tuple[Array, ...]) -> State:
    values, exact, terms, swamped, overflowed = outs
    return State(values, overflowed != 0, swamped, terms, exact)


def _outs(start: Array, exact: Array | None = None) -> tuple[Array, ...]:
    """Returns the arrays that kernels write: values, exact sums, terms, swamped, overflows."""
    counts = (np.zeros(start.shape, np.int64) for _ in range(3))
    sums = np.add(start if exact is None else exact, 0.0, order="C")  # no -0
    return (start.copy("C"), sums, *counts)


def single_sequential(
    factors: "Factors", start: Array, accumulator: FloatAccumulator, largest: float
) -> State | None:
    """Returns the sums of `sequential`; None where float32 would round them otherwise.

    `start` is (M or 1, P or 1). No sum overflows or is flushed, and none is beyond `largest`.
    """
    form, product_form = accumulator.format, accumulator.product_format
    if accumulator.rounding.name != "rne" or accumulator.chunk or product_form is None:
        return None
    if not product_form.fraction_bits <= form.fraction_bits <= _MOST_FRACTION:
        return None
    if product_form.least_bit < form.least_bit:  # a sum has bits below the least unit
        return None
    if min(form.least_normal, product_form.least_normal) < _LEAST_NORMAL:
        return None
    room = 2.0 ** (_LARGEST_EXPONENT - 1 - _FRACTION + product_form.fraction_bits)
    if largest > room or not (factors.is_exact or factors.least >= _LEAST_INEXACT):
        return None
    run, forms = loaded("singles").sequential, (single_format(form), single_format(product_form))

    def work(rows: slice, low: int, columns: Array, values: Array, unchanged: Array) -> None:
        run(factors.left[rows], columns, low, forms, factors.is_exact, values, unchanged)

    return _summed(factors, start, State.beginning(start).put(start, form), work)


def single_blocks(left: Array, right: Array, start: Array, accumulator: BlockFma) -> State | None:
    """Returns the sums of `oracle.blocks`; None where float32 or int32 do not hold every step.

    `start` is (M or 1, P or 1).
    """
    a, form = accumulator, accumulator.operands
    if a.out != SINGLE or a.schedule != "chain" or a.promote or form.subnormals != "kept":
        return None
    if (4 * a.length + 2) << a.fraction > _MOST_UNITS or form.fraction_bits > _MOST_OPERAND:
        return None
    factors = Factors.of(left, right)
    # All exponents of a block, and its units, are those of normal numbers.
    begin = np.abs(start)
    largest = factors.left.shape[1] * factors.largest + begin.max(initial=0)
    is_large = factors.least >= 4 * _LEAST_BLOCK
    is_large = is_large and not np.any((begin > 0) & (begin < _LEAST_START))
    if not (factors.is_exact and is_large and largest <= _LARGEST_BLOCK):
        return None
    kernels, least = loaded("singles"), _LEAST_BLOCK
    if a.least is not None:
        least = max(least, 2.0**a.least)
    limits = np.float32(least), np.float32(2.0**a.fraction), np.float32(2.0**-a.fraction)
    misfits: list[int] = []

    def powers(values: Array) -> Array:
        out, largest = np.empty_like(values), np.float32(form.largest)
        misfits.append(
            kernels.powers(values.reshape(-1), single_format(form), largest, out.reshape(-1))
        )
        return out

    row_powers = powers(factors.left)

    def work(rows: slice, low: int, columns: Array, values: Array, lost: Array) -> None:
        kernels.blocks(
            (factors.left[rows], row_powers[rows]), (columns, powers(columns)), low, a.length,
            limits, a.rounding.name == "rne", values, lost,
        )  # fmt: skip

    state = _summed(factors, start, start, work)
    return None if any(misfits) else state


def _summed(factors: "Factors", start: Array, first: Array, work: _Work) -> State:
    """Returns sums that begin with `first`, and what is counted beside them.

    `first` is `start` in the format of the sums; both are (M or 1, P or 1).
    """
    left, right = factors.left, factors.right
    shape = len(left), right.shape[1]
    values = np.broadcast_to(first, shape).astype(np.float32, order="C")
    exact = np.add(np.broadcast_to(start, shape), 0.0, dtype=np.float64, order="C")  # no -0
    terms, lost = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    count = loaded("singles").count

    def block(rows: slice, low: int, columns: Array) -> None:
        work(rows, low, columns, values[rows], lost[rows])
        count(left[rows], columns, low, exact[rows], terms[rows], lost[rows])

    share(left, right, np.float32, block)
    return State(values, np.zeros(shape, bool), lost, terms, exact)


def share(left: Array, right: Array, kind: Any, work: BlockWork) -> None:
    """Calls `work` for all blocks of `left` (M, K) times `right` (K, P), on the run's threads.

    Columns are of type `kind`, row after row, and stay in the second-level cache.
    """
    (rows, depth), columns = left.shape, right.shape[1]
    height = max(1, _WORK // max(depth * _WIDE, 1))
    parts = [(part, wide) for wide in parallel.pieces(columns, _WIDE)
             for part in parallel.pieces(rows, height)]  # fmt: skip

    def block(number: int) -> None:
        part, wide = parts[number]
        with np.errstate(all="ignore"):
            work(part, wide.start, np.ascontiguousarray(right[:, wide], kind))

    parallel.run_blocks(len(parts), block)


@dataclass(frozen=True, slots=True)
class Factors:
    """Operands, float32, with the least magnitude of a product other than 0, and the largest.

    `is_exact` says that float32 holds every product.
    """

    left: Array
    right: Array
    least: float
    largest: float
    is_exact: bool

    @classmethod
    def of(cls, left: Array, right: Array) -> "Factors":
        """The factors `left` (M, K) and `right` (K, P), floats of any type."""
        sides = [np.ascontiguousarray(side, np.float32) for side in (left, right)]
        measured = loaded("singles").measured
        (bits, least, largest), others = (measured(side.reshape(-1)) for side in sides)
        products = float(least) * float(others[1]), float(largest) * float(others[2])
        is_exact = not (bits | others[0]) & _UNUSED and products[0] >= _LEAST_NORMAL
        return cls(sides[0], sides[1], *products, bool(is_exact))

    def bound(self, start: Array, accumulator: FloatAccumulator) -> float | None:
        """Returns what no sum exceeds; None if a product or a sum may leave the range.

        So it is where one may be flushed. A rounding multiplies a magnitude by at most
        1 + 2^-`fraction_bits`, or adds a least number; a product is rounded three times at most:
        alone, in its sum, and in the sum of its chunk.
        """
        formats = [accumulator.format, accumulator.product_format or accumulator.format]
        if any(form.subnormals != "kept" for form in formats):
            return None
        depth = self.left.shape[1]
        roundings = 3 * depth + 3
        growth = np.exp(roundings * 2.0 ** -min(form.fraction_bits for form in formats))
        added = roundings * 2.0 ** max(form.least_bit for form in formats)
        exact = depth * self.largest + float(np.abs(start).max(initial=0))
        bound = float((exact + added) * growth)
        return bound if bound <= min(form.largest for form in formats) else None


def _wide(values: Array) -> Array:
    """Returns float64, row after row."""
    return np.ascontiguousarray(values, np.float64)
