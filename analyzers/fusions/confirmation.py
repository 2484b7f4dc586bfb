"""Check the nodes of a kernel by the values of its inputs and outputs.

A kernel is confirmed if each of its outputs has the values of a tensor that its nodes compute, each
of its inputs has the values of a tensor that they read, and no tensor is left over on either side.
The kernel then computes the nodes of the model between these tensors.

A runtime moves data movements across other nodes: it transposes before a Sqrt instead of behind it.
The tensor between the two kernels then exists in no model, so values cannot judge one kernel alone.
They judge the region of both. Inside it, names and operators tell which kernel is which node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from tracer.analyzers.attribution import UNCHANGING, constants, needs, same_operator
from tracer.graph.model import Model, Node
from tracer.graph.operators import CONVERSIONS
from tracer.records.tensor_match import DisjointSets, Evidence
from tracer.records.trace import Kernel

CONFIRMED = "confirmed"
WRONG = "fused wrongly"
TIED = "not distinguishable"
CONTRADICTED = "contradicted"
UNKNOWN = "not confirmed"
_SHAPING = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})
"""Operators whose result has the values of their input in the same order."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether values confirm the nodes of a kernel, and if not, why."""

    word: str
    why: str = ""


def confirm(
    model: Model, kernels: Sequence[Kernel], groups: Sequence[Group], evidence: Evidence
) -> tuple[Verdict | None, ...]:
    """Returns a verdict for each kernel, None for kernels without nodes.

    Kernels of the same nodes are judged together, and so are those of a region (`regions`).
    """
    places: dict[str, list[int]] = defaultdict(list)
    for position, kernel in enumerate(kernels):
        places[kernel.scope].append(position)
    verdicts: list[Verdict | None] = [None] * len(kernels)
    for path, positions in places.items():
        known = evidence.bodies.get(path) if path else evidence
        own = [kernels[position] for position in positions]
        of_own = [groups[position] for position in positions]
        graph = None if known is None else _Graph.of(model, path, own, of_own, known)
        judged: list[tuple[Verdict, Sequence[int]]]
        if graph is None:
            judged = [(Verdict(UNKNOWN, "inside a body that cannot run alone"), range(len(own)))]
        else:
            judged = [
                (_judge(graph, own, of_own, region), region)
                for region in regions(own, of_own, graph.nodes, graph.makers, graph.evidence)
            ]
        for verdict, region in judged:
            for place in region:
                verdicts[positions[place]] = verdict if of_own[place] else None
    return tuple(verdicts)


def doubted(
    model: Model, kernels: Sequence[Kernel], groups: Sequence[Group], evidence: Evidence
) -> tuple[str, ...]:
    """Returns a note on the groups of several nodes that values do not confirm, if any."""
    verdicts = confirm(model, kernels, groups, evidence)
    judged = {g: v for g, v in zip(groups, verdicts, strict=True) if v is not None and len(g) > 1}
    unsure = sum(verdict.word != CONFIRMED for verdict in judged.values())
    if not unsure:
        return ()
    return (
        f"{unsure} of {len(judged)} groups of fused nodes are not confirmed by values: "
        "tracer fusions shows why",
    )


