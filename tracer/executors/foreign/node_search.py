"""Finds the nodes of a model that the kernels of a profile are, by index, name and order.

onnxruntime numbers the nodes of each graph in the order of the file, without Constants; nodes that
it makes have higher numbers. An event has the name of its node or, of a nameless one, operator and
number (`Conv_3`), which may be the name of another node as well.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from tracer.executors.foreign.separate_kernels import SeparateKernel
from tracer.executors.onnxruntime import kernel_nodes, node_names
from tracer.executors.onnxruntime.kernel_nodes import SavedNodes
from tracer.executors.onnxruntime.profile_events import Label
from tracer.graph.model import Model, Node, bodies

_FUSED = "fused "
"""Begins the name of a fused kernel of older versions; the name of its first node follows."""

_LAYOUT = re.compile(r"_(?:nchwc|nhwc)$")
"""What onnxruntime adds to the name of a node whose layout it changes."""

_LIST, _NEXT = "fused op (", ") + ("
_LISTED = re.compile(r"\(?(?:#(\d+))?\s*'?(.*?)'?\)?")
"""A node in the name of a kernel that DirectML fused: `fused op (#6 'Conv_6') + (#7 'Relu_7')`."""

_SEPARATORS = re.compile(r"\s*[+,;&]\s*")

_LEAST = 2
"""Nodes that a list has at least."""

_DIGITS = 9
"""Digits that an index has at most."""


@dataclass(frozen=True, slots=True)
class Match:
    """What a kernel is: the path of its graph, its node there, and the one of a saved graph.

    Each is None where it is not known.
    """

    path: str | None
    node: Node | None
    saved: Node | None


@dataclass(frozen=True)
class NodeSearch:
    """The nodes of a model by graph."""

    model: Model
    graphs: Mapping[str, Sequence[Node]]

    @classmethod
    def of(cls, model: Model) -> NodeSearch:
        """Indexes the nodes of a model."""
        graphs: dict[str, list[Node]] = {scope.path: [] for scope in model.scopes}
        for node in model.nodes:
            graphs[node.scope.path].append(node)
        return cls(model, graphs)

    def matches(self, saved: SavedNodes, kernels: Sequence[SeparateKernel]) -> tuple[Match, ...]:
        """Returns what each kernel is, by a saved graph whose nodes have safe names.

        Kernels without a node of the model are matched in the order in which they ran, if there are
        as many of a name and operator as in the graph.
        """
        by_path: dict[str, list[Node]] = defaultdict(list)
        for node in saved.nodes:
            by_path[kernel_nodes.scope_path(self.model, node)].append(node)
        members: dict[Hashable, list[int]] = defaultdict(list)
        for position, kernel in enumerate(kernels):
            members[kernel.owner, kernel.body].append(position)
        found: dict[int, Match] = {}
        for positions in members.values():
            owner = kernels[positions[0]].owner
            paths = [self.model.root] if owner is None else self._bodies(found[owner])
            labels = [kernels[position].label for position in positions]
            path, nodes = self._fit(paths, labels)
            inside = by_path[path] if path is not None else _in_bodies(by_path)
            both = zip(positions, nodes, self._in_order(inside, labels, nodes), strict=True)
            found |= {position: Match(path, node, match) for position, node, match in both}
        return tuple(found[position] for position in range(len(kernels)))

    def _bodies(self, owner: Match) -> list[str]:
        """Returns the paths of the bodies of a kernel."""
        node = owner.node
        if node is None and owner.saved is not None:
            key = node_names.named_node(self.model, owner.saved.proto.name)
            node = next((each for each in self.model.nodes if each.key == key), None)
        attributes = bodies(node.proto) if node is not None else ()
        return [f"{node.key}.{attribute}" for attribute, _ in attributes] if node else []

    def _fit(
        self, paths: Sequence[str], labels: Sequence[Label]
    ) -> tuple[str | None, Sequence[Node | None]]:
        """Returns the one graph of `paths` that fits best, and its node for each label."""
        ops = Counter(label.op_type for label in labels)
        ranked = []
        for path in paths:
            graph = self.graphs[path]
            nodes = _nodes_of(graph, labels)
            alike = (ops & Counter(node.op_type for node in graph)).total()
            ranked.append(((len(nodes) - nodes.count(None), alike, -len(graph)), path, nodes))
        ranked.sort(key=lambda each: each[0], reverse=True)
        if not ranked or (len(ranked) > 1 and ranked[0][0] == ranked[1][0]):
            return None, [None] * len(labels)
        return ranked[0][1:]

    def _in_order(
        self, saved: Sequence[Node], labels: Sequence[Label], nodes: Sequence[Node | None]
    ) -> list[Node | None]:
        """Returns the node among `saved` for each label, of which `nodes` are known."""
        by_name = {(node.proto.name, node.op_type): node for node in saved}
        found = [n and by_name.get((node_names.safe(n.index), n.op_type)) for n in nodes]
        for alias in (_own, _of_fused, _of_nameless):
            taken = {id(node) for node in found}
            offered: dict[Hashable, list[Node]] = defaultdict(list)
            for node in saved:
                if id(node) not in taken:
                    name = node_names.in_file(self.model, node.proto.name)
                    offered[node_names.unnumbered(name), node.op_type].append(node)
            waiting: dict[Hashable, list[int]] = defaultdict(list)
            for place, label in enumerate(labels):
                known_as = alias(label)
                if nodes[place] is found[place] is None and known_as is not None:
                    waiting[node_names.unnumbered(known_as), label.op_type].append(place)
            for key, places in waiting.items():
                if len(places) == len(offered[key]):
                    for place, node in zip(places, offered[key], strict=True):
                        found[place] = node
        return found

    def listed_nodes(self, label: Label) -> tuple[Node, ...]:
        """Returns the nodes of the main graph that the name of a fused kernel lists."""
        of_directml = label.name.startswith(_LIST)
        parts = label.name.split(_NEXT) if of_directml else _SEPARATORS.split(label.name)
        if len(parts) < _LEAST:
            return ()
        graph = self.graphs[self.model.root]
        numbered, named = _without_constants(graph), _unique(graph)
        nodes: list[Node] = []
        for part in parts:
            match = _LISTED.fullmatch(part.removeprefix(_LIST))
            number, name = match.groups("") if match else ("", part)
            node = _at(numbered, number)
            if node is None or node.proto.name != name:
                node = named.get(name)
            if node is None or (nodes and set(nodes[-1].outputs).isdisjoint(node.inputs)):
                return ()
            nodes.append(node)
        return tuple(nodes)

    def nearest_node(self, label: Label, path: str | None) -> str | None:
        """Returns the key of the node that the name of a fused kernel begins with."""
        graph = self.model.nodes if path is None else self.graphs[path]
        node = _unique(graph).get(_LAYOUT.sub("", label.name.removeprefix(_FUSED)))
        return None if node is None or _is_numbered(label) else node.key


def _own(label: Label) -> str | None:
    return label.name


def _of_fused(label: Label) -> str | None:
    return label.name.removeprefix(_FUSED) if label.name.startswith(_FUSED) else None


def _of_nameless(label: Label) -> str | None:
    return "" if _is_numbered(label) else None


def _is_numbered(label: Label) -> bool:
    """Returns whether a name is that of a nameless node, though it may be another's own."""
    stem, _, number = label.name.rpartition("_")
    return stem == label.op_type and number == (label.node_index or number)


