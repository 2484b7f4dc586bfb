"""The innermost loops of narrow sums: rows times a panel of columns, one lane a column.

They are LLVM IR, as in the float kernels, so that the sums of a tile stay in vector
registers while k runs. Lanes are int16 or int32. Layout, for row r, term k and lane l:

- panel: `panel[offset + k * COLUMNS + l]`;
- sums: `sums[at + r * COLUMNS + l]`;
- factors: `left[first + r * stride + k]`, int32; for int16 lanes it holds the factor twice.

Int32 sums of operands that fit int16 take terms in pairs: one instruction multiplies and adds two.
Their panel is int16, `panel[offset + k * COLUMNS + 2 * l + i]` for the terms k and k + 1, k even.
A factor is the low half of its int32 for even k, the high half for odd k; the other half is 0.
`speculative` and `unchecked` read both factors of a pair in one int32.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tracer.accumulators.kernels.llvm_vectors import INDEX, REGISTER, Lanes

ROWS = 6
"""Rows of a tile in plain sums: their sums leave room for factors in 16 registers."""
FEW_ROWS = 2
"""Rows of a tile where each sum needs two or three registers."""
DEPTH_STEP = 4
"""Terms that plain sums take at a time; depths are multiples of it."""


def plain_sums(
    lanes: Lanes, sums: list[Any], stride: int, bounds: tuple[Any, Any] | None = None
) -> list[Any]:
    """Sums of ROWS rows without a range, `stride` terms at a time, within `bounds` of k."""

    def step(k: Any, sums: list[Any]) -> list[Any]:
        for i in range(0, stride, 2):
            terms = lanes.pairs(lanes.builder.add(k, INDEX(i)), ROWS)
            sums = list(map(lanes.builder.add, sums, terms))
        return sums

    return lanes.loop(sums, step, stride, bounds)


def _speculative_code(lanes: Lanes) -> Any:
    """Plain sums, checked now and then; stored only if all checks were within the limits."""
    b, depth, (at, low, high, interval) = lanes.builder, lanes.arguments[3], lanes.arguments[7:11]
    targets = lanes.rows(lanes.data(6, at), ROWS)
    least, most = lanes.spread(low), lanes.spread(high)

    def outside(sums: list[Any]) -> Any:
        ends = (reduce(partial(lanes.call, name), sums) for name in ("smin", "smax"))
        beyond = map(b.icmp_signed, "<>", ends, (least, most))
        return b.or_(*(b.sext(each, lanes.vector) for each in beyond))

    def stretch(k: Any, carried: list[Any]) -> list[Any]:
        *sums, beyond = carried
        end = b.add(k, interval)
        stop = b.select(b.icmp_signed("<", end, depth), end, depth)
        sums = plain_sums(lanes, sums, DEPTH_STEP, (k, stop))
        return [*sums, b.or_(beyond, outside(sums))]

    sums = [lanes.load(target) for target in targets]
    *sums, beyond = lanes.loop([*sums, outside(sums)], stretch, interval)
    bits = ir.IntType(REGISTER)
    inside = b.icmp_unsigned("==", b.bitcast(beyond, bits), bits(0))
    with b.if_then(inside):
        lanes.store_all(sums, targets)
    return inside


def _unchecked_code(lanes: Lanes) -> Any:
    """Plain sums that cannot leave the limits."""
    targets = lanes.rows(lanes.data(6, lanes.arguments[7]), ROWS)
    sums = plain_sums(lanes, [lanes.load(target) for target in targets], DEPTH_STEP)
    return lanes.store_all(sums, targets)


def saturated_sums(
    lanes: Lanes, sums: list[Any], counts: list[Any], limits: tuple[Any, Any] | None
) -> tuple[list[Any], list[Any]]:
    """Sums of FEW_ROWS rows limited at every step; counts fall by one for each step within.

    Without limits the range is that of the lane, and the saturating addition limits the sums.
    """
    b = lanes.builder

    def step(k: Any, carried: list[Any]) -> list[Any]:
        sums, counts = carried[: len(carried) // 2], carried[len(carried) // 2 :]
        for odd in (0, 1):
            terms = lanes.products(k, odd, FEW_ROWS)
            add = partial(lanes.call, "sadd.sat") if lanes.bits == 16 else b.add
            wide = list(map(add, sums, terms))
            if limits is None:
                free, sums = list(map(b.add, sums, terms)), wide
            else:
                free, sums = wide, [limited(lanes, value, limits) for value in wide]
            counts = list(map(partial(counted, lanes), counts, free, sums))
        return sums + counts

    after = lanes.loop([*sums, *counts], step, 2)
    return after[: len(sums)], after[len(sums) :]


def limited(lanes: Lanes, value: Any, limits: tuple[Any, Any]) -> Any:
    """A vector brought within the limits."""
    return lanes.call("smin", lanes.call("smax", value, limits[0]), limits[1])


def counted(lanes: Lanes, count: Any, wide: Any, value: Any) -> Any:
    """The count, less one in lanes where the sum `wide` was within the limits."""
    b = lanes.builder
    return b.add(count, b.sext(b.icmp_signed("==", wide, value), lanes.vector))


def _saturating_code(lanes: Lanes, full: bool) -> Any:
    """Saturated sums, and counts from 0."""
    at, low, high = lanes.arguments[7:10]
    targets, tallies = (lanes.rows(lanes.data(n, at), FEW_ROWS) for n in (6, 10))
    limits = None if full else (lanes.spread(low), lanes.spread(high))
    sums = [lanes.load(target) for target in targets]
    zeros = [ir.Constant(lanes.vector, None)] * len(tallies)
    sums, counts = saturated_sums(lanes, sums, zeros, limits)
    return lanes.store_all(sums + counts, targets + tallies)


def sums_and_extremes(lanes: Lanes, carried: list[Any]) -> list[Any]:
    """Plain sums of FEW_ROWS rows, and the least and the greatest of each lane so far."""
    b, count = lanes.builder, len(carried) // 3

    def step(k: Any, carried: list[Any]) -> list[Any]:
        sums, least, most = carried[:count], carried[count:-count], carried[-count:]
        for odd in (0, 1):
            sums = list(map(b.add, sums, lanes.products(k, odd, FEW_ROWS)))
            least = list(map(partial(lanes.call, "smin"), least, sums))
            most = list(map(partial(lanes.call, "smax"), most, sums))
        return [*sums, *least, *most]

    return lanes.loop(carried, step, 2)


def _extremes_code(lanes: Lanes) -> Any:
    """Plain sums and their extremes."""
    at = lanes.arguments[7]
    addresses = [address for n in (6, 8, 9) for address in lanes.rows(lanes.data(n, at), FEW_ROWS)]
    after = sums_and_extremes(lanes, [lanes.load(address) for address in addresses])
    return lanes.store_all(after, addresses)


def lane_intrinsic(code: Callable[[Lanes], Any], result: Any = types.void) -> Any:
    """An intrinsic: (left, first, stride, depth, panel, offset, sums, at, low, high, extra).

    All arrays are flat and contiguous, and indices are not checked. `low` and `high` are lanes or
    arrays; `extra` is an index or an array. `code` builds the LLVM IR, which may ignore the three.
    """

    @intrinsic
    def function(
        typingctx: Any, left: Any, first: Any, stride: Any, depth: Any, panel: Any, offset: Any,
        sums: Any, at: Any, low: Any, high: Any, extra: Any,
    ) -> Any:  # fmt: skip
        i = types.intp
        ends = [end if isinstance(end, types.Array) else sums.dtype for end in (low, high)]
        last = extra if isinstance(extra, types.Array) else i
        kind = result(left, i, i, i, panel, i, sums, i, *ends, last)
        return kind, lambda *call: code(Lanes(*call))

    return function


speculative = lane_intrinsic(_speculative_code, types.boolean)
"""Adds up ROWS rows without a range; `extra` is the interval, a multiple of DEPTH_STEP. Returns
True, and stores the sums, if they were in [low, high] at the start, after every `extra` terms, and
at the end; else stores nothing."""

unchecked = lane_intrinsic(_unchecked_code)
"""Adds up ROWS rows that cannot overflow; ignores `low`, `high` and `extra`."""

saturating = lane_intrinsic(partial(_saturating_code, full=False))
"""Adds up FEW_ROWS rows, limited to [low, high] at every step. The array `extra`, laid out as the
sums, becomes minus the number of steps within."""

saturating_full = lane_intrinsic(partial(_saturating_code, full=True))
"""As `saturating`, for the range of an int16 lane."""

extremes = lane_intrinsic(_extremes_code)
"""Adds up FEW_ROWS rows without a range, and widens the extremes `low` and `high`, arrays laid out
as the sums; ignores `extra`."""
