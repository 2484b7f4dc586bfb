"""The innermost sums of a narrow accumulator: rows times a panel of columns, one lane a column.

Written in LLVM's own terms, as `micro` is, so that the sums of a tile stay in vector registers
while k runs. Lanes are int16 or int32. A panel is `panel[place + k * COLUMNS + lane]`; the sums of
row r are `sums[at + r * COLUMNS + lane]`; the factor of row r at k is
`left[first + r * stride + k]`, an int32: for int16 lanes it holds the factor twice.

Sums in int32 of operands that fit int16 take terms in pairs, since one instruction multiplies and
adds two of them: their panel is int16, `panel[place + k * COLUMNS + 2 * lane + i]` for the terms
k and k + 1, k even. A factor is the low half of its int32 where k is even, the high half where it
is odd, the other half 0; `hopeful` and `plain` read factors of both terms, one int32 for a pair.

numba keeps compiled code by the time stamp of the file of the function that is compiled: touch
`dense.py` after a change here or in `vectors`.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tracer.accumulators.kernels.llvm_vectors import INDEX, REGISTER, Lanes

ROWS = 6
"""Rows of a tile that is summed hopefully: its sums leave room for factors in 16 registers."""
FEWER = 2
"""Rows of other tiles, which keep two or three registers for each sum."""
GROUP = 4
"""Terms that plain sums take at a time; depths are multiples of it."""


def summed(
    lanes: Lanes, sums: list[Any], stride: int, bounds: tuple[Any, Any] | None = None
) -> list[Any]:
    """Plain sums of ROWS rows, `stride` terms at a time: those between the bounds, or all."""

    def step(k: Any, sums: list[Any]) -> list[Any]:
        for i in range(0, stride, 2):
            terms = lanes.pairs(lanes.builder.add(k, INDEX(i)), ROWS)
            sums = list(map(lanes.builder.add, sums, terms))
        return sums

    return lanes.loop(sums, step, stride, bounds)


def _hopeful(lanes: Lanes) -> Any:
    """Plain sums, looked at now and then; written only if all were within the limits."""
    b, depth, (at, low, high, looks) = lanes.builder, lanes.arguments[3], lanes.arguments[7:11]
    targets = lanes.rows(lanes.data(6, at), ROWS)
    least, most = lanes.spread(low), lanes.spread(high)

    def outside(sums: list[Any]) -> Any:
        ends = (reduce(partial(lanes.call, name), sums) for name in ("smin", "smax"))
        beyond = map(b.icmp_signed, "<>", ends, (least, most))
        return b.or_(*(b.sext(each, lanes.vector) for each in beyond))

    def stretch(k: Any, carried: list[Any]) -> list[Any]:
        *sums, beyond = carried
        end = b.add(k, looks)
        stop = b.select(b.icmp_signed("<", end, depth), end, depth)
        sums = summed(lanes, sums, GROUP, (k, stop))
        return [*sums, b.or_(beyond, outside(sums))]

    sums = [lanes.load(target) for target in targets]
    *sums, beyond = lanes.loop([*sums, outside(sums)], stretch, looks)
    bits = ir.IntType(REGISTER)
    inside = b.icmp_unsigned("==", b.bitcast(beyond, bits), bits(0))
    with b.if_then(inside):
        for value, target in zip(sums, targets, strict=True):
            lanes.store(value, target)
    return inside


def _plain(lanes: Lanes) -> Any:
    """Plain sums that cannot leave the limits."""
    targets = lanes.rows(lanes.data(6, lanes.arguments[7]), ROWS)
    sums = summed(lanes, [lanes.load(target) for target in targets], GROUP)
    for value, target in zip(sums, targets, strict=True):
        lanes.store(value, target)
    return lanes.context.get_dummy_value()


def clipped(
    lanes: Lanes, sums: list[Any], counts: list[Any], limits: tuple[Any, Any] | None
) -> tuple[list[Any], list[Any]]:
    """Sums of FEWER rows held in the limits at every step; counts fall by one for steps within.

    Without limits the range is that of the lane, so that the saturating addition is all it takes.
    """
    b = lanes.builder

    def step(k: Any, carried: list[Any]) -> list[Any]:
        sums, counts = carried[: len(carried) // 2], carried[len(carried) // 2 :]
        for odd in (0, 1):
            terms = lanes.products(k, odd, FEWER)
            kind = "sadd.sat" if lanes.bits == 16 else None
            wide = [
                lanes.call(kind, *pair) if kind else b.add(*pair)
                for pair in zip(sums, terms, strict=True)
            ]
            if limits is None:
                free, sums = list(map(b.add, sums, terms)), wide
            else:
                free, sums = wide, [held(lanes, value, limits) for value in wide]
            counts = list(map(partial(counted, lanes), counts, free, sums))
        return sums + counts

    after = lanes.loop([*sums, *counts], step, 2)
    return after[: len(sums)], after[len(sums) :]


def held(lanes: Lanes, value: Any, limits: tuple[Any, Any]) -> Any:
    """A vector within the limits."""
    return lanes.call("smin", lanes.call("smax", value, limits[0]), limits[1])


def counted(lanes: Lanes, count: Any, wide: Any, kept: Any) -> Any:
    """The count less one where a sum was within."""
    b = lanes.builder
    return b.add(count, b.sext(b.icmp_signed("==", wide, kept), lanes.vector))


def _careful(lanes: Lanes, full: bool) -> Any:
    """Clipped sums, and counts from 0."""
    at, low, high = lanes.arguments[7:10]
    targets, tallies = (lanes.rows(lanes.data(n, at), FEWER) for n in (6, 10))
    limits = None if full else (lanes.spread(low), lanes.spread(high))
    sums = [lanes.load(target) for target in targets]
    nothing = [ir.Constant(lanes.vector, None)] * len(tallies)
    sums, counts = clipped(lanes, sums, nothing, limits)
    for value, address in zip(sums + counts, targets + tallies, strict=True):
        lanes.store(value, address)
    return lanes.context.get_dummy_value()


def widened(lanes: Lanes, carried: list[Any]) -> list[Any]:
    """Plain sums of FEWER rows, and the least and the greatest of each lane so far."""
    b, count = lanes.builder, len(carried) // 3

    def step(k: Any, carried: list[Any]) -> list[Any]:
        sums, least, most = carried[:count], carried[count:-count], carried[-count:]
        for odd in (0, 1):
            sums = list(map(b.add, sums, lanes.products(k, odd, FEWER)))
            least = list(map(partial(lanes.call, "smin"), least, sums))
            most = list(map(partial(lanes.call, "smax"), most, sums))
        return [*sums, *least, *most]

    return lanes.loop(carried, step, 2)


def _extremes(lanes: Lanes) -> Any:
    """Plain sums and their extremes."""
    at = lanes.arguments[7]
    addresses = [address for n in (6, 8, 9) for address in lanes.rows(lanes.data(n, at), FEWER)]
    after = widened(lanes, [lanes.load(address) for address in addresses])
    for value, address in zip(after, addresses, strict=True):
        lanes.store(value, address)
    return lanes.context.get_dummy_value()


@intrinsic
def _hopeful_of(
    typingctx: Any, left: Any, first: Any, stride: Any, depth: Any, panel: Any, place: Any,
    sums: Any, at: Any, low: Any, high: Any, looks: Any,
) -> Any:  # fmt: skip
    i, lane = types.intp, sums.dtype
    kind = types.boolean(left, i, i, i, panel, i, sums, i, lane, lane, i)
    return kind, lambda *call: _hopeful(Lanes(*call))


@intrinsic
def _plain_of(
    typingctx: Any, left: Any, first: Any, stride: Any, depth: Any, panel: Any, place: Any,
    sums: Any, at: Any,
) -> Any:  # fmt: skip
    i = types.intp
    return types.void(left, i, i, i, panel, i, sums, i), lambda *call: _plain(Lanes(*call))


def _careful_of(full: bool) -> Any:
    @intrinsic
    def careful(
        typingctx: Any, left: Any, first: Any, stride: Any, depth: Any, panel: Any, place: Any,
        sums: Any, at: Any, low: Any, high: Any, counts: Any,
    ) -> Any:  # fmt: skip
        i, lane = types.intp, sums.dtype
        kind = types.void(left, i, i, i, panel, i, sums, i, lane, lane, counts)
        return kind, lambda *call: _careful(Lanes(*call), full)

    return careful


@intrinsic
def _extremes_of(
    typingctx: Any, left: Any, first: Any, stride: Any, depth: Any, panel: Any, place: Any,
    sums: Any, at: Any, least: Any, greatest: Any,
) -> Any:  # fmt: skip
    i = types.intp
    kind = types.void(left, i, i, i, panel, i, sums, i, least, greatest)
    return kind, lambda *call: _extremes(Lanes(*call))


# In all of these arrays are flat and contiguous, and nothing is checked.

hopeful: Any = _hopeful_of
"""(left, first, stride, depth, panel, place, sums, at, low, high, looks): add up ROWS rows without
a range. True, and written, if the sums were in [low, high] at the start, after each `looks` terms,
a multiple of GROUP, and at the end."""

plain: Any = _plain_of
"""(left, first, stride, depth, panel, place, sums, at): the same where no sum can leave a range."""

careful, careful_full = _careful_of(full=False), _careful_of(full=True)
"""(left, first, stride, depth, panel, place, sums, at, low, high, counts): add up FEWER rows, held
in [low, high] at every step; `counts`, laid out as the sums, becomes minus the steps within. In
`careful_full` the range is all that an int16 lane holds."""

extremes: Any = _extremes_of
"""(left, first, stride, depth, panel, place, sums, at, least, greatest): add up FEWER rows without
a range and widen their extremes, laid out as the sums."""
