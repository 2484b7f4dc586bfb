"""Whether the nodes that a kernel stands for compute what it computes, by the values at its ends.

A kernel is confirmed where every tensor it hands on has the values of one that its nodes make, and
every tensor it begins from those of one that they read, and nothing is left over on either side.
What lies between is then what the kernel does: the nodes of the model that lead from the ones to
the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analyzers.attribution import UNCHANGING, constants

if TYPE_CHECKING:
    from tracer.equality import Evidence
    from tracer.model import Model, Node
    from tracer.trace import Kernel

CONFIRMED = "confirmed"
TIED = "not distinguishable"
CONTRADICTED = "contradicted"
UNKNOWN = "not confirmed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What values say of the nodes of a kernel, and why it is not more."""

    word: str
    why: str = ""


def confirm(
    model: Model,
    kernels: Sequence[Kernel],
    groups: Sequence[tuple[str, ...]],
    evidence: Evidence,
) -> tuple[Verdict | None, ...]:
    """A verdict for each kernel; None for those of the runtime's own.

    Kernels that stand for the same nodes are judged together.
    """
    members: dict[tuple[str, ...], list[Kernel]] = {}
    for kernel, group in zip(kernels, groups, strict=True):
        members.setdefault(group, []).append(kernel)
    setting = _Setting.of(model, kernels, evidence)
    verdicts = {
        group: _judge(setting, _Unit.of(setting, parts, group))
        for group, parts in members.items()
        if group
    }
    return tuple(verdicts.get(group) for group in groups)


@dataclass(frozen=True, slots=True)
class _Setting:
    """The main graph of the model, and what is known of the values in it.

    `uses` counts the kernels that read each tensor of the runtime's graph; being an output of the
    graph is one more use.
    """

    evidence: Evidence
    nodes: dict[str, Node]
    makers: dict[str, str]
    idle: set[str]
    uses: Counter[str]

    @classmethod
    def of(cls, model: Model, kernels: Sequence[Kernel], evidence: Evidence) -> _Setting:
        """`idle` are the tensors of the model that a kernel need not read."""
        main = [node for node in model.nodes if not node.scope.path]
        uses = Counter(value.name for value in model.graph.output)
        for kernel in kernels:
            uses.update(set(kernel.inputs))
        return cls(
            evidence=evidence,
            nodes={node.key: node for node in model.nodes},
            makers={name: node.key for node in main for name in node.outputs if name},
            idle=constants(main, "") | evidence.fixed,
            uses=uses,
        )


@dataclass(frozen=True, slots=True)
class _Unit:
    """Kernels that stand for the same nodes: what they read and hand on, what the nodes read."""

    scope: str
    keys: frozenset[str]
    reads: tuple[str, ...]
    hands_on: tuple[str, ...]
    begins: tuple[str, ...]

    @classmethod
    def of(cls, setting: _Setting, parts: Sequence[Kernel], group: tuple[str, ...]) -> _Unit:
        made = dict.fromkeys(name for kernel in parts for name in kernel.outputs if name)
        read = Counter(name for kernel in parts for name in set(kernel.inputs))
        nodes = [setting.nodes[key] for key in group]
        inside = {name for node in nodes for name in node.outputs}
        begins = dict.fromkeys(name for node in nodes for name in node.inputs if name)
        return cls(
            scope=parts[0].scope,
            keys=frozenset(group),
            reads=tuple(n for n in read if n in setting.evidence.equal and n not in made),
            hands_on=tuple(n for n in made if setting.uses[n] > read[n]) or tuple(made),
            begins=tuple(n for n in begins if n not in inside and n not in setting.idle),
        )


def _judge(setting: _Setting, unit: _Unit) -> Verdict:
    if unit.scope:
        return Verdict(UNKNOWN, "inside a body, whose tensors onnxruntime does not hand out")
    faults = list(_results(setting, unit))
    if not setting.evidence.blank.keys() >= set(unit.hands_on):  # else there is nothing to see
        faults += _origins(setting, unit)
    for word in (CONTRADICTED, UNKNOWN, TIED):
        found = next((fault for fault in faults if fault.word == word), None)
        if found is not None:
            return found
    return Verdict(CONFIRMED)


def _results(setting: _Setting, unit: _Unit) -> Iterator[Verdict]:
    """What is wrong with the tensors that the kernels hand on."""
    for name in unit.hands_on:
        equal = setting.evidence.equal.get(name)
        if name in setting.evidence.blank:
            yield Verdict(TIED, f"its result '{name}' {setting.evidence.blank[name]}")
        elif not equal:
            yield Verdict(UNKNOWN, f"no tensor of the model has the values of its result '{name}'")
        elif not any(setting.makers.get(tensor) in unit.keys for tensor in equal):
            yield Verdict(CONTRADICTED, f"its result has the values of '{equal[0]}'")
        else:
            yield from _ties(setting, unit, equal)


def _origins(setting: _Setting, unit: _Unit) -> Iterator[Verdict]:
    """What is wrong with the tensors that the kernels begin from."""
    covered: set[str] = set()
    for name in unit.reads:
        equal = setting.evidence.equal[name]
        covered.update(equal)
        if name in setting.evidence.blank:
            continue
        if not equal:
            yield Verdict(UNKNOWN, f"no tensor of the model has the values of its input '{name}'")
        elif unit.begins and not set(equal) & set(unit.begins):
            yield Verdict(CONTRADICTED, f"it reads '{equal[0]}', its nodes do not")
        else:
            inside = [tensor for tensor in equal if setting.makers.get(tensor) in unit.keys]
            if inside:
                yield Verdict(TIED, f"'{inside[0]}' has the values of its input")
    for tensor in unit.begins:
        if tensor not in covered:
            yield Verdict(CONTRADICTED, f"its nodes read '{tensor}', it does not")


def _ties(setting: _Setting, unit: _Unit, equal: Sequence[str]) -> Iterator[Verdict]:
    """Nodes of the unit that leave the values as they are, so that they may be in it or not."""
    inside = [tensor for tensor in equal if setting.makers.get(tensor) in unit.keys]
    for tensor in inside[1:]:
        if setting.nodes[setting.makers[tensor]].op_type not in UNCHANGING:
            yield Verdict(TIED, f"'{tensor}' and '{inside[0]}' have the same values")
