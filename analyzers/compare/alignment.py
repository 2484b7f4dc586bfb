"""Match the rows of node tables that are the same layer.

Rows are matched one to one, the most reliable way first: by name, by module, by order in the graph.
A row without a match was split, or folded into a neighbour: it joins the group of that neighbour.
A row that fits nowhere stays alone. Each row is in exactly one group.
"""

import difflib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from tracer.analyzers.compare.operators import may_fold
from tracer.analyzers.compare.rows import LayerRow

Key = Callable[[LayerRow], Hashable]
"""Returns what must be equal for two rows to match; None for a row that this key cannot match."""

SideRow = tuple[int, int]
"""A side and the index of one of its rows."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Rows that are one layer: for each side their indices in its table, maybe none."""

    rows: tuple[tuple[int, ...], ...]


def align(sides: Sequence[Sequence[LayerRow]]) -> tuple[Layer, ...]:
    """Returns the layers of all sides in the order of the first, with which each is matched."""
    groups = _Groups()
    for side, rows in enumerate(sides):
        for index in range(len(rows)):
            groups.add((side, index))
        _unite_kernels(groups, side, rows)
    for other in range(1, len(sides)):
        _match(groups, sides[0], sides[other], other)
    for other in range(1, len(sides)):
        _attach(groups, sides, other)
    return tuple(
        Layer(tuple(tuple(i for s, i in group if s == side) for side in range(len(sides))))
        for group in groups.listed()
    )


class _Groups:
    """Disjoint sets of rows of all sides, each represented by its first row."""

    def __init__(self) -> None:
        self._parents: dict[SideRow, SideRow] = {}
        self._sides: dict[SideRow, set[int]] = {}

    def add(self, row: SideRow) -> None:
        """Adds a group of one row."""
        self._parents[row] = row
        self._sides[row] = {row[0]}

    def of(self, row: SideRow) -> SideRow:
        """Returns the first row of the group of a row."""
        while self._parents[row] != row:
            self._parents[row] = self._parents[self._parents[row]]
            row = self._parents[row]
        return row

    def sides(self, row: SideRow) -> set[int]:
        """Returns the sides with rows in the group of a row."""
        return self._sides[self.of(row)]

    def unite(self, first: SideRow, second: SideRow) -> None:
        """Makes one group of two."""
        low, high = sorted((self.of(first), self.of(second)))
        if low != high:
            self._parents[high] = low
            self._sides[low] |= self._sides.pop(high)

    def listed(self) -> list[list[SideRow]]:
        """Returns all groups and their rows, in order."""
        members: dict[SideRow, list[SideRow]] = {}
        for row in sorted(self._parents):
            members.setdefault(self.of(row), []).append(row)
        return list(members.values())


def _unite_kernels(groups: _Groups, side: int, rows: Sequence[LayerRow]) -> None:
    """Unites rows of one kernel: they share one time, which no layer may divide."""
    owners: dict[Hashable, int] = {}
    for index, row in enumerate(rows):
        key: Hashable = ("runtime",) if row.is_runtime else row.kernels
        if key is not None:
            groups.unite((side, owners.setdefault(key, index)), (side, index))


def _by_name(row: LayerRow) -> Hashable:
    return (row.node, row.op, row.module, row.outputs)


def _by_module(row: LayerRow) -> Hashable:
    return None if row.module is None else (row.module, row.op, row.outputs)


def _by_module_alone(row: LayerRow) -> Hashable:
    return (row.module, row.op) if row.module else None


def _by_shapes(row: LayerRow) -> Hashable:
    return (row.op, row.inputs, row.outputs)


def _by_output(row: LayerRow) -> Hashable:
    return (row.op, row.outputs)


_KEYED: tuple[Key, ...] = (_by_name, _by_module, _by_module_alone)
"""Keys that match rows in any order; rows with equal keys match in sequence."""

_ORDERED: tuple[Key, ...] = (_by_shapes, _by_output)
"""Keys that match only rows in the same order."""


_MOST_PAIRS = 1_000_000
"""Pairs of equal keys among which the longest blocks are searched: that takes a second for these,
and grows with their number and that of the blocks."""


def _match(
    groups: _Groups, first: Sequence[LayerRow], second: Sequence[LayerRow], other: int
) -> None:
    left = [i for i, row in enumerate(first) if not row.is_runtime]
    right = [i for i, row in enumerate(second) if not row.is_runtime]
    methods = [(key, _keyed) for key in _KEYED] + [(key, _ordered) for key in _ORDERED]
    if not _shaped(first) or not _shaped(second):
        methods.append((lambda row: row.op, _ordered))  # without shapes, only the type remains
    for key, pairing in methods:
        pairs = list(pairing([key(first[i]) for i in left], [key(second[i]) for i in right]))
        for a, b in pairs:
            groups.unite((0, left[a]), (other, right[b]))
        left = _without(left, {a for a, _ in pairs})
        right = _without(right, {b for _, b in pairs})
    runtime = [_runtime(rows) for rows in (first, second)]
    if runtime[0] is not None and runtime[1] is not None:
        groups.unite((0, runtime[0]), (other, runtime[1]))


