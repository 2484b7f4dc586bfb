"""Which nodes a provider compiled into the subgraphs that it runs as kernels.

A compiling provider takes parts of the graph that onnxruntime has optimised up to the level `basic`
(graph_partitioner.cc). A profile names each part `<provider>_<its name>_<number>`, and no nodes.
onnxruntime from 1.24 on can tell the nodes of each part. Of older versions, and of profiles of
other programs, they are derived: a node without an event of its own is in a part.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tracer.executors.onnxruntime import node_names
from tracer.executors.onnxruntime.profile_events import Label
from tracer.graph.model import Node
from tracer.records import providers

RECORD = "session.record_ep_graph_assignment_info"
"""The entry of a session's configuration that makes it record who runs which node."""

_NUMBER = re.compile(r"_(\d+)$")

Name: TypeAlias = tuple[str, str]
"""Name and operator of a node in the graph that a provider divided."""


@dataclass(frozen=True, slots=True)
class Part:
    """Nodes that one provider took together; a single one may be a kernel, or compiled as well."""

    provider: str
    nodes: tuple[Name, ...]


def recorded(session: Any) -> tuple[Part, ...]:
    """Returns the parts of the graph in the order they were taken; none before onnxruntime 1.24."""
    ask = getattr(session, "get_provider_graph_assignment_info", None)
    if ask is None:
        return ()
    return tuple(
        Part(part.ep_name, tuple((node.name, node.op_type) for node in part.get_nodes()))
        for part in ask()
    )


def nodes_of_subgraphs(
    labels: Sequence[Label],
    parts: Sequence[Part],
    graph: Sequence[Node],
    others: Collection[Name] = (),
) -> Mapping[int, tuple[Name, ...]]:
    """Returns the nodes of each compiled subgraph by its position in `labels`.

    `parts` are those that the session recorded; `graph` is what providers divided, in the order in
    which it runs. `others` are in no subgraph, though no label has their name. Subgraphs whose
    nodes cannot be told apart are missing.
    """
    compiled = [place for place, label in enumerate(labels) if is_compiled(label)]
    compiled.sort(key=lambda place: _number(labels[place]))
    own = {(node_names.unnumbered(label.name), label.op_type) for label in labels} | {*others}
    if not compiled:
        return {}
    if parts:
        return _by_parts(labels, compiled, parts, own)
    nodes = [node for node in graph if node.scope.owner is None]
    derived = list(_derived(nodes, own))
    if len(compiled) == 1:
        derived = [tuple(name for part in derived for name in part)]
    if len(derived) != len(compiled):
        return {}
    return dict(zip(compiled, derived, strict=True))


def _by_parts(
    labels: Sequence[Label], compiled: Sequence[int], parts: Sequence[Part], own: set[Name]
) -> Mapping[int, tuple[Name, ...]]:
    """Pairs subgraphs with the parts of their provider that have no event of their own.

    onnxruntime numbers the parts that it compiles in the order in which it records them. A subgraph
    that never ran, in a branch that was not taken, has no event.
    """
    found: dict[int, tuple[Name, ...]] = {}
    for provider in {labels[place].provider for place in compiled}:
        places = [place for place in compiled if labels[place].provider == provider]
        taken = [
            part.nodes for part in parts if part.provider == provider and not _is_alone(part, own)
        ]
        numbers = [_number(labels[place]) for place in places]
        if len(taken) == len(places):
            found |= dict(zip(places, taken, strict=True))
        elif numbers[-1] < len(taken):
            found |= {place: taken[n] for place, n in zip(places, numbers, strict=True)}
    return found


def is_compiled(label: Label) -> bool:
    """Returns whether a kernel of a profile is a subgraph that a provider compiled."""
    return providers.is_compiled(label.provider, label.op_type, label.name)


def _is_alone(part: Part, own: set[Name]) -> bool:
    """Returns whether a part is a node with an event of its own."""
    name, op_type = part.nodes[0]
    return len(part.nodes) == 1 and (node_names.unnumbered(name), op_type) in own


def _number(label: Label) -> int:
    match = _NUMBER.search(label.name)
    return int(match[1]) if match else 0


def _derived(nodes: Sequence[Node], own: set[Name]) -> Iterator[tuple[Name, ...]]:
    """Yields the nodes without an event of their own, by what they wait for.

    A part runs at once, so nothing of it waits for a kernel that itself waits for the part. The
    nodes behind the same number of kernels in a row, and connected, are taken for one part.
    """
    depths: dict[str, int] = defaultdict(int)
    members: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        depth = max((depths[name] for name in node.inputs), default=0)
        if _name(node) in own:
            depth += 1
        else:
            members[depth].append(node)
        depths.update(dict.fromkeys(node.outputs, depth))
    for depth in sorted(members):
        for part in _connected(members[depth]):
            yield tuple(map(_name, part))


def _connected(nodes: Sequence[Node]) -> list[list[Node]]:
    """Returns the nodes that tensors connect, in their order."""
    part_of: dict[str, list[Node]] = {}
    parts: list[list[Node]] = []
    for node in nodes:
        touched = {id(part_of[name]): part_of[name] for name in node.inputs if name in part_of}
        merged = [each for part in touched.values() for each in part] + [node]
        parts = [part for part in parts if id(part) not in touched] + [merged]
        part_of |= {name: merged for each in merged for name in each.outputs}
    return parts


def _name(node: Node) -> Name:
    return node_names.unnumbered(node.proto.name), node.op_type
