"""Places the nodes of a model in a plane, as boxes inside boxes.

    Topology ──hierarchy──► boxes ──folding──► fewer boxes ──arrangement──► Layout
                                                  bands, order, coordinates

Every box is laid out by itself, with all boxes inside it closed. Who opens one makes room: no
layout is computed where the drawing is shown.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise, takewhile

import numpy as np

from tracer.analyzers.views.report.layout.arrangement import Arrangement, Size, arranged
from tracer.analyzers.views.report.layout.hierarchy import (
    CONSECUTIVE,
    MODULE,
    NODE,
    OUTSIDE,
    REPEATED,
    Box,
    Hierarchy,
    Link,
    boxes,
)
from tracer.analyzers.views.text import shorten_name
from tracer.records.model_info import Topology
from tracer.text import printable

_LONGEST = 64
"""Most nodes of a sequence; a layer of a transformer without its modules has some 50."""
_FEWEST, _FEWEST_ALONE = 3, 8
"""Fewest repeats of a sequence, and of a single node."""


_Stretch = tuple[int, int, int]
"""Where something repeats: from, to before, and after how many items."""


def sequences(kinds: Sequence[int], links: Collection[Link], passing: Sequence[int]) -> list[range]:
    """Returns the beginnings of sequences that repeat: the same kinds, linked in the same way.

    The step of a range is the length of its sequences. Longer stretches come before shorter ones
    that they overlap. `passing` are the links that pass the beginning of each item: sequences begin
    where few do. A single item repeats like a sequence, and has no range.
    """
    # a number for each item, equal for the same kind that reads the same way back
    back: list[list[int]] = [[] for _ in kinds]
    for first, second in links:
        if OUTSIDE not in (first, second) and second - first < _LONGEST:
            back[second].append(second - first)
    numbers: dict[tuple[int, ...], int] = {}
    ways = ((kind, *sorted(steps)) for kind, steps in zip(kinds, back, strict=True))
    words = np.array([numbers.setdefault(way, len(numbers)) for way in ways], np.int64)
    longest = min(_LONGEST, len(kinds) // 2)
    found: list[_Stretch] = []
    for length in range(1, longest + 1):
        least = _FEWEST if length > 1 else _FEWEST_ALONE
        equal = np.concatenate([[False], words[length:] == words[:-length], [False]])
        starts, stops = np.flatnonzero(np.diff(equal)).reshape(-1, 2).T
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            if stop - start >= (least - 1) * length:
                found.append((start, stop + length, length))
    found.sort(key=lambda each: (each[0] - each[1], each[2], each[0]))
    taken = bytearray(len(kinds))
    chosen = []
    for start, stop, length in found:
        if not any(taken[start:stop]):
            taken[start:stop] = bytes([True]) * (stop - start)
            if length > 1:
                room = min(length - 1, stop - start - _FEWEST * length)
                moved = range(start, start + room + 1)  # to where few links pass
                begin = min(moved, key=lambda each: passing[each + length])
                chosen.append(range(begin, stop - length + 1, length))
    return sorted(chosen, key=lambda each: each.start)


MOST_CHILDREN = 400
"""Most boxes inside another one. A screen shows no more, and a browser moves these at once."""
_MANY = 80
"""More boxes than a reader takes in, among which sequences that repeat are looked for."""
_LONGEST_PART = 320
"""Most boxes of a part before its end moves to where few links pass, by at most an eighth."""
_FEWEST_IN_CHAIN, _FEWEST_BESIDE = 3, 8
"""Fewest equal blocks that fold. Two in a chain take no more room than a box that says so; a query,
a key and a value beside each other are worth it. Single nodes fold in long rows alone."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Children from `start` to before `stop`, which are to be inside `box`."""

    start: int
    stop: int
    box: Box


def fold(root: Box) -> None:
    """Folds equal blocks and divides long rows, in `root` and in all boxes inside it.

    Neighbours of equal structure are put into a box; a module of nothing else becomes one.
    """
    structures = _Structures()
    for box in reversed(list(boxes(root))):
        kinds = [structures.of(child) for child in box.children]
        structures.of(box)
        is_long = len(box.children) > _MANY
        if is_long:
            repeated = sequences(kinds, box.links, _passing(box))
            blocks = [(start, start + starts.step) for starts in repeated for start in starts]
            _gather(box, [_consecutive(box, *block) for block in blocks])
            kinds = [structures.of(child) for child in box.children]
        runs = [
            run for run in _repeats(box, kinds) if is_long or box.children[run.start].kind != NODE
        ]
        is_one_run = [run.stop - run.start for run in runs] == [len(box.children)]
        if is_one_run and box.kind == MODULE and box is not root:
            box.kind, box.repeat = REPEATED, len(box.children)
        elif runs:
            _gather(box, runs)
    for box in boxes(root):
        while len(box.children) > MOST_CHILDREN:
            _gather(box, list(_parts(box)))


