"""Map the kernels of a runtime to the nodes of a model, and say what happened to other nodes.

`fates` explains nodes without a kernel, `service` kernels without a node.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

from tracer.analyzers.attribution import UNCHANGING, attribute, constants
from tracer.analyzers.fusions.confirmation import UNKNOWN, Verdict, confirm
from tracer.graph.model import Model, Node, Scope
from tracer.records.columns import as_column
from tracer.records.environment import Environment
from tracer.records.model_info import ModelInfo
from tracer.records.result import Result
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Kernel
from tracer.text import plural

ALONE, GROUP, PART, OVERHEAD = "alone", "group", "part", "overhead"
"""Roles of a kernel: it runs one node, a group of nodes, part of a node, or none (overhead)."""
FOLDED, REMOVED, IDLE = "folded", "removed", "not run"
Fate: TypeAlias = tuple[str, str]
"""What happened to a node, and why."""
UNREAD = (REMOVED, "nothing reads its result")
_NOT_COMPARED = Verdict(UNKNOWN, "values were not compared")


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A kernel and the keys of the nodes that it runs.

    `verdict` is a word of `confirmation`, with the reason in `why`. For overhead, `verdict` is ''
    and `why` says what the kernel does. `named` has the nodes that names suggest, if values
    disagree with names.
    """

    kernel: str = field(metadata=as_column("kernel", 1))
    op_type: str = field(metadata=as_column("op", 10))
    domain: str
    calls: float = field(metadata=as_column("calls", 4, "count"))
    role: str
    nodes: tuple[str, ...] = field(metadata=as_column("contains", 0))
    verdict: str = field(metadata=as_column("values", 3))
    why: str = field(metadata=as_column("why", 5))
    named: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class NodeFate:
    """A node of the model; `fate` is the role of its kernels, or a fate of `fates`."""

    node: str = field(metadata=as_column("node", 0))
    op_type: str = field(metadata=as_column("op", 1))
    domain: str
    module: str | None
    fate: str = field(metadata=as_column("fate", 2))
    kernels: tuple[str, ...]
    why: str = field(metadata=as_column("why", 3))


