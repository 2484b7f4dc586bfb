"""Steps after each addition to a sum, which limit it, and stores, which write what became of it.

A limited lane holds the sum, or the sum plus one half where the range has one more negative number:
both ranges are then symmetric, [-limit, limit], and one instruction saturates a lane. A lane is
exact while the limit is below 2^23 (float32) or 2^52 (float64): a sum beyond that is rounded, but
never across the limit. Sums that wrap, and EXTREMES, must be exact before they are limited.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from llvmlite import ir

from tracer.interpreter.kernels import tiles
from tracer.interpreter.kernels.machine_code import INDEX, Vectors

Rule = Callable[[Vectors, Any, Any], Any]
"""(vectors, lane, limit) -> what becomes of the lane."""
ROUNDINGS = {"half-even": "rint", "half-away": "round", "half-up": "floor", "floor": "floor",
             "truncate": "trunc"}  # fmt: skip
"""Roundings that tiles have, as LLVM names them; half-up adds one half first."""
BYTE = ir.IntType(8)
Write = Callable[[tiles.Tile], None]
OUTSIDE, PERSISTENT, EVENTS, CHANGED = range(4)
"""Counts: sums that leave the range on the way, sums whose exact final value is outside, steps that
leave the range, sums other than the exact ones."""
COUNTS_SIZE = 8
"""Elements of a table of counts: a cache line."""


def _saturated(v: Vectors, lane: Any, limit: Any) -> Any:
    return v.limited(lane, limit)


def _wrapped(v: Vectors, lane: Any, limit: Any) -> Any:
    """The lane modulo the size of the range, a power of 2: limits are half a step inside it."""
    b = v.builder
    size = b.fadd(b.fadd(limit, limit), v.constant(1.0))
    turns = v.rounded(b.fmul(lane, b.fdiv(v.constant(1.0), size)))
    return v.add_product(b.fneg(turns), size, lane)


def _zeroed(v: Vectors, lane: Any, limit: Any) -> Any:
    b = v.builder
    outside = b.fcmp_ordered(">", v.greatest(lane, b.fneg(lane)), limit)
    return b.select(outside, v.constant(0.5), lane)


RULES: dict[str, Rule] = {
    "saturate": _saturated, "symmetric": _saturated, "error": _saturated,
    "wrap": _wrapped, "zero": _zeroed,
}  # fmt: skip
"""Overflow modes that tiles have; a range that is not symmetric has one more negative number."""


def _count(rule: Rule, v: Vectors, added: Any, state: list[Any], limit: Any) -> list[Any]:
    b, value = v.builder, rule(v, added, limit)
    before, after, events = (b.bitcast(each, v.integers) for each in (added, value, state[0]))
    left = b.icmp_signed("!=", before, after)
    # 1 is the second bit of a float of at least 2: the compiler would add a constant by way of a
    # vector of the comparison, not under its mask
    shift = ir.Constant(v.integers, [v.bits - 2] * v.count)
    one = b.lshr(b.bitcast(b.fadd(limit, v.constant(2.0)), v.integers), shift)
    events = b.add(events, b.select(left, one, ir.Constant(v.integers, None)))
    return [value, b.bitcast(events, v.kind)]


def _product(
    rule: Rule | None,
    rounding: str | None,
    v: Vectors,
    words: tiles.Words,
    factor: Any,
    column: Any,
) -> Any:
    b, half = v.builder, words.halves("product_half")
    if rounding is None:
        lane = v.add_product(factor, column, half)
    else:
        lane = b.fadd(_rounded(rounding, v, b.fmul(factor, column)), half)
    return b.fsub(lane if rule is None else rule(v, lane, words.halves("product_limit")), half)


@cache
def limiting(overflow: str) -> tiles.Step:
    """Limits the sum."""
    rule = RULES[overflow]
    return tiles.Step(0, lambda v, added, state, limit: [rule(v, added, limit), *state])


@cache
def counting(overflow: str) -> tiles.Step:
    """Limits the sum; the state, integers as wide as a lane, counts sums outside."""
    return tiles.Step(1, partial(_count, RULES[overflow]))


@cache
def product(overflow: str | None, rounding: str | None) -> tiles.ProductCode:
    """Products, rounded and limited as these say; None leaves them as they are."""
    rule = None if overflow is None else RULES[overflow]
    return partial(_product, rule, rounding)


@cache
def passing(bits: int, rounding: str) -> Callable[[Vectors, Any], Any]:
    """Sums without low bits, in units that are so much coarser."""
    return lambda v, lane: _rounded(rounding, v, v.builder.fmul(lane, v.constant(2.0**-bits)))


def _rounded(rounding: str, v: Vectors, lane: Any) -> Any:
    """The lane rounded to integers, or to units that are its number 1."""
    up = v.builder.fadd(lane, v.constant(0.5)) if rounding == "half-up" else lane
    return v.rounded(up, ROUNDINGS[rounding])


EXTREMES = tiles.Step(
    2,
    lambda v, added, state, limit: [
        added, v.least(state[0], added), v.greatest_from_zero(state[1], added),
    ],
)  # fmt: skip
"""The states are the least and the greatest sum so far, 0 among them."""

FREE = tiles.Step(1, lambda v, added, state, limit: [added, *state])
"""Has a state, which register 0 may change."""


def write_sums(tile: tiles.Tile) -> None:
    """Writes sums as int64."""
    tile.put(0, _int64(tile, tile.after[0]))


def write_bytes(tile: tiles.Tile) -> None:
    """Writes bytes: the sums times a step, plus a rest, limited, quantised."""
    v, b, half = tile.vectors, tile.vectors.builder, tile.words.halves("half")
    known, columns = tile.words.array("parameters", ir.DoubleType()), len(tile.inside)
    results = []
    for n, value in enumerate(tile.after[0]):
        if n % columns == 0:
            row = b.mul(b.add(tile.row, INDEX(n // columns)), INDEX(tiles.PARAMETERS))
            numbers = [b.load(v.at(v.at(known, row), i)) for i in range(tiles.PARAMETERS)]
        results.append(_byte(tile, b.fsub(value, half), numbers))
    tile.put(0, results)


def _byte(tile: tiles.Tile, value: Any, numbers: Sequence[Any]) -> Any:
    """One vector of bytes, rounded as the nodes that would compute them one after the other."""
    v, b = tile.vectors, tile.vectors.builder
    double, single = (ir.VectorType(kind, v.count) for kind in (ir.DoubleType(), ir.FloatType()))
    step, rest = (v.spread(number) for number in numbers[:2])
    least, most, scale, low, high, zero = (
        v.spread(b.fptrunc(number, ir.FloatType())) for number in numbers[2:]
    )
    wide = value if v.bits == 64 else b.fpext(value, double)
    real = b.fptrunc(b.fadd(b.fmul(wide, step), rest), single)
    ratio = b.fdiv(v.least(v.greatest(real, least), most), scale)
    name = f"llvm.rint.v{v.count}f32"
    rint = b.module.globals.get(name) or ir.Function(
        b.module, ir.FunctionType(single, [single]), name
    )
    rounded = b.fadd(b.call(rint, [v.least(v.greatest(ratio, low), high)]), zero)
    integers = b.fptosi(rounded, ir.VectorType(ir.IntType(32), v.count))
    return b.trunc(integers, ir.VectorType(ir.IntType(8), v.count))


def outside(tile: tiles.Tile, low: Sequence[Any], high: Sequence[Any]) -> Any:
    """Whether a sum of a tile, with these extremes on the way, leaves the range."""
    v, b, limit = tile.vectors, tile.vectors.builder, tile.words.halves("limit")
    sizes = [v.greatest(up, b.fneg(down)) for down, up in zip(low, high, strict=True)]
    return any_lane(tile, [b.fcmp_ordered(">", size, limit) for size in sizes])


def any_lane(tile: tiles.Tile, masks: Sequence[Any]) -> Any:
    """Whether a mask is set in a lane that is a result."""
    v, b, total = tile.vectors, tile.vectors.builder, None
    for mask in inside(tile, masks):
        total = mask if total is None else b.or_(total, mask)
    bits = ir.IntType(v.count)
    return b.icmp_unsigned("!=", b.bitcast(total, bits), bits(0))


def inside(tile: tiles.Tile, masks: Sequence[Any]) -> list[Any]:
    """Masks of a tile without lanes that are no results."""
    columns, b = len(tile.inside), tile.vectors.builder
    return [b.and_(mask, tile.inside[n % columns]) for n, mask in enumerate(masks)]


def reduced(v: Vectors, operation: str, lanes: Any) -> Any:
    """One integer of all lanes of a vector, by the reduction of LLVM with this name."""
    b, kind = v.builder, lanes.type
    name = f"llvm.vector.reduce.{operation}.v{kind.count}i{kind.element.width}"
    function = b.module.globals.get(name) or ir.Function(
        b.module, ir.FunctionType(kind.element, [kind]), name
    )
    return b.call(function, [lanes])


def _int64(tile: tiles.Tile, values: Sequence[Any]) -> list[Any]:
    """Sums as int64."""
    v, b, half = tile.vectors, tile.vectors.builder, tile.words.halves("half")
    kind = ir.VectorType(INDEX, v.count)
    return [b.fptosi(b.fsub(value, half), kind) for value in values]


def _events(tile: tiles.Tile, states: Sequence[Any]) -> list[Any]:
    """States of `counting` as integers of the width of a lane, 0 beyond the columns."""
    v, b = tile.vectors, tile.vectors.builder
    states = [b.bitcast(state, v.integers) for state in states]
    zero = ir.Constant(v.integers, None)
    return [b.select(tile.inside[n % len(tile.inside)], state, zero)
            for n, state in enumerate(states)]  # fmt: skip


def _values_and_events(tile: tiles.Tile) -> None:
    v, b = tile.vectors, tile.vectors.builder
    write_sums(tile)
    wide = ir.VectorType(INDEX, v.count)
    events = _events(tile, tile.after[1])
    tile.put(1, events if v.bits == 64 else [b.zext(each, wide) for each in events])


def _sums_and_extremes(tile: tiles.Tile) -> None:
    for number, values in enumerate(tile.after):
        tile.put(number, _int64(tile, values))


def _count_events(tile: tiles.Tile, write: Write) -> None:
    """Writes the sums of `counting`; computes the exact ones only where a sum was outside."""
    write(tile)
    values, states = tile.after
    zero = ir.Constant(tile.vectors.integers, None)
    beyond = [tile.vectors.builder.icmp_signed("!=", each, zero) for each in _events(tile, states)]
    with tile.vectors.builder.if_then(any_lane(tile, beyond)):
        _add_counts(tile, values, states, tile.again(tiles.NOTHING)[0])


def _count_again(tile: tiles.Tile, write: Write, step: tiles.Step) -> None:
    """Writes the sums of EXTREMES; limits and counts only where one of them was outside."""
    final, low, high = tile.after
    with tile.vectors.builder.if_else(outside(tile, low, high)) as (beyond, within):
        with beyond:
            values, states = tile.again(step)
            write(replace(tile, after=[values]))
            _add_counts(tile, values, states, final)
        with within:
            write(tile)


def _add_counts(tile: tiles.Tile, values: list[Any], states: list[Any], exact: list[Any]) -> None:
    """Adds to the counts of the tile's slot."""
    v, b, limit = tile.vectors, tile.vectors.builder, tile.words.halves("limit")
    zero, events = ir.Constant(v.integers, None), _events(tile, states)
    table = v.at(tile.words.array("tables"), b.mul(tile.slot, tile.words.number("table_size")))
    masks = {
        OUTSIDE: [b.icmp_signed("!=", each, zero) for each in events],
        PERSISTENT: [b.fcmp_ordered(">", v.greatest(each, b.fneg(each)), limit) for each in exact],
        CHANGED: [b.fcmp_ordered("!=", *pair) for pair in zip(values, exact, strict=True)],
    }
    flags = {
        number: [b.zext(each, v.integers) for each in inside(tile, lanes)]
        for number, lanes in masks.items()
    }
    for number, lanes in {**flags, EVENTS: events}.items():
        total = lanes[0]
        for each in lanes[1:]:
            total = b.add(total, each)
        count = reduced(v, "add", total)
        address = v.at(table, number)
        wide = count if v.bits == 64 else b.zext(count, INDEX)
        b.store(b.add(b.load(address), wide), address)


