"""The first node whose bits differ between two runs of a network, and the cause, proven.

A cause is a fact in which the kernels of the two sides differ. It is proven by the replay of the
first side: switched in this fact alone, and fed the same inputs, it has the bits of the other side.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, islice
from typing import Any

import numpy as np
import onnx

from tracer.arithmetic import runs, switches
from tracer.arithmetic.fingerprint import digest
from tracer.arithmetic.replays import nchwc
from tracer.arithmetic.rule import Facts, NotKnown, Rule, are_equal
from tracer.executors.onnxruntime import kernel_nodes
from tracer.graph.model import Model
from tracer.interpreter.compiled_code import UnfitError
from tracer.records.bits import FirstDifference

GRAPH = "graph"
FUSION, LAYOUT, OPERATOR = "fusion", "layout of channels", "another operator"
"""Causes by which kernels have other facts, as a fused kernel has those of what it ends with."""
_ATTRIBUTES = {"approximate": "another polynomial"}
"""Causes by attribute; others have their name in the cause."""
_REORDERINGS = ("ReorderInput", "ReorderOutput")
_SUFFIX = "_nchwc"
_MOST_TRIES = 100
"""Sets of facts that are switched together, the smallest first."""
_KINDS = {"FusedConv": "Conv", "FusedGemm": "Gemm", "FusedMatMul": "MatMul"}
Nodes = Sequence[onnx.NodeProto]


@dataclass(frozen=True)
class Side:
    """One run of a network: its graph, the rules of its kernels, and the values of all tensors.

    `block` channels lie side by side in tensors of kernels for blocks of channels.
    """

    model: Model
    graph: runs.SavedGraph
    rule_of: runs.RuleOf = field(repr=False)
    values: Mapping[str, Any] = field(repr=False)
    block: int

    @cached_property
    def names(self) -> dict[str, str]:
        """The names, in the model, of tensors in blocks of channels, by their own names."""
        names: dict[str, str] = {}
        outputs = {node.key: node.outputs[0] for node in self.model.nodes}
        for node in self.graph.nodes:
            if node.op_type == "ReorderOutput":
                continue
            if node.domain == nchwc.DOMAIN:  # named after the tensor
                names[node.output[0]] = node.name.removesuffix(_SUFFIX)
            elif any(name in names for name in node.input):
                key = kernel_nodes.original(self.model, node.name)
                names[node.output[0]] = outputs.get(key, node.output[0])
        return names

    def key(self, node: onnx.NodeProto, tensor: str) -> str:
        """Returns the name that a node which computes a tensor has in the model."""
        name = self.name(tensor)
        found = (own.key for own in self.model.nodes if name in own.outputs)
        return next(found, None) or kernel_nodes.named_node(self.model, node.name) or name

    def name(self, tensor: str) -> str:
        """Returns the name that a tensor has without blocks of channels."""
        return self.names.get(tensor, tensor)

    def value(self, tensor: str, values: Mapping[str, Any] | None = None) -> Any:
        """Returns the value of a tensor, without blocks of channels."""
        value = (self.values if values is None else values)[tensor]
        in_blocks = tensor in self.names and value.ndim > 2 and value.shape[1] % self.block == 0
        return nchwc.from_blocks(value, self.block) if in_blocks else value


def overlap(x: Any, y: Any, batches: bool, padded: bool) -> tuple[Any, Any]:
    """Returns two values as far as both sides have them; None each where they are not alike.

    With `padded`, one has further channels of zeros; of two `batches` the smaller one is compared.
    """
    are_tensors = isinstance(x, np.ndarray) and isinstance(y, np.ndarray)
    if not are_tensors or x.dtype != y.dtype or x.ndim != y.ndim:
        return None, None
    free = {0} if batches else set()
    free |= {1} if padded else set()
    if {axis for axis in range(x.ndim) if x.shape[axis] != y.shape[axis]} - free:
        return None, None
    part = tuple(map(slice, map(min, x.shape, y.shape)))
    return x[part], y[part]


def first_difference(
    first: Side, second: Side, context: str = "", batches: bool = False
) -> tuple[FirstDifference | None, int]:
    """Returns the first node whose bits differ, and how many nodes both sides have.

    `context` is the one setting in which the sides differ, as the cause that it is.
    """
    others = {
        second.name(name): name for node in second.graph.nodes for name in node.output if name
    }
    equal = set(first.values) - {name for node in first.graph.nodes for name in node.output}
    count = 0
    found: FirstDifference | None = None
    for place, node in enumerate(first.graph.nodes):
        for tensor in node.output:
            name = first.name(tensor)
            if not tensor or name not in others:
                continue
            other = others[name]
            padded = tensor in first.names or other in second.names
            x, y = overlap(first.value(tensor), second.value(other), batches, padded)
            if x is None:
                continue
            count += 1
            same = are_equal(x, y)
            if same.all():
                equal.add(name)
            elif found is None:
                region = _Region(first, second, (tensor, other), equal, batches)
                causes, together, reason = region.explain(context)
                found = FirstDifference(
                    first.key(node, tensor), node.op_type, place,
                    int(same.sum()), same.size, runs.ulps(x, y), causes, together, reason,
                    region.text(0), region.text(1),
                )  # fmt: skip
    return found, count


class _Region:
    """The nodes between tensors that are equal and one that differs, on both sides."""

    def __init__(
        self, first: Side, second: Side, tensors: tuple[str, str], equal: Set[str], batches: bool
    ) -> None:
        self._first, self._second, self._batches = first, second, batches
        self._tensors = tensors
        self._nodes = [
            _nodes_between(side, tensor, equal)
            for side, tensor in zip((first, second), tensors, strict=True)
        ]
        self._rules = [
            [_rule(side, node) for node in nodes]
            for side, nodes in zip((first, second), self._nodes, strict=True)
        ]
        self._graph_cause = self._find_graph_cause()

    def text(self, at: int) -> str:
        """Returns the nodes of the first side (0) or the second (1), with their rules."""
        pairs = zip(self._nodes[at], self._rules[at], strict=True)
        told = (f"{node.op_type}: {getattr(rule, 'text', rule)}" for node, rule in pairs)
        return "; ".join(dict.fromkeys(told))

    def explain(self, context: str) -> tuple[tuple[str, ...], bool, str]:
        """Returns the causes, whether only several facts together are one, or why none is known.

        The bits agree once these facts are switched, and no fewer.
        """
        tensor, other = self._tensors
        own, target = self._first.value(tensor), self._second.value(other)
        padded = tensor in self._first.names or other in self._second.names
        found = {GRAPH: self._graph_cause} if self._graph_cause else {}
        for place, other_place in self._pairs():  # what can be switched alone, and its cause
            rule, there = self._rules[0][place], self._rules[1][other_place]
            if isinstance(rule, Rule) and isinstance(there, Rule):
                facts = self._fitted(rule.facts, there.facts)
                found |= switches.differences(facts, there.facts)

        def matches(names: Set[str], expected: Any) -> bool:
            try:
                value = self._compute(names)
            except (NotKnown, UnfitError, LookupError, ValueError):
                return False  # these facts do not go together
            x, y = overlap(value, expected, self._batches, padded)
            return x is not None and bool(are_equal(x, y).all())

        unknown = [rule for rules in self._rules for rule in rules if isinstance(rule, str)]
        if not matches(set(), own):
            reason = f"the rule is not known: {unknown[0]}" if unknown else "the replay differs"
            return (), False, reason
        sizes = range(1, len(found) + 1)
        tries = (frozenset(each) for size in sizes for each in combinations(found, size))
        for names in islice(tries, _MOST_TRIES):
            if matches(names, target):
                causes = tuple(dict.fromkeys(found[name] for name in found if name in names))
                in_context = context and GRAPH not in names
                told = (context, *causes) if in_context else causes
                return told, len(names) > 1, ""
        if unknown:
            return (), False, f"the rule is not known: {unknown[0]}"
        return (), False, "no fact that differs explains it"

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Yields positions of nodes of both sides that compute the same kind of operator."""
        places: dict[str, list[int]] = defaultdict(list)
        for place, node in enumerate(self._nodes[1]):
            places[_kind(node)].append(place)
        for place, node in enumerate(self._nodes[0]):
            if places[_kind(node)]:
                yield place, places[_kind(node)].pop(0)

    def _fitted(self, mine: Facts, theirs: Facts) -> Facts:
        """Returns facts as they are for a kernel of the second graph."""
        is_other = self._graph_cause in (FUSION, LAYOUT, OPERATOR)
        return switches.adapt(mine, theirs) if is_other else mine

    def _find_graph_cause(self) -> str:
        """Returns in what the graphs differ between the tensors; "" for equal ones."""
        own, other = (
            Counter(_parts(node) for node in nodes if node.op_type not in _REORDERINGS)
            for nodes in self._nodes
        )
        if own != other:
            is_one = (own - other).total() == (other - own).total() == 1
            return OPERATOR if is_one else FUSION
        kinds = [Counter((n.domain, n.op_type) for n in nodes) for nodes in self._nodes]
        if kinds[0] != kinds[1]:
            return LAYOUT
        are_blocks = any(node.domain == nchwc.DOMAIN for node in self._nodes[0])
        if self._first.block != self._second.block and are_blocks:
            return ""
        stored = [
            sorted(digest(side.graph.constants[name]) for node in nodes for name in node.input
                   if name in side.graph.constants)
            for side, nodes in zip((self._first, self._second), self._nodes, strict=True)
        ]  # fmt: skip
        causes = dict.fromkeys(["stored values"] * (stored[0] != stored[1]))
        for place, there in self._pairs():
            before, after = (
                {a.name: a.SerializeToString(deterministic=True) for a in node.attribute}
                for node in (self._nodes[0][place], self._nodes[1][there])
            )
            names = sorted(before.keys() | after.keys())
            changed = [name for name in names if before.get(name) != after.get(name)]
            causes |= dict.fromkeys(_ATTRIBUTES.get(n, f"the attribute {n}") for n in changed)
        return " and ".join(causes)

    def _compute(self, names: Set[str]) -> Any:
        """Returns the tensor by the replay of the first side, switched in these facts."""
        at = int(GRAPH in names)
        side, tensor = (self._first, self._second)[at], self._tensors[at]
        partner = {pair[at]: pair[1 - at] for pair in self._pairs()}
        values = dict(side.values)
        for place, node in enumerate(self._nodes[at]):
            rule = self._rules[at][place]
            kernel = side.graph.kernel(node, values)
            if isinstance(rule, Rule) and place in partner:
                other = self._rules[1 - at][partner[place]]
                if isinstance(other, Rule) and at == 0:
                    rule = Rule(rule.text, _switched(rule.facts, other.facts, names))
                elif isinstance(other, Rule):  # the first side's way to compute what is fused
                    own = self._fitted(other.facts, rule.facts)
                    rule = Rule(rule.text, _switched(own, rule.facts, names))
            known = rule if isinstance(rule, Rule) else None
            outputs = runs.replay(kernel, known, {name: values[name] for name in kernel.inputs})
            values.update(zip([name for name in node.output if name], outputs, strict=True))
        return side.value(tensor, values)