@dataclass(frozen=True, slots=True, repr=False)
class Fusions(Result):
    """The kernels in the order they ran, and the nodes in the order of the model.

    `inputs` is the number of inputs on which values were compared.
    """

    view: ClassVar[str] = "tracer.analyzers.fusions.views"

    model: ModelInfo
    environment: Environment
    settings: Mapping[str, Any]
    inputs: int
    kernels: tuple[FusedKernel, ...] = field(repr=False)
    nodes: tuple[NodeFate, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    def headline(self) -> str:
        """The model, its nodes and its kernels."""
        nodes, kernels = plural(len(self.nodes), "node"), plural(len(self.kernels), "kernel")
        return f"{self.model.name}, {nodes} in {kernels}"


def mapped(
    model: Model,
    kernels: Sequence[Kernel],
    evidence: Evidence | None,
    *,
    info: ModelInfo,
    environment: Environment,
    settings: Mapping[str, Any],
    notes: tuple[str, ...] = (),
) -> Fusions:
    """Maps `kernels`, in the order they ran; without evidence, no group is confirmed.

    They are those of `model.executed`, and so are the tensors of `evidence`.
    """
    rows = _kernel_rows(model.executed, kernels, evidence)
    lost: Mapping[str, Fate]
    lost = fates(model.executed, kernels, [row.nodes for row in rows], evidence)
    if model.stand_in is not None:
        of_own = [model.own_nodes(row.nodes) for row in rows]
        rows = tuple(
            replace(
                row,
                nodes=group,
                role=_role(group, of_own),
                named=None if row.named is None else model.own_nodes(row.named),
            )
            for row, group in zip(rows, of_own, strict=True)
        )
        # The fate of a node itself goes before those of its other parts.
        own = {own: fate for key, fate in lost.items() for own in model.own_nodes([key])}
        itself = {key: fate for key, fate in lost.items() if key in own}
        lost = dict.fromkeys((node.key for node in model.nodes), UNREAD) | own | itself
    return Fusions(
        model=info,
        environment=environment,
        settings=settings,
        inputs=evidence.inputs if evidence else 0,
        kernels=rows,
        nodes=_node_rows(model, rows, lost),
        notes=notes,
    )


def _kernel_rows(
    model: Model, kernels: Sequence[Kernel], evidence: Evidence | None
) -> tuple[FusedKernel, ...]:
    named = attribute(model, kernels)
    groups = named if evidence is None else attribute(model, kernels, evidence)
    verdicts: Sequence[Verdict | None] = [_NOT_COMPARED if group else None for group in groups]
    if evidence is not None:
        verdicts = confirm(model, kernels, groups, evidence)
    return tuple(
        FusedKernel(
            kernel=kernel.name,
            op_type=kernel.op_type,
            domain=kernel.domain,
            calls=kernel.calls,
            role=_role(group, groups),
            nodes=group,
            verdict=verdict.word if verdict else "",
            why=verdict.why if verdict else service(kernel, evidence),
            named=by_name if by_name != group else None,
        )
        for kernel, group, by_name, verdict in zip(kernels, groups, named, verdicts, strict=True)
    )


def _node_rows(
    model: Model, rows: Sequence[FusedKernel], lost: Mapping[str, Fate]
) -> tuple[NodeFate, ...]:
    kernels_of: dict[str, list[FusedKernel]] = {}
    for row in rows:
        for key in row.nodes:
            kernels_of.setdefault(key, []).append(row)
    return tuple(
        NodeFate(
            node=node.key,
            op_type=node.op_type,
            domain=node.domain,
            module=node.module,
            fate=kernels_of[node.key][0].role if node.key in kernels_of else lost[node.key][0],
            kernels=tuple(row.kernel for row in kernels_of.get(node.key, [])),
            why="" if node.key in kernels_of else lost[node.key][1],
        )
        for node in model.nodes
    )


def _role(group: tuple[str, ...], groups: Sequence[tuple[str, ...]]) -> str:
    if not group:
        return OVERHEAD
    if len(group) > 1:
        return GROUP
    return ALONE if groups.count(group) == 1 else PART


_MOVES = frozenset(
    {"Cast", "Expand", "Flatten", "Pad", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Operators that only move data; a runtime may replace or drop them."""
_FOLDED = (FOLDED, "is the same in every run, so it is computed when the model is loaded")
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
    "DequantizeLinear": _TYPE,
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
    # one of each kind: a chain of one value has as many tuples as tensors, each of all of them
    shared = {id(names): names for names in evidence.equal.values()}.values() if evidence else ()
    entered = {kernel.scope for kernel in kernels} | {""}
    ran = {(key, k.op_type) for k, group in zip(kernels, groups, strict=True) for key in group}
    running = frozenset(key for group in groups for key in group)
    decided: dict[str, Fate] = {}
    for scope in model.scopes:
        nodes = [node for node in model.nodes if node.scope.path == scope.path]
        # a body may read the tensors around it
        same = set() if scope.path else constants(nodes) | fixed
        live = _live(model, scope, nodes)
        twins = _twins(nodes, () if scope.path else shared, running)
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
            elif node.op_type in UNCHANGING:
                decided[node.key] = _UNCHANGING
            elif node.key in twins:
                decided[node.key] = REMOVED, f"'{twins[node.key]}' computes the same values"
            else:
                decided[node.key] = _MOVED if node.op_type in _MOVES else _UNUSED
    return {node.key: decided[node.key] for node in model.nodes if node.key not in running}


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


def _twins(
    nodes: Sequence[Node], shared: Iterable[Sequence[str]], running: Set[str]
) -> dict[str, str]:
    """Returns for each node the first one that runs and computes the same, by key.

    It has the same operator, attributes and inputs, or gives the values of one tensor of the
    runtime: those of each are `shared`.
    """
    first: dict[str, str] = {}
    groups: dict[object, list[str]] = {}
    for node in nodes:
        attributes = sorted(a.SerializeToString(deterministic=True) for a in node.proto.attribute)
        inputs = tuple(first.get(name, name) for name in node.inputs)
        group = groups.setdefault((node.domain, node.op_type, inputs, tuple(attributes)), [])
        group.append(node.key)
        first.update({name: f"{group[0]}\n{i}" for i, name in enumerate(node.outputs)})
        if node.op_type in UNCHANGING:
            first[node.outputs[0]] = inputs[0]
    makers = {name: n.key for n in nodes for name in n.outputs if n.op_type not in _MOVES}
    of_values = ([makers[name] for name in names if name in makers] for names in shared)
    twins: dict[str, str] = {}
    for keys in (*groups.values(), *of_values):
        if (own := next((key for key in keys if key in running), None)) is not None:
            for key in keys:
                twins.setdefault(key, own)
    return twins
