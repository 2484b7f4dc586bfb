"""Joins profiled kernels to the nodes of the optimised graph that onnxruntime saved."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import onnx

from tracer.executors.onnxruntime import compiled_subgraphs, node_names
from tracer.executors.onnxruntime.compiled_subgraphs import Name, Part
from tracer.executors.onnxruntime.profile_events import Label
from tracer.graph.model import Model, Node, expanded_keys
from tracer.records import providers
from tracer.records.trace import Kernel
from tracer.support.types import FloatArray


@dataclass(frozen=True)
class SavedNodes:
    """The nodes of the saved graph; their order in the file is the order in which they run.

    `later` are nodes of the graph that the CPU runs, where another provider divided `nodes`. With
    `elsewhere`, it was saved by another session than the one that is profiled.
    """

    nodes: tuple[Node, ...]
    later: tuple[Node, ...] = ()
    elsewhere: bool = False

    @classmethod
    def read(cls, path: Path, elsewhere: bool = False) -> SavedNodes:
        """Reads the saved graph without its weights."""
        proto = onnx.load(path, load_external_data=False)
        return cls(Model(proto, path, "", expanded_keys(proto)).nodes, elsewhere=elsewhere)

    @property
    def repeated(self) -> frozenset[str]:
        """Event names shared by several nodes, which differ only by index in the profile."""
        counts = Counter(node.proto.name for node in self.nodes)
        return frozenset(f"{name}_kernel_time" for name, n in counts.items() if n > 1)

    def lacks(self, labels: Sequence[Label]) -> bool:
        """Returns whether a kernel of the CPU has the name and the operator of no node."""
        own = (label for label in labels if providers.is_cpu(label.provider))
        return any(not self.has(label) for label in own)

    def has(self, label: Label) -> bool:
        """Returns whether a kernel has the name and the operator of a node."""
        return (self.name(label.name), label.op_type) in self._names

    def name(self, name: str) -> str:
        """Returns what a name has in common with that of the same node in the session profiled."""
        return node_names.unnumbered(name) if self.elsewhere else name

    @cached_property
    def _names(self) -> frozenset[tuple[str, str]]:
        return frozenset((self.name(node.proto.name), node.op_type) for node in self.nodes)


def kernels(
    model: Model,
    graph: SavedNodes,
    labels: Sequence[Label],
    calls: Sequence[float],
    parts: Sequence[Part] = (),
    matches: Sequence[Node | None] | None = None,
    others: Collection[Name] = (),
) -> tuple[Kernel, ...]:
    """Returns a Kernel for each label, joined to its node of `graph` where there is a match.

    `parts` are who runs which nodes of `graph`, as the session recorded it; `matches` are the nodes
    of the labels, where they are known [default: found by name and order]. `others` are in kernels
    with another name.
    """
    queues, later = _queues(graph, graph.nodes), _queues(graph, graph.later)
    if matches is None:
        matches = [_take(graph, queues, each) or _take(graph, later, each) for each in labels]
    joined = [_kernel(model, *each) for each in zip(labels, matches, calls, strict=True)]
    subgraphs = compiled_subgraphs.nodes_of_subgraphs(labels, parts, graph.nodes, others)
    for place, names in subgraphs.items():
        joined[place] = replace(
            joined[place], parts=_parts(model, graph, queues, labels[place], names, calls[place])
        )
    return tuple(joined)


def timed_on_device(kernels: Sequence[Kernel], device_us: FloatArray) -> tuple[Kernel, ...]:
    """Returns the kernels with their times on the device, µs per run.

    A kernel of the CPU launches nothing there.
    """
    return tuple(
        kernel if providers.is_cpu(kernel.provider) else replace(kernel, device_us=float(time))
        for kernel, time in zip(kernels, device_us, strict=True)
    )


def _parts(
    model: Model,
    graph: SavedNodes,
    queues: Mapping[tuple[str, str], deque[Node]],
    subgraph: Label,
    names: Sequence[Name],
    calls: float,
) -> tuple[Kernel, ...]:
    """Returns the nodes `names` of a compiled subgraph as kernels, in the order of `graph`."""
    places = {id(node): place for place, node in enumerate(graph.nodes)}
    found = []
    for name, op_type in names:
        label = Label(name, subgraph.first_us, op_type, subgraph.provider, (), (), None, None)
        node = _take(graph, queues, label)
        place = len(places) if node is None else places[id(node)]
        found.append((place, _kernel(model, label, node, calls)))
    return tuple(kernel for _, kernel in sorted(found, key=lambda each: each[0]))


def _queues(graph: SavedNodes, nodes: Sequence[Node]) -> Mapping[tuple[str, str], deque[Node]]:
    """Returns queues of nodes by (name, operator); nameless nodes have the name ''."""
    queues: dict[tuple[str, str], deque[Node]] = defaultdict(deque)
    for node in nodes:
        queues[graph.name(node.proto.name), node.op_type].append(node)
    return queues


def _take(
    graph: SavedNodes, queues: Mapping[tuple[str, str], deque[Node]], label: Label
) -> Node | None:
    """Takes the next node of this name in order of execution, else the next nameless node.

    The profile names nameless nodes `OpType_<index>`, an index that the saved graph lacks.
    """
    for key in ((graph.name(label.name), label.op_type), ("", label.op_type)):
        queue = queues.get(key)
        if queue:
            return queue.popleft()
    return None


def _kernel(model: Model, label: Label, node: Node | None, calls: float) -> Kernel:
    proto = node.proto if node else None
    return Kernel(
        name=node_names.original(model, label.name),
        op_type=label.op_type,
        domain=node.domain if node else "",
        provider=label.provider,
        node=node_names.named_node(model, label.name),
        scope=scope_path(model, node) if node else "",
        inputs=tuple(proto.input) if proto else (),
        outputs=tuple(proto.output) if proto else (),
        attributes=tuple(a.name for a in proto.attribute) if proto else (),
        input_types=label.input_types,
        output_types=label.output_types,
        calls=calls,
        arena_bytes=label.arena_bytes,
        arena_peak_bytes=label.arena_peak_bytes,
        varying=label.varying,
    )


def scope_path(model: Model, node: Node) -> str:
    """Returns the path, in the user's model, of the body that contains `node`."""
    owner = node.scope.owner
    if owner is None:
        return ""
    attribute = node.scope.path.rpartition(".")[2]
    return f"{node_names.original(model, owner.proto.name)}.{attribute}"
