"""Which rows of two node tables are the same layer.

Rows are matched one to one, the surest way first: by name, by module, by place in the order of the
graph. What is left on one side was folded into a neighbour on the other, or split: it joins that
neighbour's group. What fits nowhere stays alone, and is listed. Every row is in exactly one group.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from analyzers.compare.operators import may_fold
from analyzers.compare.rows import Row

Key = Callable[[Row], Hashable]
"""What must be equal for two rows to match; None for a row that this cannot match."""

Place = tuple[int, int]
"""A side and a row of it."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Rows that are one layer: for each side their places in its table, none where it has none."""

    places: tuple[tuple[int, ...], ...]

    @property
    def is_common(self) -> bool:
        """Whether every side has it."""
        return all(self.places)


def align(sides: Sequence[Sequence[Row]]) -> tuple[Layer, ...]:
    """The layers of all sides, in the order of the first; each of the others is held against it."""
    groups = _Groups()
    for side, rows in enumerate(sides):
        for place in range(len(rows)):
            groups.add((side, place))
        _unite_kernels(groups, side, rows)
    for other in range(1, len(sides)):
        _match(groups, sides[0], sides[other], other)
    for other in range(1, len(sides)):
        _attach(groups, sides, other)
    return tuple(
        Layer(tuple(tuple(p for s, p in group if s == side) for side in range(len(sides))))
        for group in groups.listed()
    )


class _Groups:
    """Disjoint sets of places, each known by the first of them."""

    def __init__(self) -> None:
        self._parents: dict[Place, Place] = {}
        self._sides: dict[Place, set[int]] = {}

    def add(self, place: Place) -> None:
        """A group of its own."""
        self._parents[place] = place
        self._sides[place] = {place[0]}

    def of(self, place: Place) -> Place:
        """The group a place is in."""
        while self._parents[place] != place:
            self._parents[place] = self._parents[self._parents[place]]
            place = self._parents[place]
        return place

    def sides(self, place: Place) -> set[int]:
        """The sides that the group of a place has rows of."""
        return self._sides[self.of(place)]

    def unite(self, first: Place, second: Place) -> None:
        """Make one group of two."""
        low, high = sorted((self.of(first), self.of(second)))
        if low != high:
            self._parents[high] = low
            self._sides[low] |= self._sides.pop(high)

    def listed(self) -> list[list[Place]]:
        """All groups and their places, in order."""
        found: dict[Place, list[Place]] = {}
        for place in sorted(self._parents):
            found.setdefault(self.of(place), []).append(place)
        return list(found.values())


def _unite_kernels(groups: _Groups, side: int, rows: Sequence[Row]) -> None:
    """Rows that one kernel ran have one time, and no layer may divide it."""
    owners: dict[Hashable, int] = {}
    for place, row in enumerate(rows):
        key: Hashable = ("runtime",) if row.is_runtime else row.kernels
        if key is not None:
            groups.unite((side, owners.setdefault(key, place)), (side, place))


def _by_name(row: Row) -> Hashable:
    return (row.node, row.op, row.module, row.outputs)


def _by_module(row: Row) -> Hashable:
    return None if row.module is None else (row.module, row.op, row.outputs)


def _by_module_alone(row: Row) -> Hashable:
    return (row.module, row.op) if row.module else None


def _by_shapes(row: Row) -> Hashable:
    return (row.op, row.inputs, row.outputs)


def _by_output(row: Row) -> Hashable:
    return (row.op, row.outputs)


_KEYED: tuple[Key, ...] = (_by_name, _by_module, _by_module_alone)
"""Ways to know a row again wherever it stands; of several the first is the first."""

_ORDERED: tuple[Key, ...] = (_by_shapes, _by_output)
"""Ways that hold only for rows in the same order."""


