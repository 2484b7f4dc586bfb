"""Tells the kernels of a profile apart, and finds the nodes of a model that they are.

Events name kernels only within a graph: `node_index` begins at 0 in each body, and old versions
wrote no index, or no names. In which body an event is follows from the event around it; the
branches of an If differ by what ran in them.

Nodes are found by index, name and order. onnxruntime numbers the nodes of each graph in the order
of the file, without Constants; nodes that it makes have higher numbers. An event has the name of
its node or, of a nameless one, operator and number (`Conv_3`), which may be the name of another
node as well.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from tracer.executors.onnxruntime import kernel_nodes, profile_events
from tracer.executors.onnxruntime.kernel_nodes import SavedNodes
from tracer.executors.onnxruntime.profile_events import EXECUTE, Events, Label
from tracer.graph.model import Model, Node, bodies
from tracer.graph.tensor_type import common_types

_FIRST = EXECUTE + 1
_MAIN, _BROKEN = -1, -2

_Kind: TypeAlias = tuple[str, str, str, int]
"""Name, operator and index of a kernel, and its `place`."""

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


@dataclass(slots=True)
class SeparateKernel:
    """One kernel: how the profile describes it, and where it ran.

    `owner` is the position of the kernel in whose `body` it ran; None in the main graph. Where the
    profile has no index, `place` is the one among the kernels of its name and operator there.
    `numbers` are those of its labels, one for each combination of types.
    """

    label: Label
    owner: int | None
    body: Hashable
    place: int
    numbers: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        """The name in the profile; for a kernel without one, its operator and its number."""
        number = f"_{self.label.node_index}" if self.label.node_index else f"#{self.place + 1}"
        return self.label.name or self.label.op_type + number

    def add(self, number: int, label: Label) -> None:
        """Adds the calls of one label."""
        if number not in self.numbers:
            self.numbers.add(number)
            self.label = replace(
                self.label,
                first_us=min(self.label.first_us, label.first_us),
                input_types=common_types([self.label.input_types, label.input_types]),
                output_types=common_types([self.label.output_types, label.output_types]),
            )


def tell_apart(
    events: Events, labels: Sequence[Label]
) -> tuple[Events, tuple[SeparateKernel, ...]]:
    """Returns the events with a label for each kernel, and the kernels; owners come first.

    `labels` have calls of other types apart. Nodes of a body whose owner has no event, as the run
    failed in it, are left out.
    """
    owners, frames = _nesting(events)
    numbers = (events.label - _FIRST).tolist()
    kinds = _kinds(events, frames, labels)
    ran: dict[int, set[_Kind]] = defaultdict(set)
    for node, kind in kinds.items():
        ran[frames[node]].add(kind)
    kernels: list[SeparateKernel] = []
    known: dict[Hashable, int] = {}
    kernel_of: dict[int, int | None] = {_MAIN: None}
    label = events.label.copy()
    for node, kind in kinds.items():
        if owners[node] not in kernel_of:
            label[node] = -1
            continue
        owner = kernel_of[owners[node]]
        divides = owner is not None and kernels[owner].label.op_type == "If"
        key = owner, frozenset(ran[frames[node]]) if divides else None, kind
        place = known.setdefault(key, len(kernels))
        if place == len(kernels):
            kernels.append(SeparateKernel(labels[numbers[node]], *key[:2], kind[-1]))
        kernels[place].add(numbers[node], labels[numbers[node]])
        kernel_of[node] = place
        label[node] = place + _FIRST
    return replace(events, label=label).take(label >= 0), tuple(kernels)


def _nesting(events: Events) -> tuple[list[int], list[int]]:
    """Returns the node in whose body each event is, and the execution of a graph that it is in.

    The latter is the event of the execution or, where no event is around it, a number of its run.
    """
    runs = profile_events.run_events(events)
    of_run = profile_events.runs_around(events, runs, np.arange(len(events)))
    owners, frames = [_MAIN] * len(events), (-1 - of_run).tolist()
    for outer, inner in profile_events.parents(events):
        frames[inner] = outer
        owners[inner] = owners[outer]
        if events.label[outer] > EXECUTE:
            owners[inner] = outer
        elif events.label[outer] == events.label[inner] == EXECUTE:
            owners[inner] = _BROKEN
    return owners, frames


def _kinds(events: Events, frames: Sequence[int], labels: Sequence[Label]) -> Mapping[int, _Kind]:
    """Returns what tells each node from others in its graph, in the order in which they began."""
    nodes = np.flatnonzero(events.label >= _FIRST)
    nodes = nodes[np.lexsort((-nodes, -events.dur[nodes], events.ts[nodes]))]
    seen: Counter[Hashable] = Counter()
    kinds: dict[int, _Kind] = {}
    for node in nodes.tolist():
        label = labels[events.label[node] - _FIRST]
        kind = label.name, label.op_type, label.node_index
        place = 0 if label.node_index else seen[frames[node], kind]
        seen[frames[node], kind] += 1
        kinds[node] = *kind, place
    return kinds


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
    def of(cls, model: Model) -> "NodeSearch":
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
            if path is None:
                inside = [node for name, each in by_path.items() if name for node in each]
            else:
                inside = by_path[path]
            both = zip(positions, nodes, self._in_order(inside, labels, nodes), strict=True)
            found |= {position: Match(path, node, match) for position, node, match in both}
        return tuple(found[position] for position in range(len(kernels)))

    def _bodies(self, owner: Match) -> list[str]:
        node = owner.node
        if node is None and owner.saved is not None:
            key = kernel_nodes.named_node(self.model, owner.saved.proto.name)
            node = next((each for each in self.model.nodes if each.key == key), None)
        if node is None:
            return []
        return [f"{node.key}.{attribute}" for attribute, _ in bodies(node.proto)]

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
        found = [n and by_name.get((kernel_nodes.safe(n.index), n.op_type)) for n in nodes]
        for alias in _ALIASES:
            taken = {id(node) for node in found}
            offered: dict[Hashable, list[Node]] = defaultdict(list)
            for node in saved:
                if id(node) not in taken:
                    name = kernel_nodes.in_file(self.model, node.proto.name)
                    offered[kernel_nodes.unnumbered(name), node.op_type].append(node)
            waiting: dict[Hashable, list[int]] = defaultdict(list)
            for place, label in enumerate(labels):
                known_as = alias(label)
                if nodes[place] is found[place] is None and known_as is not None:
                    waiting[kernel_nodes.unnumbered(known_as), label.op_type].append(place)
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


def _is_numbered(label: Label) -> bool:
    """Returns whether a name is that of a nameless node, though it may be another's own."""
    stem, _, number = label.name.rpartition("_")
    return stem == label.op_type and number == (label.node_index or number)


