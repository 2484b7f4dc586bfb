"""What became of a node that no kernel stands for."""

from collections.abc import Sequence
from typing import TypeAlias

from analyzers.dependence import UNCHANGING, constants
from tracer.graph.model import Model, Node, Scope
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Kernel

FOLDED, REMOVED, IDLE = "folded", "removed", "not run"

Fate: TypeAlias = tuple[str, str]
"""What happened, and why."""

_MOVES = frozenset(
    {"Cast", "Expand", "Flatten", "Pad", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Operators that compute nothing, which a runtime may do in another way, or do without."""

_FOLDED = (FOLDED, "the same in every run: computed when the model is loaded")
_UNREAD = (REMOVED, "nothing reads its result")
_UNCHANGING = (REMOVED, "its result is its input")
_MOVED = (REMOVED, "it only moves data, and what reads it does without")
_UNSEEN = (REMOVED, "no kernel makes its values, and none needs them")
_NOT_ENTERED = (IDLE, "its branch or loop was not entered on these inputs")
_INLINED = (REMOVED, "the node around it was replaced by what it comes to, or left out")


def fates(
    model: Model,
    kernels: Sequence[Kernel],
    groups: Sequence[tuple[str, ...]],
    evidence: Evidence | None = None,
) -> dict[str, Fate]:
    """The fate of each node in no group, by its key, in the order of the model."""
    fixed = evidence.constant if evidence else frozenset()
    shared = list(evidence.equal.values()) if evidence else []
    entered = {kernel.scope for kernel in kernels} | {""}
    ran = {(key, k.op_type) for k, group in zip(kernels, groups, strict=True) for key in group}
    running = frozenset(key for group in groups for key in group)
    decided: dict[str, Fate] = {}
    for scope in model.scopes:
        nodes = [node for node in model.nodes if node.scope.path == scope.path]
        same = constants(nodes, scope.path) | (frozenset() if scope.path else fixed)
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
                decided[node.key] = _UNREAD
            elif same.issuperset(filter(None, node.outputs)):
                decided[node.key] = _FOLDED
            else:
                decided[node.key] = _rewritten(node, [k for k in twins[node.key] if k in running])
    return {node.key: decided[node.key] for node in model.nodes if node.key not in running}


def _rewritten(node: Node, twins: Sequence[str]) -> Fate:
    if node.op_type in UNCHANGING:
        return _UNCHANGING
    if twins:
        return REMOVED, f"'{twins[0]}' computes the same"
    return _MOVED if node.op_type in _MOVES else _UNSEEN


def _join(
    twins: dict[str, list[str]], nodes: Sequence[Node], shared: Sequence[Sequence[str]]
) -> None:
    """Count as twins nodes that compute the same values, one of which the runtime made."""
    makers = {name: n.key for n in nodes for name in n.outputs if n.op_type not in _MOVES}
    for tensors in shared:
        keys = [makers[name] for name in tensors if name in makers]
        for key in keys:
            twins[key] = [*twins[key], *keys]


def _live(model: Model, scope: Scope, nodes: Sequence[Node]) -> set[str]:
    """Nodes of one graph whose results are its outputs, or lead to them, or go into a body."""
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
    """For each node the keys of all that do the same with the same tensors, itself among them."""
    first: dict[str, str] = {}
    groups: dict[object, list[str]] = {}
    twins: dict[str, list[str]] = {}
    for node in nodes:
        attributes = sorted(a.SerializeToString(deterministic=True) for a in node.proto.attribute)
        inputs = tuple(first.get(name, name) for name in node.inputs)
        what = (node.domain, node.op_type, inputs, tuple(attributes))
        group = groups.setdefault(what, [])
        group.append(node.key)
        twins[node.key] = group
        for place, name in enumerate(node.outputs):
            if node.op_type in UNCHANGING and not place:
                first[name] = inputs[0]
            else:
                first[name] = f"{group[0]}\n{place}"
    return twins
