"""What becomes of sums: int64 values, events, extremes, and counts of overflows."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from llvmlite import ir

from tracer.interpreter.kernels.tiles import PARAMETERS, Store, Tile
from tracer.interpreter.kernels.vectors import INDEX

OUTSIDE, PERSISTENT, EVENTS, CHANGED = range(4)
"""Counts: sums that leave the range on the way, sums whose exact final value is outside, steps that
leave the range, sums other than the exact ones."""


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


def _count(tile: Tile) -> None:
    """Adds to the counts; computes the exact sums only where a sum was outside."""
    v, b, states = tile.vectors, tile.vectors.builder, _events(tile)
    with b.if_then(_any(tile, states)):
        zero, limit = ir.Constant(v.integers, None), tile.words.halves("limit")
        values, exact = tile.after[0], tile.exact()
        changed = [b.fcmp_ordered("!=", *pair) for pair in zip(values, exact, strict=True)]
        beyond = [b.fcmp_ordered(">", v.greatest(each, b.fneg(each)), limit) for each in exact]
        outside = [b.icmp_signed("!=", state, zero) for state in states]
        for number, masks in ((OUTSIDE, outside), (PERSISTENT, beyond), (CHANGED, changed)):
            inside = [b.and_(mask, tile.inside[n % len(tile.inside)])
                      for n, mask in enumerate(masks)]  # fmt: skip
            _add(tile, number, [b.zext(mask, v.integers) for mask in inside])
        _add(tile, EVENTS, states)


def _both(tile: Tile, write: Callable[[Tile], None]) -> None:
    write(tile)
    _count(tile)


def _bytes(tile: Tile) -> None:
    """Bytes: the sums times a step, plus a rest, limited, quantised; see `chains.finish`."""
    v, b, half = tile.vectors, tile.vectors.builder, tile.words.halves("half")
    known, columns = tile.words.array("parameters", ir.DoubleType()), len(tile.inside)
    results = []
    for n, value in enumerate(tile.after[0]):
        if n % columns == 0:
            row = b.mul(b.add(tile.row, INDEX(n // columns)), INDEX(PARAMETERS))
            numbers = [b.load(v.at(v.at(known, row), i)) for i in range(PARAMETERS)]
        results.append(_byte(tile, b.fsub(value, half), numbers))
    tile.put(0, results)


def _byte(tile: Tile, value: Any, numbers: Sequence[Any]) -> Any:
    """One vector of bytes, rounded as the nodes that would compute them one after the other."""
    v, b = tile.vectors, tile.vectors.builder
    double, single = (ir.VectorType(kind, v.count) for kind in (ir.DoubleType(), ir.FloatType()))
    step, rest = (_spread(tile, number, double) for number in numbers[:2])
    least, most, scale, low, high, zero = (
        _spread(tile, b.fptrunc(number, ir.FloatType()), single) for number in numbers[2:]
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


def _spread(tile: Tile, number: Any, kind: Any) -> Any:
    """The number in every lane of a vector of a kind."""
    b, undefined = tile.vectors.builder, ir.Constant(kind, ir.Undefined)
    single = b.insert_element(undefined, number, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return b.shuffle_vector(single, undefined, lanes)


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
COUNTS = Store((INDEX,), partial(_both, write=_values), needs_exact=True)
"""The sums, and four counts in `out_1`."""
BYTES = Store((ir.IntType(8),), _bytes)
"""The sums of a step without state as bytes, by the parameters of their rows."""
BYTES_AND_COUNTS = Store((ir.IntType(8),), partial(_both, write=_bytes), needs_exact=True)
"""The sums as bytes, and four counts in `out_1`."""