class _Structures:
    """Numbers of boxes, the same for the same operators that are linked in the same way."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._known: dict[Box, int] = {}

    def of(self, box: Box) -> int:
        """The number of a box, which stays what it was at first, before its children fold."""
        if box not in self._known:
            links = sorted(link for link in box.links if OUTSIDE not in link)
            inside = tuple(map(self.of, box.children))
            shape = (box.op_type, inside, tuple(links))
            self._known[box] = self._numbers.setdefault(shape, len(self._numbers))
        return self._known[box]


def _consecutive(box: Box, start: int, stop: int) -> _Run:
    return _Run(start, stop, Box(CONSECUTIVE, _positions(box.children[start:stop])))


def _repeats(box: Box, kinds: Sequence[int]) -> Iterator[_Run]:
    """Yields runs of equal boxes, each of which reads the one before, or none of which does."""
    start = 0
    while start < len(kinds):
        is_chain = (start, start + 1) in box.links
        stop = start + 1
        while (
            stop < len(kinds)
            and kinds[stop] == kinds[start]
            and ((stop - 1, stop) in box.links) == is_chain
        ):
            stop += 1
        is_group = box.children[start].kind != NODE
        if stop - start >= (_FEWEST_IN_CHAIN if is_chain and is_group else _FEWEST_BESIDE):
            label = _stack_name(box.children[start:stop])
            yield _Run(start, stop, Box(REPEATED, label, repeat=stop - start))
            start = stop
        else:
            start = max(start + 1, stop - 1)


def _stack_name(children: Sequence[Box]) -> str:
    """A label of equal boxes: `layers.0…11`."""
    first, last = children[0].label, children[-1].label
    if children[0].kind == CONSECUTIVE:
        return _positions(children)
    shared = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    stem = "".join(char for char, _ in shared).rstrip("0123456789")
    return first if first == last else f"{first}…{last[len(stem) :]}"


def _parts(box: Box) -> Iterator[_Run]:
    """Yields parts of similar length, which end where few links pass."""
    count = len(box.children)
    length = min(_LONGEST_PART, math.isqrt(count - 1) + 1)
    passing = _passing(box)
    starts = [0]
    while count - starts[-1] > length + length // 8:
        middle = starts[-1] + length
        ends = range(middle - length // 8, middle + length // 8 + 1)
        starts.append(min(ends, key=lambda end: (passing[end], abs(end - middle))))
    for start, stop in pairwise([*starts, count]):
        yield _consecutive(box, start, stop)


def _positions(children: Iterable[Box]) -> str:
    """A label: the first and the last node inside, by their positions in the model."""
    nodes = [box.node for child in children for box in boxes(child) if box.kind == NODE]
    return f"nodes {min(nodes)}…{max(nodes)}"


def _passing(box: Box) -> list[int]:
    """Returns for each child how many links of earlier ones lead to it or past it."""
    change = [0] * (len(box.children) + 1)
    for first, second in box.links:
        if OUTSIDE not in (first, second):
            change[first + 1] += 1
            change[second + 1] -= 1
    return list(accumulate(change))


def _gather(box: Box, runs: Sequence[_Run]) -> None:
    """Moves the children of each run into its box, and the links with them."""
    run_of: list[_Run | None] = [None] * len(box.children)
    for run in runs:
        run.box.children = box.children[run.start : run.stop]
        run.box.nodes = sum(child.nodes for child in run.box.children)
        run_of[run.start : run.stop] = [run] * (run.stop - run.start)
    firsts = [run is None or run.start == at for at, run in enumerate(run_of)]
    place = [number - 1 for number in accumulate(firsts)]
    old, box.links = box.links, set()
    for link in old:
        first, second = (None if end == OUTSIDE else run_of[end] for end in link)
        if first is not None and first is second:
            first.box.links.add((link[0] - first.start, link[1] - first.start))
            continue
        if first is not None:
            first.box.links.add((link[0] - first.start, OUTSIDE))
        if second is not None:
            second.box.links.add((OUTSIDE, link[1] - second.start))
        outer = (end if end == OUTSIDE else place[end] for end in link)
        box.links.add((next(outer), next(outer)))
    children = zip(box.children, run_of, firsts, strict=True)
    box.children = [run.box if run else child for child, run, is_first in children if is_first]


MOST_NODES = 100_000
"""Most nodes of a drawing."""
_LABEL = 24
"""Most characters of a label."""
_CHARACTER = 7
"""Pixels of a character, on average, at the size of labels."""
_HEIGHT, _LEAST_WIDTH, _PADDING = 38, 76, 20
"""Pixels of a closed box with two lines, its label and a value. The padding is beside the label.
Even sizes have whole middles."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """Columns with an entry for each box; box 0 is the whole model, others follow their parent.

    `kind` is 0 for a node, 1 for a module, 2 for consecutive boxes, 3 for `repeat` boxes of equal
    structure. `node` is the position of a node, -1 otherwise; `count` the nodes inside, with it.
    `band` is the band in the parent, `x`, `y`, `w` and `h` the place and size of the closed box, in
    pixels from the upper left corner of the parent's inside. `inner_w` and `inner_h` are the size
    of its own inside with all children closed, 0 without children.
    """

    parent: tuple[int, ...]
    kind: tuple[int, ...]
    label: tuple[str, ...]
    node: tuple[int, ...]
    count: tuple[int, ...]
    repeat: tuple[int, ...]
    band: tuple[int, ...]
    x: tuple[int, ...]
    y: tuple[int, ...]
    w: tuple[int, ...]
    h: tuple[int, ...]
    inner_w: tuple[int, ...]
    inner_h: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Edges:
    """Columns with an entry for each edge between boxes of the same `parent`.

    Box `target` reads `source`; -1 is what is outside of the parent, or an input or output of the
    model. `points` are waypoints x, y, x, y, one for each band that the edge passes, and one on the
    border that it crosses, in pixels of the parent's inside. A very long edge among very many has
    none.
    """

    parent: tuple[int, ...]
    source: tuple[int, ...]
    target: tuple[int, ...]
    points: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes, edges, and the children of box 0 that read each input of the model and make each
    output."""

    boxes: Boxes
    edges: Edges
    inputs: Mapping[str, tuple[int, ...]]
    outputs: Mapping[str, tuple[int, ...]]