def _runtime(rows: Sequence[LayerRow]) -> int | None:
    """Returns the index of a kernel of the runtime's own; all are in one group."""
    return next((index for index, row in enumerate(rows) if row.is_runtime), None)


def _shaped(rows: Sequence[LayerRow]) -> bool:
    return any(row.outputs for row in rows)


def _without(indices: Sequence[int], matched: set[int]) -> list[int]:
    return [index for position, index in enumerate(indices) if position not in matched]


def _keyed(left: Sequence[Hashable], right: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yields positions with equal keys: first with first, second with second."""
    waiting: dict[Hashable, list[int]] = {}
    for position in reversed(range(len(right))):
        waiting.setdefault(right[position], []).append(position)
    for position, key in enumerate(left):
        if key is not None and waiting.get(key):
            yield position, waiting[key].pop()


def _ordered(left: Sequence[Hashable], right: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yields positions of equal keys that have the same order on both sides."""
    counts = Counter(right)
    if sum(counts[key] for key in left) > _MOST_PAIRS:
        yield from _rising(left, right)
        return
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for block in matcher.get_matching_blocks():
        yield from ((block.a + step, block.b + step) for step in range(block.size))


def _rising(left: Sequence[Hashable], right: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """Yields positions as `_ordered`, in a time that grows little faster than the rows.

    These are the positions alike at both ends, and in between those of `_keyed` that rise: a
    longest such sequence.
    """
    shorter = min(len(left), len(right))
    pairs = enumerate(zip(left, right, strict=False))
    start = next((place for place, (a, b) in pairs if a != b), shorter)
    backwards = enumerate(zip(reversed(left), reversed(right), strict=False))
    end = min(next((place for place, (a, b) in backwards if a != b), shorter), shorter - start)
    middle = list(_keyed(left[start : len(left) - end], right[start : len(right) - end]))
    yield from ((place, place) for place in range(start))
    yield from ((start + a, start + b) for a, b in _longest_rising(middle))
    yield from ((len(left) - place, len(right) - place) for place in range(end, 0, -1))


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns a longest part of the pairs, whose first numbers rise, in which the second do too."""
    lowest: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, (_, value) in enumerate(pairs):
        length = bisect_left(lowest, value)
        before.append(ends[length - 1] if length else -1)
        lowest[length : length + 1] = [value]
        ends[length : length + 1] = [index]
    chosen, index = [], ends[-1] if ends else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = before[index]
    return chosen[::-1]


def _attach(groups: _Groups, sides: Sequence[Sequence[LayerRow]], other: int) -> None:
    """Adds rows that only one side has to the group of a neighbour."""
    _attach_modules(groups, sides, other)
    for side in (0, other):
        missing = other if side == 0 else 0
        for forward in (True, False):  # first into the nodes before, then into the nodes after
            _attach_folded(groups, side, sides[side], missing, forward)


def _attach_modules(groups: _Groups, sides: Sequence[Sequence[LayerRow]], other: int) -> None:
    """Unites the unmatched rows of a module: the sides split the module differently."""
    owners: dict[tuple[int, str], list[int]] = {}
    for side in (0, other):
        for index, row in enumerate(sides[side]):
            if row.module and groups.sides((side, index)) == {side}:
                owners.setdefault((side, row.module), []).append(index)
    for (side, module), indices in owners.items():
        if side == 0 and (other, module) in owners:
            for index in indices:
                groups.unite((0, indices[0]), (0, index))
            for index in owners[other, module]:
                groups.unite((0, indices[0]), (other, index))


def _attach_folded(
    groups: _Groups, side: int, rows: Sequence[LayerRow], missing: int, forward: bool
) -> None:
    """Unites unmatched rows with a matched neighbour into which they may be folded."""
    before = _flow(rows)
    after = _readers(before)
    for index in range(len(rows)) if forward else reversed(range(len(rows))):
        if rows[index].is_runtime or missing in groups.sides((side, index)):
            continue
        neighbours = before[index] if forward else after.get(index, ())
        for host in neighbours:
            fits = may_fold(rows[index].op, rows[host].op) or _continues(rows, index, host)
            if fits and missing in groups.sides((side, host)):
                groups.unite((side, host), (side, index))
                break


def _continues(rows: Sequence[LayerRow], index: int, host: int) -> bool:
    """Returns whether a row continues a chain such as Conv, BatchNormalization, Relu."""
    chained = {"batchnormalization", "add", "mul"}
    return rows[host].op in chained and may_fold(rows[index].op, "conv")


def _flow(rows: Sequence[LayerRow]) -> list[Sequence[int]]:
    """Returns the producers of each row's inputs; if unknown, the previous row."""
    by_kernels = any(row.before for row in rows)
    producers: list[Sequence[int]] = []
    for index, row in enumerate(rows):
        certain = row.before or (by_kernels and row.kernels is not None)
        producers.append(row.before if certain else (index - 1,) if index else ())
    return producers


def _readers(before: Sequence[Sequence[int]]) -> dict[int, list[int]]:
    readers: dict[int, list[int]] = {}
    for index, producers in enumerate(before):
        for producer in producers:
            readers.setdefault(producer, []).append(index)
    return readers
