"""What becomes of sums: int64 values, events, extremes, and counts of overflows."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from llvmlite import ir

from tracer.interpreter.kernels.tiles import Store, Tile
from tracer.interpreter.kernels.vectors import INDEX

OUTSIDE, PERSISTENT, EVENTS, CHANGED = range(4)
"""Counts: sums that leave the range on the way, sums whose exact final value is outside, steps that
leave the range, sums other than the exact ones."""

_UNCHANGED = -(1 << 63)


def _int64(tile: Tile, values: Sequence[Any]) -> list[Any]:
    """Sums as int64."""
    v, b, half = tile.vectors, tile.vectors.builder, tile.words.halves("half")
    kind = ir.VectorType(INDEX, v.count)
    return [b.fptosi(b.fsub(value, half), kind) for value in values]


def _events(tile: Tile) -> list[Any]:
    """The state as integers of the width of a lane, 0 beyond the columns."""
    v, b = tile.vectors, tile.vectors.builder
    states = [b.bitcast(state, v.integers) for state in tile.after[1]]
    zero = ir.Constant(v.integers, None)
    return [b.select(tile.inside[n % len(tile.inside)], state, zero)
            for n, state in enumerate(states)]  # fmt: skip


def _values(tile: Tile) -> None:
    tile.put(0, _int64(tile, tile.after[0]))


def _values_and_events(tile: Tile) -> None:
    v, b = tile.vectors, tile.vectors.builder
    _values(tile)
    wide = ir.VectorType(INDEX, v.count)
    events = _events(tile)
    tile.put(1, events if v.bits == 64 else [b.zext(each, wide) for each in events])


def _sums_and_extremes(tile: Tile) -> None:
    for number, values in enumerate(tile.after):
        tile.put(number, _int64(tile, values))


def _counted(tile: Tile, with_events: bool) -> None:
    """UNCHANGED, or the values where they differ; the exact sums only where a sum was outside."""
    v, b, states = tile.vectors, tile.vectors.builder, _events(tile)
    unchanged = ir.Constant(ir.VectorType(INDEX, v.count), [_UNCHANGED] * v.count)
    tile.put(0, [unchanged] * len(states))
    with b.if_then(_any(tile, states)):
        zero, limit = ir.Constant(v.integers, None), tile.words.halves("limit")
        values, exact = tile.after[0], tile.exact()
        changed = [b.fcmp_ordered("!=", *pair) for pair in zip(values, exact, strict=True)]
        beyond = [b.fcmp_ordered(">", v.greatest(each, b.fneg(each)), limit) for each in exact]
        outside = [b.icmp_signed("!=", state, zero) for state in states]
        sums = _int64(tile, values)
        tile.put(0, [b.select(*choice, unchanged) for choice in zip(changed, sums, strict=True)])
        for number, masks in ((OUTSIDE, outside), (PERSISTENT, beyond), (CHANGED, changed)):
            inside = [b.and_(mask, tile.inside[n % len(tile.inside)])
                      for n, mask in enumerate(masks)]  # fmt: skip
            _add(tile, number, [b.zext(mask, v.integers) for mask in inside])
        if with_events:
            _add(tile, EVENTS, states)


def _any(tile: Tile, states: Sequence[Any]) -> Any:
    """Whether any state is not 0."""
    v, b = tile.vectors, tile.vectors.builder
    total = states[0]
    for state in states[1:]:
        total = b.or_(total, state)
    bits = ir.IntType(v.bits * v.count)
    return b.icmp_unsigned("!=", b.bitcast(total, bits), bits(0))


def _add(tile: Tile, number: int, vectors: Sequence[Any]) -> None:
    """Adds up the lanes of vectors to a count, which blocks of other threads add to as well."""
    v, b = tile.vectors, tile.vectors.builder
    total = vectors[0]
    for each in vectors[1:]:
        total = b.add(total, each)
    name = f"llvm.vector.reduce.add.v{v.count}i{v.bits}"
    kind = ir.FunctionType(ir.IntType(v.bits), [v.integers])
    reduce = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    lanes = b.call(reduce, [total])
    wide = lanes if v.bits == 64 else b.zext(lanes, INDEX)
    b.atomic_rmw("add", v.at(tile.words.array("out_1"), number), wide, "monotonic")


VALUES = Store((INDEX,), _values)
"""The sums of a step without state."""
VALUES_AND_EVENTS = Store((INDEX, INDEX), _values_and_events)
"""The sums, and the state, which counts events."""
SUMS_AND_EXTREMES = Store((INDEX,) * 3, _sums_and_extremes)
"""The sums, their least and their greatest on the way."""
COUNTS = Store((INDEX,), partial(_counted, with_events=True), needs_exact=True)
"""The sums that differ from the exact ones, else the least int64; four counts in `out_1`."""
FLAGS = Store((INDEX,), partial(_counted, with_events=False), needs_exact=True)
"""As COUNTS for a state that is no count: without events."""
