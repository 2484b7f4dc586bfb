"""The boxes of a model: its modules inside each other, and bodies inside their owners."""

import heapq
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from tracer.records.model_info import Topology

Reads = Sequence[Sequence[int]]


def pieces(
    nodes: Sequence[int], keys: Sequence[Hashable], reads: Reads
) -> "tuple[list[list[int]], set[Link]]":
    """Returns the nodes of each key, sorted so that a group reads earlier ones, and who reads whom.

    `nodes` are sorted, and so are those of a group. A group whose data leave it and come back is
    divided: a ReLU that a block calls twice is a group before the other nodes and one after them.
    """
    group = _numbered(nodes, keys)
    links = _links(group, reads)
    if any(first > second for first, second in links):
        order = _sorted(range(1 + max(group.values())), links)
        left = set(group.values()) - set(order)
        backwards = {(b, a) for a, b in links if a in left and b in left}
        stuck = left - set(_sorted(left, backwards))  # without those that only follow cycles
        if stuck:
            turns = _turns(group, stuck, reads)
            group = _numbered(nodes, [(group[node], turns[node]) for node in nodes])
            links = _links(group, reads)
            order = _sorted(range(1 + max(group.values())), links)
        place = {number: at for at, number in enumerate(order)}
        group = {node: place[number] for node, number in group.items()}
        links = {(place[first], place[second]) for first, second in links}
    groups: list[list[int]] = [[] for _ in range(1 + max(group.values(), default=-1))]
    for node in nodes:
        groups[group[node]].append(node)
    return groups, links


def _numbered(nodes: Sequence[int], keys: Sequence[Hashable]) -> dict[int, int]:
    """Returns the number of each node's group; groups are numbered by their first nodes."""
    numbers: dict[Hashable, int] = {}
    return {
        node: numbers.setdefault(key, len(numbers)) for node, key in zip(nodes, keys, strict=True)
    }


def _links(group: dict[int, int], reads: Reads) -> "set[Link]":
    return {
        (group[producer], number)
        for node, number in group.items()
        for producer in reads[node]
        if producer in group and group[producer] != number
    }


