"""Orders of a sum that accumulators can have, the simplest first, for a search among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracer.accumulators.spec import Register
from tracer.accumulators.spec.orders import (
    Chunked,
    Lanes,
    Level,
    Maddubs,
    Order,
    Sequential,
    Sorted,
    Tiles,
    Tree,
)

Choice = Register | None
"""The register of a level; None is the accumulator."""
_Groups = tuple[frozenset[int], ...]
"""The terms of each sum of a stage."""


def plain_orders(count: int) -> Iterator[Order]:
    """Yields the orders of `count` terms that have a name, but for tiles."""
    yield Sequential()
    yield Tree()
    yield Sorted()
    yield from (Chunked(size) for size in range(2, count))
    yield from (Lanes(size) for size in range(2, count))


def pair_orders(count: int) -> Iterator[Order]:
    """Yields the orders of `count` terms that add pairs in 16 bits first."""
    yield from (Maddubs(size) for size in range(2, (count + 1) // 2 + 1))


def tile_orders(
    count: int, inner: Sequence[Choice], others: Sequence[Choice], shared: frozenset[int] | None,
    depth: int,
) -> Iterator[Order]:  # fmt: skip
    """Yields orders of `depth` levels, one of which has a register of `inner`.

    The terms `shared` are those that share this register with term 0; None are any. The other
    levels have registers of `others`.
    """
    alone = tuple(frozenset({term}) for term in range(count))
    for place in range(depth):
        for levels in _levels(alone, depth, place, inner, others, shared):
            yield Tiles(levels)


def _levels(
    groups: _Groups, depth: int, place: int, inner: Sequence[Choice], others: Sequence[Choice],
    shared: frozenset[int] | None,
) -> Iterator[tuple[Level, ...]]:  # fmt: skip
    """Yields `depth` levels on top of `groups`; that at `place` is the inner one."""
    if not depth:
        yield ()
        return
    for shape in _shapes(len(groups)):
        joined = tuple(
            frozenset().union(*(groups[each] for each in row if each >= 0))
            for row in shape.groups(len(groups)).tolist()
        )
        if place == 0 and shared is not None and joined[0] != shared:
            continue
        if place > 0 and shared is not None and not joined[0] < shared:
            continue
        for register in inner if place == 0 else others:
            level = Level(shape.size, register, shape.stride)
            for further in _levels(joined, depth - 1, place - 1, inner, others, shared):
                yield (level, *further)


def _shapes(count: int) -> Iterator[Level]:
    """Yields every way to part `count` sums into groups of one size, apart by one stride."""
    for size in range(2, count):
        yield Level(size)
    if count > 1:
        yield Level(None)
    for stride in range(2, (count + 1) // 2 + 1):
        for size in range(2, -(-count // stride) + 1):
            yield Level(None if size * stride >= count else size, stride=stride)
