"""Whether the nodes that a kernel stands for compute what it computes, by the values at its ends.

A kernel is confirmed where every tensor it hands on has the values of one that its nodes make, and
every tensor it begins from those of one that they read, and nothing is left over on either side.
What lies between is then what the kernel does: the nodes of the model that lead from the ones to
the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from analyzers.dependence import UNCHANGING, constants, needs
from tracer.graph.model import Model, Node
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Kernel

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


def doubted(
    model: Model,
    kernels: Sequence[Kernel],
    groups: Sequence[tuple[str, ...]],
    evidence: Evidence,
) -> tuple[str, ...]:
    """A note on groups of several nodes that values do not confirm, where there are any."""
    verdicts = confirm(model, kernels, groups, evidence)
    judged = {g: v for g, v in zip(groups, verdicts, strict=True) if v is not None and len(g) > 1}
    unsure = sum(verdict.word != CONFIRMED for verdict in judged.values())
    if not unsure:
        return ()
    return (
        f"{unsure} of {len(judged)} groups of fused nodes are not confirmed by values: "
        "tracer fusions tells why",
    )


@dataclass(frozen=True, slots=True)
class _Setting:
    """The main graph of the model, and what is known of the values in it.

    `uses` counts the kernels that read each tensor of the runtime's graph, being an output of which
    is one more use; `readers` the nodes that read each tensor of the model. A kernel need not read
    what is `idle`.
    """

    evidence: Evidence
    nodes: dict[str, Node]
    makers: dict[str, str]
    idle: set[str]
    uses: Counter[str]
    readers: Counter[str]

    @classmethod
    def of(cls, model: Model, kernels: Sequence[Kernel], evidence: Evidence) -> _Setting:
        """Index the model and what ran of it."""
        main = [node for node in model.nodes if not node.scope.path]
        uses = Counter(value.name for value in model.graph.output)
        for kernel in kernels:
            uses.update(set(kernel.inputs))
        return cls(
            evidence=evidence,
            nodes={node.key: node for node in model.nodes},
            makers={name: node.key for node in main for name in node.outputs if name},
            idle=constants(main, "") | evidence.constant | evidence.not_numeric,
            uses=uses,
            readers=Counter(name for node in main for name in set(node.inputs)),
        )

    def shows(self, name: str) -> bool:
        """Whether the values of a tensor of the runtime's graph are evidence against something."""
        vague = name in self.evidence.uninformative or name in self.evidence.reordered
        return not vague and bool(self.evidence.equal.get(name))

    def against(self, name: str, why: str) -> Verdict:
        """A contradiction; values that are equal in another order alone do not make one."""
        if name in self.evidence.reordered:
            return Verdict(TIED, f"{why}, in another order")
        return Verdict(CONTRADICTED, why)

    def before(self, tensor: str) -> list[str]:
        """What the node that makes a tensor reads, as far as a kernel has to."""
        return [n for n in needs(self.nodes[self.makers[tensor]]) if n not in self.idle]


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
        outputs = dict.fromkeys(name for kernel in parts for name in kernel.outputs if name)
        read = Counter(name for kernel in parts for name in set(kernel.inputs))
        nodes = [setting.nodes[key] for key in group]
        reads = tuple(n for n in read if n in setting.evidence.equal and n not in outputs)
        return cls(
            scope=parts[0].scope,
            keys=frozenset(group),
            reads=reads,
            hands_on=tuple(n for n in outputs if setting.uses[n] > read[n]) or tuple(outputs),
            begins=_begins(setting, nodes, reads),
        )


def _begins(setting: _Setting, nodes: Sequence[Node], reads: Sequence[str]) -> tuple[str, ...]:
    """The tensors from outside that `nodes` need.

    One that several nodes read may be made in each of their kernels, as dequantised ones are: where
    it is not among the values that are read, what it is made of is needed in its place.
    """
    covered = {tensor for name in reads for tensor in setting.evidence.equal[name]}
    inside = {name for node in nodes for name in node.outputs}
    stack = [n for node in nodes for n in needs(node) if n not in setting.idle]
    begins: dict[str, None] = {}
    while stack:
        tensor = stack.pop()
        if tensor in inside or tensor in begins:
            continue
        again = tensor not in covered and setting.readers[tensor] > 1 and tensor in setting.makers
        if again:
            stack += setting.before(tensor)
        else:
            begins[tensor] = None
    return tuple(begins)


