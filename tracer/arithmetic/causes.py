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

from tracer.arithmetic import runs
from tracer.arithmetic.fingerprint import digest, stored_numbers
from tracer.arithmetic.kernel import Facts, NotKnown, Rule, are_equal
from tracer.arithmetic.replays import conv
from tracer.arithmetic.trees import (
    ADD,
    BEGIN,
    SCALE,
    is_divided,
    is_in_lanes,
    terms_of,
    tree_of_program,
    without_term,
)
from tracer.executors.onnxruntime import kernel_nodes
from tracer.graph import stored_weights
from tracer.graph.model import Model, bodies, names_read, node_protos
from tracer.interpreter.compiled_code import UnfitError
from tracer.records.bits import FirstDifference

ORDER = "order"
_SUMS = frozenset({"program", "rows", "columns", "cells", "sums"})
"""Facts that tell together in which order terms are added, and where in the output."""
_FLAGS = {"fused": "FMA", "from_zero": "what a sum begins with"}
"""Facts of each order, which a kernel has all in one way."""
_LAYOUT = frozenset({"block"})
"""Facts that tell where values lie in memory; they change no sum."""
_PAIRS = frozenset({"channels", "positions"})
"""Ways of an integer convolution in which pairs of products saturate."""
_CAUSES = {
    "lanes": "number of lanes", "way": "order of additions", "pairs": "saturation of pairs",
    "folds": "order of additions", "rest": "what the C library computes",
    "rounded": "activations rounded to 8 bits", "blocks": "blocks that are added at once",
    "zeros_first": "place of the zero points", "together": "rows that are computed at once",
}  # fmt: skip
"""By the name of a fact; others have their name in the cause."""


def differences(mine: Facts, theirs: Facts) -> dict[str, str]:
    """Returns the names of what differs, each with the cause in words."""
    found: dict[str, str] = {}
    own, other = _fact_parts(mine), _fact_parts(theirs)
    for name in dict.fromkeys((*own, *other)):
        here, there = own.get(name), other.get(name)
        if here == there or name in _LAYOUT:
            continue
        if isinstance(here, Mapping) and isinstance(there, Mapping) and name != ORDER:
            nested = differences(here, there)
            found |= {f"{name}.{inner}": cause for inner, cause in nested.items()}
        elif name == ORDER:
            found[name] = order_cause(mine, theirs)
        else:
            plain = _FLAGS.get(name) or _CAUSES.get(name, f"another {name.replace('_', ' ')}")
            are_pairs = name == "way" and not _PAIRS.isdisjoint((here, there))
            found[name] = "saturation of pairs" if are_pairs else plain
    return found


def switch(mine: Facts, theirs: Facts, names: Set[str]) -> dict[str, Any]:
    """Returns the facts `mine` with those of `names` as in `theirs`."""
    flags = {}
    for flag in _FLAGS:
        values = _values(theirs if flag in names else mine, flag)
        if len(values) == 1:
            flags[flag] = values.pop()
    facts = {key: value for key, value in mine.items() if ORDER not in names or key not in _SUMS}
    if ORDER in names:
        facts |= {key: value for key, value in theirs.items() if key in _SUMS}
        if "rows" in mine and "rows" in theirs:
            # those of the first rows: another batch may have more, or fewer
            rows, cells = mine["rows"][-1], theirs["cells"]
            ends = [end for end in theirs["rows"] if end < rows]
            facts |= {"rows": [*ends, rows], "cells": [*cells, cells[-1]][: len(ends) + 1]}
    for key in {name.partition(".")[0] for name in names} - {ORDER, *_FLAGS}:
        inner = {name.partition(".")[2] for name in names if name.startswith(f"{key}.")}
        if inner:
            facts[key] = switch(mine[key], theirs[key], inner)
        elif key in theirs:
            facts[key] = theirs[key]
        else:
            facts.pop(key, None)
    return {key: _with(value, flags) if key in _SUMS else flags.get(key, value)
            for key, value in facts.items()}  # fmt: skip


