"""Places the nodes of a model in a plane, as boxes inside boxes.

    Topology ──hierarchy──► boxes ──folding──► fewer boxes ──arrangement──► Layout
                                                  bands, order, coordinates

Every box is laid out by itself, with all boxes inside it closed. Who opens one makes room: no
layout is computed where the drawing is shown.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from tracer.analyzers.views.report.layout.arrangement import Arrangement, Size, arranged
from tracer.analyzers.views.report.layout.folding import fold
from tracer.analyzers.views.report.layout.hierarchy import (
    OUTSIDE,
    REPEATED,
    Box,
    Link,
    boxes,
    connections,
    hierarchy,
)
from tracer.analyzers.views.text import cut
from tracer.records.model_info import Topology
from tracer.text import printable

MOST_NODES = 100_000
"""Most nodes of a drawing."""
_LABEL = 24
"""Most characters of a label."""
_CHARACTER = 7
"""Pixels of a character, on average, at the size of labels."""
_HEIGHT, _LEAST_WIDTH, _PADDING = 38, 76, 20
"""Pixels of a closed box with two lines, its label and a value. The padding is beside the label.
Even sizes have whole middles."""
_MOST_SHAPES = 40
"""Most boxes that are shown at first: what a reader takes in."""


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
    """Boxes, edges, the boxes that are open at first, and the children of box 0 that read each
    input of the model and make each output."""

    boxes: Boxes
    edges: Edges
    opened: tuple[int, ...]
    inputs: Mapping[str, tuple[int, ...]]
    outputs: Mapping[str, tuple[int, ...]]


def laid_out(topology: Topology) -> Layout | None:
    """Returns the drawing of a model, always the same for the same model.

    Modules hold their nodes, repeated blocks fold, and long rows divide. Data flow downwards. The
    time is nearly linear in the number of nodes. None for more than `MOST_NODES`.
    """
    if len(topology.nodes) > MOST_NODES:
        return None
    root = hierarchy(topology, connections(topology))
    fold(root)
    every = list(boxes(root))
    for box in every:
        box.label = _label(box)
    insides = list(_insides(every))
    return Layout(
        boxes=_boxes(every, insides),
        edges=_edges(every, insides),
        opened=tuple(_opened(every)),
        **_ends(topology, every),
    )


def _insides(every: list[Box]) -> Iterator[Arrangement]:
    """Yields the inside of each box; those of equal blocks are computed once."""
    known: dict[tuple[tuple[Size, ...], frozenset[Link]], Arrangement] = {}
    for box in every:
        key = tuple(map(_size, box.children)), frozenset(box.links)
        if key not in known:
            known[key] = arranged(*key)
        yield known[key]


def _label(box: Box) -> str:
    return cut(printable(box.label), _LABEL)


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


def _edges(every: list[Box], insides: list[Arrangement]) -> Edges:
    number = {box: at for at, box in enumerate(every)}
    rows = []
    for at, (box, inside) in enumerate(zip(every, insides, strict=True)):
        for link in sorted(inside.points):
            source, target = (-1 if i == OUTSIDE else number[box.children[i]] for i in link)
            rows.append((at, source, target, tuple(chain.from_iterable(inside.points[link]))))
    return Edges(*map(tuple, zip(*rows, strict=True))) if rows else Edges((), (), (), ())


def _opened(every: list[Box]) -> Iterator[int]:
    """Yields the boxes that are open at first: whole levels, as long as there is room."""
    number = {box: at for at, box in enumerate(every)}
    level = every[:1]
    room = _MOST_SHAPES
    while level:
        yield from (number[box] for box in level)
        inside = [child for box in level for child in box.children]
        room -= len(inside) - len(level)
        level = [box for box in inside if box.children and box.kind != REPEATED]
        if sum(len(box.children) - 1 for box in level) > room:
            return


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