@dataclass(frozen=True, slots=True)
class _Graph:
    """A graph of the model, and the evidence on its values.

    `uses` counts the kernels that read each tensor of the runtime's graph, plus 1 for an output of
    the graph. `readers` counts the nodes that read each tensor of the model. `idle` tensors need
    not be read by a kernel. `held` are the nodes that a kernel has, by key. `culprits` are results
    of kernels that make outputs wrong.
    """

    evidence: Evidence
    nodes: dict[str, Node]
    makers: dict[str, str]
    idle: set[str]
    uses: Counter[str]
    readers: Counter[str]
    held: frozenset[str]
    culprits: frozenset[str]

    @classmethod
    def of(
        cls, model: Model, path: str, kernels: Sequence[Kernel], groups: Sequence[Group],
        evidence: Evidence,
    ) -> _Graph:  # fmt: skip
        """Indexes the graph at `path` of the model, and its kernels."""
        scope = next(scope for scope in model.scopes if scope.path == path)
        constant: set[str] = set()
        for each in reversed(list(scope.outward())):
            nodes = [node for node in model.nodes if node.scope.path == each.path]
            constant = constants(nodes, constant)
        uses = Counter(value.name for value in scope.graph.output)
        for kernel in kernels:
            uses.update(set(kernel.inputs))
        return cls(
            evidence=evidence,
            nodes={node.key: node for node in model.nodes},
            makers={name: node.key for node in nodes for name in node.outputs if name},
            idle=constant | evidence.constant | evidence.not_numeric,
            uses=uses,
            readers=Counter(name for node in nodes for name in set(node.inputs)),
            held=frozenset(key for group in groups for key in group),
            culprits=_first_wrong(kernels, evidence, {name for n in nodes for name in n.outputs}),
        )

    def shows(self, name: str) -> bool:
        """Returns whether the values of a tensor of the runtime's graph can contradict."""
        unclear = name in self.evidence.uninformative or name in self.evidence.reordered
        equal = self.evidence.equal.get(name, ())
        return not unclear and not self.idle.issuperset(equal)

    def against(self, name: str, why: str) -> Verdict:
        """Returns a contradiction, or a tie if the values are only equal in another order."""
        if name in self.evidence.reordered:
            return Verdict(TIED, f"{why}, in another order")
        return Verdict(CONTRADICTED, why)

    def before(self, tensor: str) -> list[str]:
        """Returns the tensors that a kernel must read to compute `tensor`."""
        return [n for n in needs(self.nodes[self.makers[tensor]]) if n not in self.idle]


def _first_wrong(kernels: Sequence[Kernel], evidence: Evidence, names: Set[str]) -> frozenset[str]:
    """Returns the results of kernels that read tensors of the model, and make its outputs wrong.

    A tensor that has one of the `names` of the model has its values.
    """
    makers = {name: kernel for kernel in kernels for name in kernel.outputs}
    found, visited, waiting = set[str](), set(evidence.wrong), [*evidence.wrong]
    while waiting:
        name = waiting.pop()
        inputs = makers[name].inputs if name in makers else ()
        read = {n: evidence.equal[n] for n in inputs if n in evidence.equal}
        strange = {n for n, equal in read.items() if not equal or (n in names and n not in equal)}
        if not strange:
            found.add(name)
        waiting += strange - visited
        visited |= strange
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Unit:
    """Kernels of the same nodes.

    `reads` and `returns` are inputs and outputs of the kernels. `begins` are the inputs of the
    nodes that a kernel must read, `inputs` all tensors that the nodes read.
    """

    keys: frozenset[str]
    reads: tuple[str, ...]
    returns: tuple[str, ...]
    begins: tuple[str, ...]
    inputs: frozenset[str]

    @classmethod
    def of(cls, graph: _Graph, parts: Sequence[Kernel], group: Group) -> _Unit:
        outputs = dict.fromkeys(name for kernel in parts for name in kernel.outputs if name)
        read = Counter(name for kernel in parts for name in dict.fromkeys(kernel.inputs))
        nodes = [graph.nodes[key] for key in group]
        reads = tuple(n for n in read if n in graph.evidence.equal and n not in outputs)
        return cls(
            keys=frozenset(group),
            reads=reads,
            returns=tuple(n for n in outputs if graph.uses[n] > read[n]) or tuple(outputs),
            begins=_begins(graph, nodes, reads),
            inputs=frozenset(name for node in nodes for name in node.inputs),
        )


def _begins(graph: _Graph, nodes: Sequence[Node], reads: Sequence[str]) -> tuple[str, ...]:
    """Returns the tensors from outside that `nodes` need.

    Each kernel may compute a tensor that several nodes read, such as a dequantised tensor, again,
    and a part of a Split is made by no kernel of its own. If such a tensor is not among `reads`,
    the kernel needs the inputs of its maker instead.
    """
    covered = {tensor for name in reads for tensor in graph.evidence.equal[name]}
    inside = {name for node in nodes for name in node.outputs}
    stack = [n for node in nodes for n in needs(node) if n not in graph.idle]
    begins: dict[str, None] = {}
    while stack:
        tensor = stack.pop()
        if tensor in inside or tensor in begins:
            continue
        maker = None if tensor in covered else graph.makers.get(tensor)
        if maker is not None and (graph.readers[tensor] > 1 or maker not in graph.held):
            stack += graph.before(tensor)
        else:
            begins[tensor] = None
    return tuple(begins)