def _judge(setting: _Setting, unit: _Unit) -> Verdict:
    if unit.scope:
        return Verdict(UNKNOWN, "inside a body, whose tensors onnxruntime does not hand out")
    faults = list(_results(setting, unit))
    if not setting.evidence.uninformative.keys() >= set(
        unit.hands_on
    ):  # else there is nothing to see
        faults += _origins(setting, unit)
    for word in (CONTRADICTED, UNKNOWN, TIED):
        worst = next((fault for fault in faults if fault.word == word), None)
        if worst is not None:
            return worst
    return Verdict(CONFIRMED)


def _results(setting: _Setting, unit: _Unit) -> Iterator[Verdict]:
    """What is wrong with the tensors that the kernels hand on."""
    ends: set[str] = set()
    for name in unit.hands_on:
        equal = setting.evidence.equal.get(name, ())
        ends.update(equal)
        if name in setting.evidence.uninformative:
            yield Verdict(TIED, f"its result '{name}' {setting.evidence.uninformative[name]}")
        elif name not in setting.evidence.equal:
            yield Verdict(UNKNOWN, f"its result '{name}' is no tensor of numbers")
        elif not equal:
            yield Verdict(UNKNOWN, f"no tensor of the model has the values of its result '{name}'")
        elif not any(setting.makers.get(tensor) in unit.keys for tensor in equal):
            yield setting.against(name, f"its result has the values of '{equal[0]}'")
        else:
            yield from _ties(setting, unit, equal)
    sure = all(map(setting.shows, unit.hands_on))
    for stray in sorted(unit.keys - _leading(setting, unit, ends)) if sure else ():
        yield Verdict(CONTRADICTED, f"'{stray}' does not lead to its result")


def _leading(setting: _Setting, unit: _Unit, ends: Iterable[str]) -> set[str]:
    """The nodes of a unit that the tensors `ends` depend on."""
    leading: set[str] = set()
    stack = list(ends)
    while stack:
        key = setting.makers.get(stack.pop())
        if key in unit.keys and key not in leading:
            leading.add(key)
            stack += setting.nodes[key].inputs
    return leading


def _origins(setting: _Setting, unit: _Unit) -> Iterator[Verdict]:
    """What is wrong with the tensors that the kernels begin from."""
    covered: set[str] = set()
    for name in unit.reads:
        equal = setting.evidence.equal[name]
        covered.update(equal)
        if name in setting.evidence.uninformative:
            continue
        if not equal:
            yield Verdict(UNKNOWN, f"no tensor of the model has the values of its input '{name}'")
        elif unit.begins and not set(equal) & set(unit.begins):
            yield setting.against(name, f"it reads '{equal[0]}', its nodes do not")
        else:
            inside = [tensor for tensor in equal if setting.makers.get(tensor) in unit.keys]
            if inside:
                yield Verdict(TIED, f"'{inside[0]}' has the values of its input")
    word = CONTRADICTED if unit.reads and all(map(setting.shows, unit.reads)) else TIED
    for tensor in unit.begins:
        if tensor not in covered:
            yield Verdict(word, f"its nodes read '{tensor}', it does not")


def _ties(setting: _Setting, unit: _Unit, equal: Sequence[str]) -> Iterator[Verdict]:
    """Nodes of the unit that leave the values as they are, so that they may be in it or not."""
    inside = [tensor for tensor in equal if setting.makers.get(tensor) in unit.keys]
    for tensor in inside[1:]:
        if setting.nodes[setting.makers[tensor]].op_type not in UNCHANGING:
            yield Verdict(TIED, f"'{tensor}' and '{inside[0]}' have the same values")
