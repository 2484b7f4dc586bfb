"""The graph onnxruntime made of the model, and which of its nodes each profiled kernel is."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from tracer.executors.onnxruntime import node_names
from tracer.executors.onnxruntime.profile_events import Label
from tracer.graph.model import Model, Node, expanded_keys
from tracer.records.trace import Kernel


@dataclass(frozen=True)
class SavedNodes:
    """The nodes that run, in the order of the file onnxruntime saved: the order they run in."""

    nodes: tuple[Node, ...]

    @classmethod
    def read(cls, path: Path) -> SavedNodes:
        """Read what a session saved, without its weights."""
        proto = onnx.load(path, load_external_data=False)
        return cls(Model(proto, path, "", expanded_keys(proto, ())).nodes)

    @property
    def repeated(self) -> frozenset[str]:
        """Event names that more than one node has; the profile tells them apart by index."""
        counts = Counter(node.proto.name for node in self.nodes)
        return frozenset(f"{name}_kernel_time" for name, n in counts.items() if n > 1)


def kernels(
    model: Model, graph: SavedNodes, labels: Sequence[Label], calls: Sequence[float]
) -> tuple[Kernel, ...]:
    """A Kernel for each label, joined to the node of `graph` that it is, where one is found."""
    queues = _queues(graph)
    return tuple(
        _kernel(model, label, _take(queues, label), count)
        for label, count in zip(labels, calls, strict=True)
    )


def _queues(graph: SavedNodes) -> Mapping[tuple[str, str], deque[Node]]:
    """Nodes by (name, operator); those without a name wait under the name ''."""
    queues: dict[tuple[str, str], deque[Node]] = defaultdict(deque)
    for node in graph.nodes:
        queues[node.proto.name, node.op_type].append(node)
    return queues


def _take(queues: Mapping[tuple[str, str], deque[Node]], label: Label) -> Node | None:
    """The next node of this name in order of execution, else the next nameless one of its type.

    Nameless nodes are reported as `OpType_<index>`, an index the saved graph does not hold.
    """
    for key in ((label.name, label.op_type), ("", label.op_type)):
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
        scope=_scope_path(model, node) if node else "",
        inputs=tuple(proto.input) if proto else (),
        outputs=tuple(proto.output) if proto else (),
        attributes=tuple(a.name for a in proto.attribute) if proto else (),
        input_types=label.input_types,
        output_types=label.output_types,
        calls=calls,
        arena_bytes=label.arena_bytes,
        arena_peak_bytes=label.arena_peak_bytes,
    )


def _scope_path(model: Model, node: Node) -> str:
    """The path, in the user's model, of the body a node of the optimised graph lies in."""
    owner = node.scope.owner
    if owner is None:
        return ""
    attribute = node.scope.path.rpartition(".")[2]
    return f"{node_names.original(model, owner.proto.name)}.{attribute}"