def _judge(
    graph: _Graph, kernels: Sequence[Kernel], groups: Sequence[Group], region: Sequence[int]
) -> Verdict:
    """Returns the verdict on the kernels of a region, the worst of its faults."""
    keys = dict.fromkeys(key for position in region for key in groups[position])
    unit = _Unit.of(graph, [kernels[position] for position in region], tuple(keys))
    if len(region) == 1 and _is_shaped_elsewhere(graph, unit):
        return Verdict(CONFIRMED)
    faults = list(_results(graph, unit))
    if not graph.evidence.uninformative.keys() >= set(unit.returns):
        faults += _origins(graph, unit)
    for word in (WRONG, CONTRADICTED, UNKNOWN, TIED):
        worst = next((fault for fault in faults if fault.word == word), None)
        if worst is not None:
            return worst
    return Verdict(CONFIRMED)


def _is_shaped_elsewhere(graph: _Graph, unit: _Unit) -> bool:
    """Whether one node shapes a tensor behind the conversion that reads it, or is this conversion.

    A runtime quantises first, so that fewer bytes are moved.
    """
    if len(unit.keys) != 1:
        return False
    node = graph.nodes[next(iter(unit.keys))]
    read, returned = (
        {tensor for name in names for tensor in graph.evidence.equal.get(name, ())}
        for names in (unit.reads, unit.returns)
    )
    if node.op_type in _SHAPING:
        makers = [graph.nodes[graph.makers[t]] for t in read & returned if t in graph.makers]
        return any(m.op_type in CONVERSIONS and m.inputs[0] in node.outputs for m in makers)
    before = graph.nodes.get(graph.makers.get(node.inputs[0], "")) if node.inputs else None
    is_after = before is not None and before.op_type in _SHAPING and before.inputs[0] in read
    return is_after and node.op_type in CONVERSIONS and not returned.isdisjoint(node.outputs)


def _results(graph: _Graph, unit: _Unit) -> Iterator[Verdict]:
    ends: set[str] = set()
    for name in unit.returns:
        equal = graph.evidence.equal.get(name, ())
        ends.update(equal)
        if name in graph.culprits and len(unit.keys) > 1:
            yield Verdict(WRONG, "without optimisation, the outputs of the model are others")
        elif name in graph.evidence.uninformative:
            yield Verdict(TIED, f"its result '{name}' {graph.evidence.uninformative[name]}")
        elif name not in graph.evidence.equal:
            yield Verdict(UNKNOWN, f"its result '{name}' holds nothing to compare")
        elif not equal:
            yield Verdict(UNKNOWN, f"no tensor of the model has the values of its result '{name}'")
        elif not any(graph.makers.get(tensor) in unit.keys for tensor in equal):
            nodes = [graph.nodes[key] for key in unit.keys]
            keeps = all(node.op_type in UNCHANGING | {"Cast"} for node in nodes)
            if keeps and not unit.inputs.isdisjoint(equal):  # in floats that tell more digits
                ends.update(output for node in nodes for output in node.outputs)
                continue
            yield graph.against(name, f"its result has the values of '{equal[0]}'")
        else:  # nodes that do not change values may or may not be in the kernel
            inside = [tensor for tensor in equal if graph.makers.get(tensor) in unit.keys]
            for tensor in inside[1:]:
                if graph.nodes[graph.makers[tensor]].op_type not in UNCHANGING:
                    yield Verdict(TIED, f"'{tensor}' and '{inside[0]}' have the same values")
    if all(map(graph.shows, unit.returns)):
        for stray in sorted(unit.keys - _leading(graph, unit, ends)):
            yield Verdict(CONTRADICTED, f"its result does not depend on '{stray}'")