VALUES = tiles.Store((INDEX,), write_sums)
"""The sums of a step without state."""
VALUES_AND_EVENTS = tiles.Store((INDEX, INDEX), _values_and_events)
"""The sums, and the state, which counts events."""
SUMS_AND_EXTREMES = tiles.Store((INDEX,) * 3, _sums_and_extremes)
"""The sums, their least and their greatest on the way."""
COUNTS = tiles.Store(
    (INDEX,), partial(_count_events, write=write_sums), repeats=True, tables=lambda *_: COUNTS_SIZE
)
"""The sums of `counting`, and four counts in the tables."""
BYTES = tiles.Store((BYTE,), write_bytes)
"""The sums of a step without state as bytes, by the parameters of their rows."""
BYTES_AND_COUNTS = tiles.Store((BYTE,), partial(_count_events, write=write_bytes), repeats=True,
                         tables=lambda *_: COUNTS_SIZE)  # fmt: skip
"""The same, with the four counts."""


@cache
def rare_counts(overflow: str, as_bytes: bool) -> tiles.Store:
    """Sums of EXTREMES, limited, and the four counts: fast where few sums leave the range."""
    kind, write = (BYTE, write_bytes) if as_bytes else (INDEX, write_sums)
    code = partial(_count_again, write=write, step=counting(overflow))
    return tiles.Store((kind,), code, repeats=True, tables=lambda *_: COUNTS_SIZE)
