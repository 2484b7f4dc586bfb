"""Explain nodes without a kernel, and kernels without a node."""

from collections.abc import Sequence
from typing import TypeAlias

from tracer.analyzers.dependence import UNCHANGING, constants
from tracer.graph.model import Model, Node, Scope
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Kernel

FOLDED, REMOVED, IDLE = "folded", "removed", "not run"

Fate: TypeAlias = tuple[str, str]
"""What happened to a node, and why."""

_MOVES = frozenset(
    {"Cast", "Expand", "Flatten", "Pad", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Operators that only move data; a runtime may replace or drop them."""

_FOLDED = (FOLDED, "is the same in every run, so it is computed when the model is loaded")
UNREAD = (REMOVED, "nothing reads its result")
_UNCHANGING = (REMOVED, "returns its input")
_MOVED = (REMOVED, "only moves data; its readers do not need it")
_UNUSED = (REMOVED, "no kernel computes or needs its values")
_NOT_ENTERED = (IDLE, "these inputs do not enter its branch or loop")
_INLINED = (REMOVED, "the node around it was replaced by its result, or removed")

_LAYOUT, _TYPE, _COPY = "layout change", "type change", "copy"

SERVICES = {
    "ReorderInput": _LAYOUT,
    "ReorderOutput": _LAYOUT,
    "Transpose": _LAYOUT,
    "Cast": _TYPE,
    "MemcpyFromHost": _COPY,
    "MemcpyToHost": _COPY,
}
"""What kernels without a node do, by operator."""


def service(kernel: Kernel, evidence: Evidence | None) -> str:
    """Returns what a kernel without a node does, and to which tensor of the model, if known."""
    kind = SERVICES.get(kernel.op_type, "helper")
    equal = evidence.equal if evidence else {}
    moved = next((equal[name][0] for name in kernel.outputs if equal.get(name)), None)
    return f"{kind} of '{moved}'" if moved else kind


def fates(
    model: Model,
    kernels: Sequence[Kernel],
    groups: Sequence[tuple[str, ...]],
    evidence: Evidence | None = None,
) -> dict[str, Fate]:
    """Returns the fate of each node in no group, by node key, in the order of the model."""
    fixed = evidence.constant if evidence else frozenset()
    shared = list(evidence.equal.values()) if evidence else []
    entered = {kernel.scope for kernel in kernels} | {""}
    ran = {(key, k.op_type) for k, group in zip(kernels, groups, strict=True) for key in group}
    running = frozenset(key for group in groups for key in group)
    decided: dict[str, Fate] = {}
    for scope in model.scopes:
        nodes = [node for node in model.nodes if node.scope.path == scope.path]
        # a body may read the tensors around it
        same = set() if scope.path else constants(nodes) | fixed
        live, twins = _live(model, scope, nodes), _twins(nodes)
        if not scope.path:
            _join(twins, nodes, shared)
        around = scope.owner
        for node in nodes:
            if around is not None and (around.key, around.op_type) not in ran:
                decided[node.key] = _INLINED
            elif scope.path not in entered:
                decided[node.key] = _NOT_ENTERED
            elif node.key not in live:
                decided[node.key] = UNREAD
            elif same.issuperset(filter(None, node.outputs)):
                decided[node.key] = _FOLDED
            else:
                decided[node.key] = _rewritten(node, [k for k in twins[node.key] if k in running])
    return {node.key: decided[node.key] for node in model.nodes if node.key not in running}


def _rewritten(node: Node, twins: Sequence[str]) -> Fate:
    if node.op_type in UNCHANGING:
        return _UNCHANGING
    if twins:
        return REMOVED, f"'{twins[0]}' computes the same values"
    return _MOVED if node.op_type in _MOVES else _UNUSED


def _join(
    twins: dict[str, list[str]], nodes: Sequence[Node], shared: Sequence[Sequence[str]]
) -> None:
    """Adds to `twins` the nodes that compute the values of one tensor of the runtime."""
    makers = {name: n.key for n in nodes for name in n.outputs if n.op_type not in _MOVES}
    for tensors in shared:
        keys = [makers[name] for name in tensors if name in makers]
        for key in keys:
            twins[key] = [*twins[key], *keys]


def _live(model: Model, scope: Scope, nodes: Sequence[Node]) -> set[str]:
    """Returns the nodes on which an output of the graph, or a body inside it, depends."""
    needed = {value.name for value in scope.graph.output}
    inside = {node.key for node in nodes}
    needed.update(name for node in model.nodes if node.key not in inside for name in node.inputs)
    live: set[str] = set()
    for node in reversed(nodes):
        if needed.intersection(filter(None, node.outputs)):
            live.add(node.key)
            needed.update(node.inputs)
    return live


def _twins(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Returns for each node all nodes with the same operator, attributes and inputs, by key."""
    first: dict[str, str] = {}
    groups: dict[object, list[str]] = {}
    twins: dict[str, list[str]] = {}
    for node in nodes:
        attributes = sorted(a.SerializeToString(deterministic=True) for a in node.proto.attribute)
        inputs = tuple(first.get(name, name) for name in node.inputs)
        group = groups.setdefault((node.domain, node.op_type, inputs, tuple(attributes)), [])
        group.append(node.key)
        twins[node.key] = group
        first.update({name: f"{group[0]}\n{i}" for i, name in enumerate(node.outputs)})
        if node.op_type in UNCHANGING:
            first[node.outputs[0]] = inputs[0]
    return twins