def _nodes_between(side: Side, tensor: str, equal: Set[str]) -> Nodes:
    """Returns the nodes that compute a tensor from those that are equal, in their order."""
    needed, nodes = {tensor}, []
    for node in reversed(side.graph.nodes):
        if needed.intersection(node.output):
            nodes.append(node)
            needed |= {name for name in node.input if name and side.name(name) not in equal}
    return nodes[::-1]


def _rule(side: Side, node: onnx.NodeProto) -> Rule | str:
    try:
        return side.rule_of(side.graph.kernel(node, side.values))
    except NotKnown as reason:
        return str(reason)


def _switched(mine: Facts, theirs: Facts, names: Set[str]) -> dict[str, Any]:
    return switches.switch(mine, theirs, switches.differences(mine, theirs).keys() & names)


def _kind(node: onnx.NodeProto) -> str:
    return _KINDS.get(node.op_type, node.op_type)


def _parts(node: onnx.NodeProto) -> tuple[str, ...]:
    """Returns what a node computes: its operator, and what it ends with."""
    ends = [each.s.decode() for each in node.attribute if each.name == "activation"]
    is_sum = _kind(node) == "Conv" and len(node.input) > 3 and bool(node.input[3])
    return (_kind(node), *ends, *["Add"] * is_sum)