_ALIASES: Sequence[Callable[[Label], str | None]] = (
    lambda label: label.name,
    lambda label: label.name.removeprefix(_FUSED) if label.name.startswith(_FUSED) else None,
    lambda label: "" if _is_numbered(label) else None,
)
"""What the node of a kernel may be called in the file; None where it does not apply."""


def _nodes_of(graph: Sequence[Node], labels: Sequence[Label]) -> list[Node | None]:
    """Returns the node of each label by its index or, without one, by its name.

    If an index is that of another node, the graph is another one: names alone count.
    """
    named = _unique(graph)
    by_name = [named.get(label.name) for label in labels]
    alike = [
        node if node is not None and label.op_type in ("", node.op_type) else None
        for node, label in zip(by_name, labels, strict=True)
    ]
    numbers = [_index_of(label, named) for label in labels]
    for table in (_without_constants(graph), graph):
        found = [_at(table, number) for number in numbers]
        if all(map(_fits, found, labels, numbers)):
            both = zip(numbers, found, alike, strict=True)
            return [by_index if number else by_name for number, by_index, by_name in both]
    return alike


def _index_of(label: Label, named: Collection[str]) -> str:
    """Returns the index of a kernel's node, which only its name may tell; '' if unknown."""
    if label.node_index or label.name in named:
        return label.node_index
    return label.name.rpartition("_")[2] if _is_numbered(label) else ""


def _fits(node: Node | None, label: Label, number: str) -> bool:
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
