"""The boxes of a model: its modules inside each other, and bodies inside their owners."""

from collections.abc import Iterator, Sequence

from tracer.analyzers.views.report.layout.box import MODULE, NODE, OUTSIDE, Box
from tracer.analyzers.views.report.layout.connections import Connections
from tracer.analyzers.views.report.layout.pieces import pieces
from tracer.records.topology import Topology

_DEEPEST = 24
"""Most levels of modules that are told apart; deeper ones are one name."""

_Path = tuple[str, ...]


def hierarchy(topology: Topology, connected: Connections) -> Box:
    """Returns the whole model as a box.

    A module of one node is this node, and a module that holds one module alone is one box with it.
    """
    return _Hierarchy(topology, connected).whole()


class _Hierarchy:
    def __init__(self, topology: Topology, connected: Connections) -> None:
        self._topology = topology
        self._connected = connected
        self._paths = list(_paths(topology))
        self._bodies: dict[int | None, list[int]] = {}
        for node in sorted(range(len(topology.nodes)), key=connected.place.__getitem__):
            self._bodies.setdefault(topology.owners[node], []).append(node)

    def whole(self) -> Box:
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
        keys = [self._key(node, level) for node in nodes]
        groups, box.links = pieces(nodes, keys, self._connected.reads)
        among = set(nodes)
        for number, group in enumerate(groups):
            if any(self._reads_outside(node, among) for node in group):
                box.links.add((OUTSIDE, number))
            if any(self._is_read_outside(node, among) for node in group):
                box.links.add((number, OUTSIDE))
            child, inside, depth = self._child(group, level)
            box.children.append(child)
            yield child, inside, depth

    def _key(self, node: int, level: int) -> str | int:
        path = self._paths[node]
        return path[level] if level < len(path) else node

    def _child(self, group: list[int], level: int) -> tuple[Box, list[int], int]:
        node = group[0]
        path = self._paths[node][level:]
        if len(group) > 1:
            return Box(MODULE, path[0], nodes=self._count(group)), group, level + 1
        body = self._bodies.get(node, [])
        op_type = self._topology.op_types[node]
        label = " ".join(filter(None, (op_type, ".".join(path))))
        return Box(NODE, label, node, op_type, self._count(group)), body, 0

    def _count(self, nodes: Sequence[int]) -> int:
        """The number of nodes, with those of their bodies."""
        count, waiting = 0, list(nodes)
        while waiting:
            count += 1
            waiting += self._bodies.get(waiting.pop(), ())
        return count

    def _reads_outside(self, node: int, among: set[int]) -> bool:
        reads = self._connected.reads[node]
        return self._connected.enters[node] or not among.issuperset(reads)

    def _is_read_outside(self, node: int, among: set[int]) -> bool:
        readers = self._connected.readers[node]
        return self._connected.leaves[node] or not among.issuperset(readers)


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
        yield (_body(topology.nodes[node], topology.nodes[owner]), *inner)


def _body(node: str, owner: str) -> str:
    """Returns the attribute that holds the body, as the key of the node tells it."""
    return node.removeprefix(f"{owner}.").split("/", 1)[0] if node.startswith(owner) else "body"
