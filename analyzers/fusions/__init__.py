"""Map the kernels of a runtime to the nodes of a model, and say what happened to other nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tracer.analyzers.attribution import attribute
from tracer.analyzers.fusions.confirmation import UNKNOWN, Verdict, confirm
from tracer.analyzers.fusions.fates import UNREAD, Fate, fates, service
from tracer.graph.model import Model
from tracer.records.environment import Environment
from tracer.records.model_info import ModelInfo
from tracer.records.result import Result
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Kernel

ALONE, GROUP, PART, OVERHEAD = "alone", "group", "part", "overhead"
"""Roles of a kernel: it runs one node, a group of nodes, part of a node, or none (overhead)."""


_NOT_COMPARED = Verdict(UNKNOWN, "values were not compared")


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """A kernel and the keys of the nodes that it runs.

    `verdict` is a word of `confirmation`, with the reason in `why`. For overhead, `verdict` is ''
    and `why` says what the kernel does. `named` has the nodes that names suggest, if values
    disagree with names.
    """

    kernel: str
    op_type: str
    domain: str
    calls: float
    role: str
    nodes: tuple[str, ...]
    verdict: str
    why: str
    named: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class NodeFate:
    """A node of the model; `fate` is the role of its kernels, or a fate of `fates`."""

    node: str
    op_type: str
    domain: str
    module: str | None
    fate: str
    kernels: tuple[str, ...]
    why: str


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
        return f"{self.model.name}, {len(self.nodes)} nodes in {len(self.kernels)} kernels"


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
        rows, lost = _of_own_nodes(model, rows), _own_fates(model, lost)
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


def _of_own_nodes(model: Model, rows: Sequence[FusedKernel]) -> tuple[FusedKernel, ...]:
    """Returns `rows` with the nodes of `model` that the nodes of its stand-in are parts of."""
    groups = [model.own_nodes(row.nodes) for row in rows]
    return tuple(
        replace(
            row,
            nodes=group,
            role=_role(group, groups),
            named=None if row.named is None else model.own_nodes(row.named),
        )
        for row, group in zip(rows, groups, strict=True)
    )


def _own_fates(model: Model, lost: Mapping[str, Fate]) -> Mapping[str, Fate]:
    """Returns the fates of the nodes of `model`, of those of its stand-in that none runs.

    That of the node itself goes before those of its other parts.
    """
    own = {own: fate for key, fate in lost.items() for own in model.own_nodes([key])}
    itself = {key: fate for key, fate in lost.items() if key in own}
    return dict.fromkeys((node.key for node in model.nodes), UNREAD) | own | itself


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
