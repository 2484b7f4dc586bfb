"""Joins profiled kernels to the nodes of the optimised graph that onnxruntime saved."""

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
    """The nodes of the saved graph; their order in the file is the order in which they run."""

    nodes: tuple[Node, ...]

    @classmethod
    def read(cls, path: Path) -> SavedNodes:
        """Reads the saved graph without its weights."""
        proto = onnx.load(path, load_external_data=False)
        return cls(Model(proto, path, "", expanded_keys(proto)).nodes)

    @property
    def repeated(self) -> frozenset[str]:
        """Event names shared by several nodes, which differ only by index in the profile."""
        counts = Counter(node.proto.name for node in self.nodes)
        return frozenset(f"{name}_kernel_time" for name, n in counts.items() if n > 1)


def kernels(
    model: Model, graph: SavedNodes, labels: Sequence[Label], calls: Sequence[float]
) -> tuple[Kernel, ...]:
    """Returns a Kernel for each label, joined to its node of `graph` where there is a match."""
    queues = _queues(graph)
    return tuple(
        _kernel(model, label, _take(queues, label), count)
        for label, count in zip(labels, calls, strict=True)
    )


def _queues(graph: SavedNodes) -> Mapping[tuple[str, str], deque[Node]]:
    """Returns queues of nodes by (name, operator); nameless nodes have the name ''."""
    queues: dict[tuple[str, str], deque[Node]] = defaultdict(deque)
    for node in graph.nodes:
        queues[node.proto.name, node.op_type].append(node)
    return queues


def _take(queues: Mapping[tuple[str, str], deque[Node]], label: Label) -> Node | None:
    """Takes the next node of this name in order of execution, else the next nameless node.

    The profile names nameless nodes `OpType_<index>`, an index that the saved graph lacks.
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
    """Returns the path, in the user's model, of the body that contains `node`."""
    owner = node.scope.owner
    if owner is None:
        return ""
    attribute = node.scope.path.rpartition(".")[2]
    return f"{node_names.original(model, owner.proto.name)}.{attribute}"