def _in_bodies(by_path: Mapping[str, Sequence[Node]]) -> list[Node]:
    return [node for path, nodes in by_path.items() if path for node in nodes]


def _nodes_of(graph: Sequence[Node], labels: Sequence[Label]) -> list[Node | None]:
    """Returns the node of each label by its index or, without one, by its name.

    If an index is that of another node, the graph is another one: names alone count.
    """
    named = _unique(graph)
    alike = [_of_name(named, label) for label in labels]
    numbers = [_number(label, named) for label in labels]
    for table in (_without_constants(graph), graph):
        found = [_at(table, number) for number in numbers]
        if all(map(_may_be, found, labels, numbers)):
            both = zip(numbers, found, alike, strict=True)
            return [by_index if number else by_name for number, by_index, by_name in both]
    return alike


def _number(label: Label, named: Collection[str]) -> str:
    """Returns the index of a kernel's node, which only its name may tell; '' if unknown."""
    if label.node_index or label.name in named:
        return label.node_index
    return label.name.rpartition("_")[2] if _is_numbered(label) else ""


def _of_name(named: Mapping[str, Node], label: Label) -> Node | None:
    node = named.get(label.name)
    return node if node is not None and label.op_type in ("", node.op_type) else None


def _may_be(node: Node | None, label: Label, number: str) -> bool:
    """Returns whether a kernel can be the node with its index."""
    if node is None:
        return True
    names = (node.proto.name,) if node.proto.name else ("", f"{node.op_type}_{number}")
    return label.op_type in ("", node.op_type) and label.name in names


def _at(graph: Sequence[Node], index: str) -> Node | None:
    number = int(index) if index.isdecimal() and len(index) <= _DIGITS else len(graph)
    return graph[number] if number < len(graph) else None


def _without_constants(graph: Sequence[Node]) -> list[Node]:
    return [node for node in graph if node.op_type != "Constant"]


def _unique(nodes: Sequence[Node]) -> Mapping[str, Node]:
    """Returns the nodes with a name of their own by it."""
    counts = Counter(node.proto.name for node in nodes)
    return {n.proto.name: n for n in nodes if n.proto.name and counts[n.proto.name] == 1}