def _match(groups: _Groups, first: Sequence[Row], second: Sequence[Row], other: int) -> None:
    """Match rows of two sides one to one."""
    left = [i for i, row in enumerate(first) if not row.is_runtime]
    right = [i for i, row in enumerate(second) if not row.is_runtime]
    ways = [(key, _keyed) for key in _KEYED] + [(key, _ordered) for key in _ORDERED]
    if not _shaped(first) or not _shaped(second):
        ways.append((lambda row: row.op, _ordered))  # there is nothing else to go by
    for key, pairing in ways:
        pairs = list(pairing([key(first[i]) for i in left], [key(second[i]) for i in right]))
        for a, b in pairs:
            groups.unite((0, left[a]), (other, right[b]))
        left = _without(left, {a for a, _ in pairs})
        right = _without(right, {b for _, b in pairs})
    own = [_runtime(rows) for rows in (first, second)]
    if own[0] is not None and own[1] is not None:
        groups.unite((0, own[0]), (other, own[1]))


def _runtime(rows: Sequence[Row]) -> int | None:
    """One of the kernels of the runtime's own, which are all in one group."""
    return next((place for place, row in enumerate(rows) if row.is_runtime), None)


def _shaped(rows: Sequence[Row]) -> bool:
    return any(row.outputs for row in rows)


def _without(places: Sequence[int], taken: set[int]) -> list[int]:
    return [place for position, place in enumerate(places) if position not in taken]


def _keyed(left: Sequence[Hashable], right: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Positions with equal keys: the first with the first, the second with the second."""
    waiting: dict[Hashable, list[int]] = {}
    for position in reversed(range(len(right))):
        waiting.setdefault(right[position], []).append(position)
    for position, key in enumerate(left):
        if key is not None and waiting.get(key):
            yield position, waiting[key].pop()


def _ordered(left: Sequence[Hashable], right: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Positions of runs of equal keys that stand in the same order on both sides."""
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for block in matcher.get_matching_blocks():
        yield from ((block.a + step, block.b + step) for step in range(block.size))


def _attach(groups: _Groups, sides: Sequence[Sequence[Row]], other: int) -> None:
    """Find a place for what only one of two sides has."""
    _attach_modules(groups, sides, other)
    for side in (0, other):
        missing = other if side == 0 else 0
        for forward in (True, False):  # into what comes before; then into what comes after
            _attach_folded(groups, side, sides[side], missing, forward)


def _attach_modules(groups: _Groups, sides: Sequence[Sequence[Row]], other: int) -> None:
    """What is left of a module on both sides is that module, split differently."""
    owners: dict[tuple[int, str], list[int]] = {}
    for side in (0, other):
        for place, row in enumerate(sides[side]):
            if row.module and groups.sides((side, place)) == {side}:
                owners.setdefault((side, row.module), []).append(place)
    for (side, module), places in owners.items():
        if side == 0 and (other, module) in owners:
            for place in places:
                groups.unite((0, places[0]), (0, place))
            for place in owners[other, module]:
                groups.unite((0, places[0]), (other, place))


def _attach_folded(
    groups: _Groups, side: int, rows: Sequence[Row], missing: int, forward: bool
) -> None:
    """Rows that may be folded into a neighbour that the other side has too, join its group."""
    before = _flow(rows)
    after = _readers(before)
    places = range(len(rows)) if forward else reversed(range(len(rows)))
    for place in places:
        if rows[place].is_runtime or missing in groups.sides((side, place)):
            continue
        neighbours = before[place] if forward else after.get(place, ())
        for host in neighbours:
            fits = may_fold(rows[place].op, rows[host].op) or _continues(rows, place, host)
            if fits and missing in groups.sides((side, host)):
                groups.unite((side, host), (side, place))
                break


def _continues(rows: Sequence[Row], place: int, host: int) -> bool:
    """A chain such as Conv, BatchNormalization, Relu is folded link by link."""
    chained = {"batchnormalization", "add", "mul"}
    return rows[host].op in chained and may_fold(rows[place].op, "conv")


def _flow(rows: Sequence[Row]) -> list[Sequence[int]]:
    """Who made what each row reads; where nothing that ran tells it, the row before it."""
    known = any(row.before for row in rows)
    found: list[Sequence[int]] = []
    for place, row in enumerate(rows):
        told = row.before or (known and row.kernels is not None)
        found.append(row.before if told else (place - 1,) if place else ())
    return found


def _readers(before: Sequence[Sequence[int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for place, makers in enumerate(before):
        for maker in makers:
            found.setdefault(maker, []).append(place)
    return found