def laid_out(topology: Topology) -> Layout | None:
    """Returns the drawing of a model, always the same for the same model.

    Modules hold their nodes, repeated blocks fold, and long rows divide. Data flow downwards. The
    time is nearly linear in the number of nodes. None for more than `MOST_NODES`.
    """
    if len(topology.nodes) > MOST_NODES:
        return None
    root = Hierarchy(topology).root_box()
    fold(root)
    every = list(boxes(root))
    for box in every:
        box.label = shorten_name(printable(box.label), _LABEL)
    insides = []
    known: dict[tuple[tuple[Size, ...], frozenset[Link]], Arrangement] = {}
    for box in every:  # the insides of equal blocks are computed once
        key = tuple(map(_size, box.children)), frozenset(box.links)
        if key not in known:
            known[key] = arranged(*key)
        insides.append(known[key])
    number = {box: at for at, box in enumerate(every)}
    rows = []
    for at, (box, inside) in enumerate(zip(every, insides, strict=True)):
        for link in sorted(inside.points):
            source, target = (-1 if i == OUTSIDE else number[box.children[i]] for i in link)
            rows.append((at, source, target, tuple(chain.from_iterable(inside.points[link]))))
    return Layout(
        boxes=_boxes(every, insides),
        edges=Edges(*map(tuple, zip(*rows, strict=True))) if rows else Edges((), (), (), ()),
        **_ends(topology, every),
    )


def _size(box: Box) -> Size:
    """The size of a closed box; one that repeats tells how often."""
    times = len(f" x{box.repeat}") if box.kind == REPEATED else 0
    width = max(_CHARACTER * (len(box.label) + times) + _PADDING, _LEAST_WIDTH)
    return width + width % 2, _HEIGHT


def _boxes(every: list[Box], insides: list[Arrangement]) -> Boxes:
    number = {box: at for at, box in enumerate(every)}
    parent, band = [-1] * len(every), [0] * len(every)
    corner = [(0, 0)] * len(every)
    for at, (box, inside) in enumerate(zip(every, insides, strict=True)):
        places = zip(box.children, inside.band, inside.corners, strict=True)
        for child, its_band, its_corner in places:
            self = number[child]
            parent[self], band[self], corner[self] = at, its_band, its_corner
    sizes = [_size(box) for box in every]
    return Boxes(
        parent=tuple(parent),
        kind=tuple(box.kind for box in every),
        label=tuple(box.label for box in every),
        node=tuple(box.node for box in every),
        count=tuple(box.nodes for box in every),
        repeat=tuple(box.repeat for box in every),
        band=tuple(band),
        x=tuple(x for x, _ in corner),
        y=tuple(y for _, y in corner),
        w=tuple(width for width, _ in sizes),
        h=tuple(height for _, height in sizes),
        inner_w=tuple(inside.size[0] for inside in insides),
        inner_h=tuple(inside.size[1] for inside in insides),
    )


def _ends(topology: Topology, every: list[Box]) -> dict[str, Mapping[str, tuple[int, ...]]]:
    """Returns the fields `inputs` and `outputs`."""
    child_of: dict[int, int] = {}
    for at, child in enumerate(every[0].children, 1):
        child_of |= {box.node: at for box in boxes(child) if box.node >= 0}

    def children(nodes: Iterable[int]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(child_of[node] for node in nodes))

    makers = topology.outputs.items()
    return {
        "inputs": {name: children(readers) for name, readers in topology.inputs.items()},
        "outputs": {n: () if maker is None else children([maker]) for n, maker in makers},
    }