def adapt(mine: Facts, theirs: Facts) -> dict[str, Any]:
    """Returns the facts `mine` for a kernel that fuses what `theirs` does.

    What the kernel computes besides is as in `theirs`: further terms are added last, and sums with
    a factor to the first of these.
    """
    facts = {k: v if k in _LAYOUT else mine.get(k, v) for k, v in theirs.items()}
    if ORDER not in _fact_parts(mine) or ORDER not in _fact_parts(theirs):
        return facts
    own, other = (next(_sums(each)) for each in (mine, theirs))
    terms = sorted({s // 4 for s in other["program"]} - {s // 4 for s in own["program"]})
    is_scaled = any(step % 4 == SCALE for step in other["program"])
    besides = {key: value for key, value in other.items() if key not in own}

    def fuse(value: dict[str, Any]) -> dict[str, Any]:
        if "program" not in value:
            return {**value, "sums": list(map(fuse, value["sums"]))}
        program = value["program"]
        if is_scaled and terms:
            first, *others = terms
            program = [4 * first + BEGIN, *program, SCALE]
        else:
            others = terms
        return {**besides, **value, "program": [*program, *(4 * term + ADD for term in others)]}

    return fuse(facts)


def order_cause(mine: Facts, theirs: Facts) -> str:
    """Returns in what two orders differ: the place of the bias, lanes, blocks, or all."""
    own, other = ([each["program"] for each in _sums(facts)] for facts in (mine, theirs))
    if len(own) != len(other) or not own:
        return "order of additions"
    trees = [(tree_of_program(a), tree_of_program(b)) for a, b in zip(own, other, strict=True)]
    last = [max(terms_of(a)) for a, _ in trees]
    bare = [(without_term(a, n), without_term(b, n)) for (a, b), n in zip(trees, last, strict=True)]
    if all(a == b for a, b in bare):
        return "place of the bias"
    if all(is_in_lanes(a, b) or is_in_lanes(b, a) for a, b in bare):
        return "number of lanes"
    if all(terms_of(a) == terms_of(b) or is_divided(a, b) or is_divided(b, a) for a, b in bare):
        return "block size"
    return "order of additions"


def _fact_parts(facts: Facts) -> dict[str, Any]:
    """Returns what can be switched alone by name; the flags belong to the order if they vary."""
    flags = {flag: values for flag in _FLAGS if (values := _values(facts, flag))}
    apart = {flag for flag, values in flags.items() if len(values) == 1}
    parts: dict[str, Any] = {flag: next(iter(flags[flag])) for flag in apart}
    order = {key: _bare(facts[key], apart) for key in facts if key in _SUMS}
    if order:
        parts[ORDER] = order
    return parts | {k: v for k, v in facts.items() if k not in _SUMS and k not in _FLAGS}


def _values(facts: Any, flag: str) -> set[Any]:
    """Returns the values of a flag in all orders."""
    if isinstance(facts, Mapping):
        own = {facts[flag]} if flag in facts else set()
        return own.union(*(_values(facts[key], flag) for key in facts if key in _SUMS))
    if isinstance(facts, list):
        return set().union(*(_values(each, flag) for each in facts if isinstance(each, Mapping)))
    return set()


def _bare(value: Any, flags: Set[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _bare(each, flags) for key, each in value.items() if key not in flags}
    return [_bare(each, flags) for each in value] if isinstance(value, list | tuple) else value


def _with(value: Any, flags: Facts) -> Any:
    if isinstance(value, Mapping):
        return {key: flags.get(key, _with(each, flags)) for key, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return [_with(each, flags) for each in value]
    return value


def _sums(facts: Facts) -> Iterator[Facts]:
    """Yields the facts of each sum: the program, and how terms are added."""
    if "program" in facts:
        yield facts
    for each in facts.get("sums", ()):
        yield from _sums(each)


GRAPH = "graph"
STORED, TYPE = "stored values", "another type of numbers"
_IN_FACTS = FUSION, LAYOUT, OPERATOR = "fusion", "layout of channels", "another operator"
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
            if node.domain == conv.BLOCKS_DOMAIN:  # named after the tensor
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
        return conv.from_blocks(value, self.block) if in_blocks else value


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
    compared: set[int] = set()
    found: FirstDifference | None = None
    for place, node in enumerate(first.graph.nodes):
        for tensor in node.output:
            name = first.name(tensor)
            if not tensor or name not in others:
                continue
            other = others[name]
            padded = tensor in first.names or other in second.names
            pair = first.value(tensor), second.value(other)
            x, y = runs.overlap(*pair, batches, padded)
            kinds = {(each.dtype, each.ndim) for each in pair if isinstance(each, np.ndarray)}
            if x is None and len(kinds) == 1 and not (batches or padded):
                x, y = pair  # how many results there are depends on the data
            if x is None:
                continue
            compared.add(place)
            same = are_equal(x, y) if x.shape == y.shape else np.zeros(x.shape, bool)
            if x.shape == y.shape and same.all():
                equal.add(name)
            elif found is None:
                region = _Region(first, second, (tensor, other), equal, batches)
                causes, together, reason = region.explain(context)
                found = FirstDifference(
                    first.key(node, tensor), node.op_type, place,
                    int(same.sum()), same.size, runs.ulps(x, y), causes, together, reason,
                    region.text(0), region.text(1),
                )  # fmt: skip
    return found, len(compared)


class _Region:
    """The nodes between tensors that are equal and one that differs, on both sides."""

    def __init__(
        self, first: Side, second: Side, tensors: tuple[str, str], equal: Set[str], batches: bool
    ) -> None:
        self._first, self._second, self._batches = first, second, batches
        self._tensors = tensors
        self._nodes = [
            _nodes_between(side, side.graph.nodes, tensor, equal)
            for side, tensor in zip((first, second), tensors, strict=True)
        ]
        self._rules = [
            [_rule(side, node) for node in nodes]
            for side, nodes in zip((first, second), self._nodes, strict=True)
        ]
        self._graph_causes = self._find_graph_causes(equal)

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
        found = {GRAPH: " and ".join(self._graph_causes)} if self._graph_causes else {}
        for place, other_place in self._pairs():  # what can be switched alone, and its cause
            rule, there = self._rules[0][place], self._rules[1][other_place]
            if isinstance(rule, Rule) and isinstance(there, Rule):
                facts = self._fitted(rule.facts, there.facts)
                found |= differences(facts, there.facts)

        def matches(names: Set[str], expected: Any) -> bool:
            try:
                value = self._compute(names)
            except (NotKnown, UnfitError, LookupError, ValueError):
                return False  # these facts do not go together
            x, y = runs.overlap(value, expected, self._batches, padded)
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
        is_other = not {TYPE, *_IN_FACTS}.isdisjoint(self._graph_causes)
        return adapt(mine, theirs) if is_other else mine

    def _find_graph_causes(self, equal: Set[str]) -> list[str]:
        """Returns in what models and graphs differ between the tensors; none for equal ones.

        Weights are those of the models: a graph has them folded, in another layout or type.
        """
        sides, causes = (self._first, self._second), dict[str, None]()
        if not stored_weights.are_same(self._first.model, self._second.model):
            nodes = [
                _nodes_between(side, side.model.graph.node, side.name(tensor), equal)
                for side, tensor in zip(sides, self._tensors, strict=True)
            ]
            own, other = (
                stored_numbers(side.model, each) for side, each in zip(sides, nodes, strict=True)
            )
            if own and other and own.keys() != other.keys():
                return [TYPE]
            causes = dict.fromkeys([STORED] * ({*own.values(), ""} != {*other.values(), ""}))
            had, has = (Counter(node.op_type for node in each) for each in nodes)
            more, fewer = has - had, had - has
            if bool(more) != bool(fewer):  # one model has all operators of the other, and further
                further = ", ".join(sorted((more or fewer).elements()))
                return [*causes, f"further operators ({further})"]
        mine, theirs = (
            [node for node in nodes if node.op_type not in _REORDERINGS] for nodes in self._nodes
        )
        parts = Counter(map(_parts, mine)), Counter(map(_parts, theirs))
        if parts[0] != parts[1]:
            is_one = (parts[0] - parts[1]).total() == (parts[1] - parts[0]).total() == 1
            return [*causes, OPERATOR if is_one else FUSION]
        in_blocks = [
            any(each.domain == conv.BLOCKS_DOMAIN for each in nodes) for nodes in (mine, theirs)
        ]
        if in_blocks[0] != in_blocks[1]:
            return [*causes, LAYOUT]
        if self._first.block != self._second.block and in_blocks[0]:
            return [*causes]
        stored = [
            sorted(digest(side.graph.constants[name]) for node in nodes
                   for name in side.graph.reads(node) if name in side.graph.constants)
            for side, nodes in zip(sides, (mine, theirs), strict=True)
        ]  # fmt: skip
        causes |= dict.fromkeys([STORED] * (stored[0] != stored[1]))
        for place, there in self._pairs():
            before, after = (
                {each.name: each for each in node.attribute}
                for node in (self._nodes[0][place], self._nodes[1][there])
            )
            names = sorted(before.keys() | after.keys())
            changed = [name for name in names if before.get(name) != after.get(name)]
            causes |= dict.fromkeys(_attribute_cause(name, before, after) for name in changed)
        return [*causes]

    def _compute(self, names: Set[str]) -> Any:
        """Returns the tensor by the replay of the first side, switched in these facts."""
        at = int(GRAPH in names)
        side, tensor = (self._first, self._second)[at], self._tensors[at]
        partner = {pair[at]: pair[1 - at] for pair in self._pairs()}
        values = dict(side.values)
        for place, node in enumerate(self._nodes[at]):
            rule = self._rules[at][place]
            names_of_outputs = [name for name in node.output if name]
            if bodies(node):
                _, _, outputs = runs.replay_node(side.graph, node, side.rule_of, values)
                values.update(zip(names_of_outputs, outputs, strict=True))
                continue
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
            values.update(zip(names_of_outputs, outputs, strict=True))
        return side.value(tensor, values)


def _nodes_between(side: Side, graph: Nodes, tensor: str, equal: Set[str]) -> Nodes:
    """Returns the nodes of a graph that compute a tensor from equal ones, in their order."""
    needed, nodes = {tensor}, []
    for node in reversed(graph):
        if needed.intersection(node.output):
            nodes.append(node)
            needed |= {name for name in names_read(node) if side.name(name) not in equal}
    return nodes[::-1]


def _attribute_cause(
    name: str, before: Mapping[str, onnx.AttributeProto], after: Mapping[str, onnx.AttributeProto]
) -> str:
    """Returns in what an attribute of two nodes differs; of a body, whether in its operators."""
    sides = [each[name] for each in (before, after) if name in each]
    if not any(each.HasField("g") for each in sides):
        return _ATTRIBUTES.get(name, f"the attribute {name}")
    operators = [Counter(node.op_type for node in node_protos(each.g)) for each in sides]
    return f"{OPERATOR} in its {name}" if operators[0] != operators[-1] else f"its {name}"


def _rule(side: Side, node: onnx.NodeProto) -> Rule | str:
    if bodies(node):
        return runs.OF_BODIES
    try:
        return side.rule_of(side.graph.kernel(node, side.values))
    except NotKnown as reason:
        return str(reason)


def _switched(mine: Facts, theirs: Facts, names: Set[str]) -> dict[str, Any]:
    return switch(mine, theirs, differences(mine, theirs).keys() & names)


def _kind(node: onnx.NodeProto) -> str:
    return _KINDS.get(node.op_type, node.op_type)


def _parts(node: onnx.NodeProto) -> tuple[str, ...]:
    """Returns what a node computes: its operator, and what it ends with."""
    ends = [each.s.decode() for each in node.attribute if each.name == "activation"]
    is_sum = _kind(node) == "Conv" and len(node.input) > 3 and bool(node.input[3])
    return (_kind(node), *ends, *["Add"] * is_sum)