def _leading(graph: _Graph, unit: _Unit, ends: Iterable[str]) -> set[str]:
    """Returns the nodes of a unit that the tensors `ends` depend on."""
    leading: set[str] = set()
    seen: set[str] = set()
    stack = list(ends)
    while stack:
        key = graph.makers.get(stack.pop(), "")
        if key in seen or not key:
            continue
        seen.add(key)
        if key in unit.keys:
            leading.add(key)
        if key in unit.keys or graph.nodes[key].op_type in UNCHANGING:
            stack += graph.nodes[key].inputs
    return leading


def _origins(graph: _Graph, unit: _Unit) -> Iterator[Verdict]:
    covered: set[str] = set()
    for name in unit.reads:
        equal = graph.evidence.equal[name]
        covered.update(equal)
        if name in graph.evidence.uninformative:
            continue
        if not equal:
            yield Verdict(UNKNOWN, f"no tensor of the model has the values of its input '{name}'")
        elif graph.idle.issuperset(equal):  # what depends on no input may be computed anywhere
            continue
        elif unit.begins and unit.inputs.isdisjoint(equal) and not set(equal) & set(unit.begins):
            yield graph.against(name, f"it reads '{equal[0]}', but its nodes do not")
        else:
            inside = [tensor for tensor in equal if graph.makers.get(tensor) in unit.keys]
            if inside:
                yield Verdict(TIED, f"'{inside[0]}' has the values of its input")
    word = CONTRADICTED if unit.reads and all(map(graph.shows, unit.reads)) else TIED
    for tensor in unit.begins:
        if tensor not in covered:
            yield Verdict(word, f"its nodes read '{tensor}', but it does not")


Group = tuple[str, ...]
"""Keys of the nodes of a kernel."""


def regions(
    kernels: Sequence[Kernel],
    groups: Sequence[Group],
    nodes: Mapping[str, Node],
    makers: Mapping[str, str],
    evidence: Evidence,
) -> tuple[tuple[int, ...], ...]:
    """Returns the positions of the kernels of each region, in their order.

    `nodes` are by key, `makers` has the key of the node that computes each tensor of the model.
    """
    region = _Regions(groups)
    first: dict[Group, int] = {}
    readers: dict[str, list[int]] = defaultdict(list)
    for position, (kernel, group) in enumerate(zip(kernels, groups, strict=True)):
        if group:
            region.join(first.setdefault(group, position), position)
        if not evidence.uninformative.keys() >= set(kernel.outputs):
            for name in kernel.inputs:
                readers[name].append(position)
    for position, (kernel, group) in enumerate(zip(kernels, groups, strict=True)):
        is_conversion = kernel.node is None and kernel.op_type in CONVERSIONS and len(group) == 1
        if same_operator(kernel, nodes[group[0]]) if is_conversion else kernel.node in group:
            for name in kernel.outputs:
                is_unnamed = name in evidence.equal and name not in makers
                if not is_unnamed or name in evidence.uninformative:
                    continue
                computed = {makers.get(tensor) for tensor in evidence.equal[name]}
                is_strange = name in evidence.reordered
                is_strange |= region.keys(position).isdisjoint(computed)
                for reader in readers[name]:
                    if is_strange or (kernels[reader].op_type == "Transpose" and groups[reader]):
                        region.join(position, reader)
    return tuple(map(tuple, region.all()))


class _Regions(DisjointSets[int]):
    """Positions of kernels, and the nodes of each set."""

    def __init__(self, groups: Sequence[Group]) -> None:
        super().__init__()
        self._keys = [set(group) for group in groups]
        for position in range(len(groups)):
            self.add(position)

    def join(self, one: int, other: int) -> None:
        """Makes one region of the regions of two kernels."""
        below, above = self.top(one), self.top(other)
        if below != above:
            super().join(below, above)
            self._keys[above] |= self._keys[below]

    def keys(self, position: int) -> Set[str]:
        """Returns the nodes of the region of a kernel."""
        return self._keys[self.top(position)]