def _sorted(groups: Collection[int], links: "set[Link]") -> list[int]:
    """Returns groups after those they read, the lowest numbers first, without those in cycles."""
    waits = dict.fromkeys(groups, 0)
    followers: dict[int, list[int]] = {}
    for first, second in links:
        waits[second] += 1
        followers.setdefault(first, []).append(second)
    ready = [number for number, count in waits.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for follower in followers.get(number, ()):
            waits[follower] -= 1
            if not waits[follower]:
                heapq.heappush(ready, follower)
    return order


def _turns(group: dict[int, int], stuck: set[int], reads: Reads) -> dict[int, int]:
    """Returns how often data changed between groups in cycles on their way to each node.

    It rises with each such change, so groups of one number and one turn have no cycles.
    """
    turns = dict.fromkeys(group, 0)
    for node, number in group.items():
        if number in stuck:
            turns[node] = max(
                (
                    turns[producer] + (group[producer] != number)
                    for producer in reads[node]
                    if group.get(producer) in stuck
                ),
                default=0,
            )
    return turns


@dataclass(frozen=True, slots=True)
class Connections:
    """What lists of nodes say about each node of a model, whose bodies are apart.

    `reads` and `readers` are nodes of the same graph or body: an If reads what its bodies read.
    `enters` tells of a node that reads an input of the model, or from outside of its body; `leaves`
    of one whose output is an output of the model or of its body. `place` is its place in the order
    of drawing: as in the model, but what follows from weights alone comes right before its first
    reader.
    """

    reads: list[list[int]]
    readers: list[list[int]]
    enters: list[bool]
    leaves: list[bool]
    place: list[int]


def connections(topology: Topology) -> Connections:
    """Returns the connections of `topology`, in time linear in nodes and reads."""
    owners = topology.owners
    reads: list[list[int]] = [[] for _ in owners]  # what a node and its bodies read in its graph
    enters, varies = [False] * len(owners), [False] * len(owners)
    for node in chain.from_iterable(topology.inputs.values()):
        for each in (node, *topology.around(node)):
            enters[each] = varies[each] = True
    of_bodies: dict[int, set[int]] = {}
    for node in reversed(range(len(owners))):  # the nodes of bodies before their owner
        owner = owners[node]
        for producer in {*topology.producers[node], *of_bodies.pop(node, ())}:
            if owners[producer] == owner or owner is None:
                reads[node].append(producer)
            else:
                of_bodies.setdefault(owner, set()).add(producer)
                enters[node] = True
    readers: list[list[int]] = [[] for _ in reads]
    for node, producers in enumerate(reads):
        for producer in producers:
            readers[producer].append(node)
    makers = set(topology.outputs.values())
    leaves = [
        node in makers or (owner is not None and not readers[node])
        for node, owner in enumerate(owners)
    ]
    for node, owner in enumerate(owners):
        inherits = owner is not None and varies[owner]
        varies[node] = varies[node] or inherits or any(varies[each] for each in reads[node])
    return Connections(reads, readers, enters, leaves, _places(reads, varies))


def _places(reads: list[list[int]], varies: Iterable[bool]) -> list[int]:
    """Returns the place of each node; constants stand before the first node that reads them."""
    is_fixed = [not each for each in varies]
    count = len(reads)
    first = [count] * count
    for node in reversed(range(count)):
        if first[node] == count or not is_fixed[node]:
            first[node] = node
        for producer in reads[node]:
            if is_fixed[producer]:
                first[producer] = min(first[producer], first[node])
    order = sorted(range(count), key=lambda node: (first[node], not is_fixed[node], node))
    place = [0] * count
    for at, node in enumerate(order):
        place[node] = at
    return place


NODE, MODULE, CONSECUTIVE, REPEATED = range(4)
"""Kinds: a node (with its body inside, if any), a module, consecutive boxes, equal blocks."""

OUTSIDE = -1
"""In a link: whatever is not inside the same box, and inputs and outputs of the model."""

Link = tuple[int, int]
"""Two boxes inside the same one, by their places in `children`: the second reads the first."""


@dataclass(slots=True, eq=False)
class Box:
    """A box, the boxes inside it, and who of them reads whom.

    `children` are sorted: a box reads earlier ones alone. `node` is the position of the node that
    the box is, and `op_type` its operator; -1 and '' if it is none. `nodes` counts those in it. A
    box that repeats has `repeat` children of equal structure.
    """

    kind: int
    label: str
    node: int = -1
    op_type: str = ""
    nodes: int = 1
    repeat: int = 1
    children: "list[Box]" = field(default_factory=list)
    links: set[Link] = field(default_factory=set)


def boxes(root: Box) -> Iterator[Box]:
    """Yields a box and all inside it, each before its children."""
    level = [root]
    while level:
        yield from level
        level = [child for box in level for child in box.children]


_DEEPEST = 24
"""Most levels of modules that are told apart; deeper ones are one name."""

_Path = tuple[str, ...]


class Hierarchy:
    """The boxes of a model.

    A module of one node is this node, and a module that holds one module alone is one box with it.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._connected = connections(topology)
        self._paths = list(_paths(topology))
        self._bodies: dict[int | None, list[int]] = {}
        for node in sorted(range(len(topology.nodes)), key=self._connected.place.__getitem__):
            self._bodies.setdefault(topology.owners[node], []).append(node)

    def root_box(self) -> Box:
        """Returns the whole model as a box."""
        root = Box(MODULE, "", nodes=len(self._topology.nodes))
        waiting = [(root, self._bodies.get(None, []), 0)]
        while waiting:
            box, nodes, level = waiting.pop()
            level += self._shared(box, nodes, level)
            for child, inside, depth in self._fill(box, nodes, level):
                if inside:
                    waiting.append((child, inside, depth))
        return root

    def _shared(self, box: Box, nodes: Sequence[int], level: int) -> int:
        """Returns how many modules hold all of `nodes`, and appends their names to the label."""
        first = self._paths[nodes[0]][level:] if nodes else ()
        count = len(first)
        for node in nodes:
            path = self._paths[node][level : level + count]
            while path != first[:count]:
                count -= 1
                path = path[:count]
        if box.kind == MODULE:
            box.label = ".".join(filter(None, (box.label, *first[:count])))
        return count

    def _fill(
        self, box: Box, nodes: Sequence[int], level: int
    ) -> Iterator[tuple[Box, list[int], int]]:
        """Adds the children of a box, and yields each with the nodes inside it and their level."""
        connected, among = self._connected, set(nodes)
        paths = [self._paths[node] for node in nodes]
        keys = [p[level] if level < len(p) else n for p, n in zip(paths, nodes, strict=True)]
        groups, box.links = pieces(nodes, keys, connected.reads)
        for number, group in enumerate(groups):
            if any(connected.enters[n] or not among.issuperset(connected.reads[n]) for n in group):
                box.links.add((OUTSIDE, number))
            if any(
                connected.leaves[n] or not among.issuperset(connected.readers[n]) for n in group
            ):
                box.links.add((number, OUTSIDE))
            node = group[0]
            path = self._paths[node][level:]
            if len(group) > 1:
                child = Box(MODULE, path[0], nodes=self._count(group))
                inside, depth = group, level + 1
            else:
                op_type = self._topology.op_types[node]
                label = " ".join(filter(None, (op_type, ".".join(path))))
                child = Box(NODE, label, node, op_type, self._count(group))
                inside, depth = self._bodies.get(node, []), 0
            box.children.append(child)
            yield child, inside, depth

    def _count(self, nodes: Sequence[int]) -> int:
        """The number of nodes, with those of their bodies."""
        count, waiting = 0, list(nodes)
        while waiting:
            count += 1
            waiting += self._bodies.get(waiting.pop(), ())
        return count


def _paths(topology: Topology) -> Iterator[_Path]:
    """Yields the modules around each node; of a node in a body, those inside its owner's."""
    levels: dict[str | None, _Path] = {None: (), "": ()}
    for module in topology.modules:
        if module not in levels:
            levels[module] = tuple(module.split(".", _DEEPEST - 1)) if module else ()
    for node, owner in enumerate(topology.owners):
        path = levels[topology.modules[node]]
        if owner is None:
            yield path
            continue
        outer = levels[topology.modules[owner]]
        inner = path[len(outer) :] if path[: len(outer)] == outer else path
        key, around = topology.nodes[node], topology.nodes[owner]
        is_inside = key.startswith(around)
        # the attribute that holds the body, as the key of the node tells it
        body = key.removeprefix(f"{around}.").split("/", 1)[0] if is_inside else "body"
        yield (body, *inner)
