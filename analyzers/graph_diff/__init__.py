"""What changed between two graphs: by values of tensors and the shape of the graph, not by names.

Nodes of one operator whose results are equal on all inputs are the same. Other nodes between equal
tensors became each other. What lies behind a change, or is quantised, has other values: its nodes
are paired where they read paired tensors, have equal weights, or are read by paired nodes.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import helper

from tracer.analyzers.graph_diff.graph import Graph
from tracer.analyzers.graph_diff.pairing import QUANTISED, Pairing, Readings
from tracer.graph.model import Node
from tracer.limits import Limits, enforced
from tracer.records.columns import as_column
from tracer.records.model_info import ModelInfo
from tracer.records.result import Result
from tracer.records.tensor_match import ANY_ORDER, LAYOUT, SAME_SHAPE, match, numeric_tensor
from tracer.support.types import Array
from tracer.text import agree, plural

CHANGED, BECAME, NEW, GONE = "changed", "became", "new", "gone"
READINGS = {SAME_SHAPE: "equal", LAYOUT: "another layout", ANY_ORDER: "another order"}
READINGS |= dict.fromkeys((QUANTISED, QUANTISED + LAYOUT), "quantised")
PAIRED = "other values"
"""How a tensor of the second graph compares with the one that it stands for."""


@dataclass(frozen=True, slots=True)
class NodeChange:
    """Nodes of the first graph, `before`, and what they are in the second, by key.

    `kind` is `changed` (one node with other weights, attributes or inputs), `became` (other nodes
    with the same place), `new` or `gone`. `before_us` and `after_us` are their times in traces of
    the models, µs per run: NaN where there is none.
    """

    kind: str = field(metadata=as_column("change", 0))
    before: tuple[str, ...] = field(metadata=as_column("before", 1))
    after: tuple[str, ...] = field(metadata=as_column("after", 2))
    what: str = field(metadata=as_column("what", 0))
    before_us: float = field(default=math.nan, metadata=as_column("before µs", 3, "micros"))
    after_us: float = field(default=math.nan, metadata=as_column("after µs", 3, "micros"))

    @property
    def has_nodes(self) -> bool:
        """Whether nodes changed, and not the opset of the model."""
        return bool(self.before or self.after)


_AXES = ("axis", "axes")
_OF_OUTPUT = ("OneHot", "Unsqueeze")
"""Operators whose axes are counted in the output; those of others are in the first input."""


@dataclass(frozen=True, slots=True)
class TensorPair:
    """A tensor of each graph, and how the second one reads: a word of `READINGS`, or `PAIRED`."""

    before: str
    after: str
    reading: str


@dataclass(frozen=True, slots=True, repr=False)
class GraphDiff(Result):
    """The changes in the order of the second graph; those of nodes that are gone come last.

    `same` are the pairs of nodes that did not change, by key. `nodes` counts the nodes of both
    graphs that depend on an input. `tensors` are pairs of tensors of the main graphs. `times` has
    the µs per run of the nodes of each graph, by key, where traces were given.
    """

    view: ClassVar[str] = "tracer.analyzers.views.graph_diff"

    models: tuple[ModelInfo, ModelInfo]
    settings: Mapping[str, Any]
    nodes: tuple[int, int]
    same: tuple[tuple[str, str], ...] = field(repr=False)
    changes: tuple[NodeChange, ...] = field(repr=False)
    tensors: tuple[TensorPair, ...] = field(repr=False)
    notes: tuple[str, ...] = ()
    times: tuple[Mapping[str, float], ...] = field(default=(), repr=False)

    def headline(self) -> str:
        """How many nodes are the same, and the number of changes."""
        are = agree(len(self.same), "is", "are")
        same = f"{len(self.same):,} of {plural(self.nodes[0], 'node')} {are} the same"
        return f"{same}; {plural(len(self.changes), 'change')}"


@enforced(Limits())  # once, and not for each weight that is read
def compare_graphs(
    first: Graph,
    second: Graph,
    equal: Readings,
    settings: Mapping[str, Any],
    notes: Sequence[str] = (),
    times: Sequence[Mapping[str, float]] = (),
) -> GraphDiff:
    """Returns what changed from the first graph to the second; `equal` are equal tensors.

    `times` has the µs per run of the nodes of both graphs, by key, or nothing.
    """
    pairing = Pairing(first, second, equal)
    same, changes = list[tuple[str, str]](), list[tuple[int, NodeChange]]()
    for number, partner in sorted(pairing.partners.items()):
        keys = first.nodes[partner].key, second.nodes[number].key
        what = "; ".join(_differences(pairing, number, partner))
        if what:
            changes.append((number, NodeChange(CHANGED, keys[:1], keys[1:], what)))
        else:
            same.append(keys)
    for ours, theirs in pairing.groups:
        place = theirs[0] if theirs else len(second.nodes) + ours[0]
        changes.append((place, _of_group(pairing, ours, theirs)))
    changes.sort(key=lambda each: each[0])
    for at, (place, change) in enumerate(changes if times else ()):
        spent = [
            [own[key] for key in keys if key in own]
            for keys, own in zip((change.before, change.after), times, strict=True)
        ]
        before, after = (sum(each) if each else math.nan for each in spent)
        changes[at] = place, replace(change, before_us=before, after_us=after)
    return GraphDiff(
        models=(ModelInfo.of(first.model), ModelInfo.of(second.model)),
        settings=settings,
        nodes=(len(first.nodes), len(second.nodes)),
        same=tuple(same),
        changes=(*_of_models(first, second), *(change for _, change in changes)),
        tensors=tuple(_tensor_pairs(pairing)),
        notes=tuple(notes),
        times=tuple(times),
    )


def _of_models(first: Graph, second: Graph) -> Iterator[NodeChange]:
    """Yields the changes of opsets and of the inputs and outputs."""
    before, after = first.model.opsets, second.model.opsets
    for domain in sorted({*before, *after}):
        if before.get(domain) != after.get(domain) and domain in before:
            name = f"opset of {domain}" if domain else "opset"
            now = after.get(domain, "not imported")
            yield NodeChange(CHANGED, (), (), f"{name} {before[domain]} → {now}")
    if len(first.results) != len(second.results):
        counts = f"{len(first.results)} → {len(second.results)}"
        yield NodeChange(CHANGED, (), (), f"outputs of the model: {counts}")
    for name, own in zip(first.inputs, second.inputs, strict=True):
        ours, theirs = _type(first.tensors[0][name]), _type(second.tensors[0][own])
        if ours != theirs:
            yield NodeChange(CHANGED, (), (), f"input '{name}': {ours} → {theirs}")


def _of_group(pairing: Pairing, ours: Sequence[int], theirs: Sequence[int]) -> NodeChange:
    before = [pairing.first.nodes[number] for number in ours]
    after = [pairing.second.nodes[number] for number in theirs]
    kind = BECAME if before and after else NEW if after else GONE
    what = " → ".join(
        " + ".join(f"{n} {name}" if n > 1 else name for name, n in counts.items())
        for side in (before, after)
        if (counts := Counter(node.qualified_type for node in side))
    )
    if not before:
        equal = [each for name in after[-1].outputs for each in pairing.equal.get(name, {}).items()]
        for name, how in equal[:1]:  # the nodes compute nothing
            layout = f" in {READINGS[how]}" if how in (LAYOUT, ANY_ORDER) else ""
            what += f": passes on '{name}'{layout}"
    elif not after:
        graph, names = pairing.first, [name for node in before for name in node.outputs]
        if not any(graph.readers.get(name) or name in graph.results for name in names):
            what += ": nothing read it"
    first, second = (tuple(node.key for node in side) for side in (before, after))
    return NodeChange(kind, first, second, what)


def _differences(pairing: Pairing, number: int, partner: int) -> Iterator[str]:
    """Yields what differs between a node of the second graph and its partner."""
    first, second = pairing.first, pairing.second
    ours, theirs = first.nodes[partner], second.nodes[number]
    before, after = (_attributes(graph, node) for graph, node in ((first, ours), (second, theirs)))
    weights, others = first.weights(partner), second.weights(number)
    moved = {_slot(theirs, slot): slot for slot in others if slot not in weights}
    moved = {name: slot for name, slot in moved.items() if name in before and name not in after}
    for name, slot in moved.items():  # as newer opsets have it
        values = second.stored(others[slot])
        is_equal = values is not None and np.array_equal(before[name], values)
        is_equal |= _are_equal_axes(name, (first, ours, before[name]), (second, theirs, values))
        yield f"{name} is an input, no attribute{'' if is_equal else ', and has other values'}"
    for name in sorted({*before, *after} - moved.keys()):
        old, new = before.get(name), after.get(name)
        is_same = old == new or (_is_usual(name, old) and _is_usual(name, new))
        if not is_same and not _are_equal_axes(name, (first, ours, old), (second, theirs, new)):
            yield f"{name} {_text_of(old)} → {_text_of(new)}"
    for slot in sorted({*weights, *others} - {*moved.values()}):
        if slot in weights and slot not in others and not any(theirs.inputs[slot:]):
            yield f"{_slot(theirs, slot)} is gone"
        elif slot not in weights or slot not in others:
            yield f"{_slot(theirs, slot)} is {'no longer' if slot in weights else 'now'} constant"
        elif difference := _of_constants(pairing, weights[slot], others[slot]):
            name = _slot(theirs, slot)
            old, new = first.stored(weights[slot]), second.stored(others[slot])
            if not _are_equal_axes(name, (first, ours, old), (second, theirs, new)):
                yield f"{name}: {difference}"
    for slot, name in second.reads(number):
        read = {other for at, other in first.reads(partner) if at == slot}
        is_paired = name in pairing.tensors or name in pairing.equal
        makers = {other: first.makers.get(other) for other in read}
        kept = {other for other, at in makers.items() if at is None or at in pairing.kept}
        if is_paired and kept and not pairing.partners_of(name) & read:
            yield f"{_slot(theirs, slot)} is '{name}', not '{sorted(kept)[0]}'"
    types = [
        next((_type(g.tensors[0][n]) for n in node.outputs if n in g.tensors[0]), "")
        for g, node in ((first, ours), (second, theirs))
    ]
    if all(types) and types[0].partition("[")[0] != types[1].partition("[")[0]:
        yield " → ".join(each.partition("[")[0] for each in types)


def _are_equal_axes(name: str, *sides: tuple[Graph, Node, Any]) -> bool:
    """Whether an attribute or input has the same axes, which may be counted from the end.

    Each side has the graph, the node and the values.
    """
    told = []
    for graph, node, values in sides:
        of = node.outputs if node.op_type in _OF_OUTPUT else node.inputs
        tensor = graph.tensors[0].get(of[0])
        rank = np.asarray(tensor).ndim
        if name not in _AXES or values is None or not rank:
            return False
        told.append(np.asarray(values) % rank)
    return bool(np.array_equal(told[0], told[1]))


def _slot(node: Node, slot: int) -> str:
    """Returns the name of an input in the schema of its operator."""
    try:
        formal = onnx.defs.get_schema(node.op_type, domain=node.domain).inputs
    except onnx.defs.SchemaError:
        return f"input {slot}"
    return formal[min(slot, len(formal) - 1)].name


def _equal_constants(first: Graph, second: Graph) -> Mapping[str, str]:
    """Returns, for constants that nodes of the second graph compute, equal ones of the first."""
    by_value, found = dict[tuple[Any, ...], str](), dict[str, str]()
    for graph in (first, second):
        nodes = [node for node in graph.model.nodes if node.scope.path == graph.model.root]
        for name in (name for node in nodes for name in node.outputs if name in graph.constant):
            value = graph.stored(name)
            if isinstance(value, np.ndarray):
                key = value.dtype.str, value.shape, graph.digest(name)
                if graph is first:
                    by_value.setdefault(key, name)
                elif key in by_value:
                    found[name] = by_value[key]
    return found


def _match(ours: Any, theirs: Any) -> int | None:
    if np.array_equal(np.asarray(ours), np.asarray(theirs)):  # of text and of nothing, too
        return SAME_SHAPE
    left, right = numeric_tensor(ours), numeric_tensor(theirs)
    return None if left is None or right is None else match(right, left)


def _of_constants(pairing: Pairing, name: str, other: str) -> str:
    """Returns how two constants differ; those that follow from shapes, by their weights as well."""
    first, second = pairing.first, pairing.second
    ours, theirs = first.stored(name), second.stored(other)
    is_known = ours is not None and theirs is not None and _type(ours) == _type(theirs)
    is_same = is_known and first.digest(name) == second.digest(other)
    difference = "" if is_same else _of_weights(ours, theirs)
    before, after = first.sources(name), second.sources(other)
    if not difference and len(before) == len(after) and before != after:
        return "computed from other weights"
    return difference


def _of_weights(ours: Array | None, theirs: Array | None) -> str:
    """Returns how two constants differ; "" where they are equal, in another layout too."""
    if ours is None or theirs is None:
        return "" if ours is theirs else "computed in one graph alone"
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.dtype == theirs.dtype and np.array_equal(
        ours, theirs, equal_nan=ours.dtype.kind == "f"
    ):
        return ""
    kinds = f"{_type(ours)} → {_type(theirs)}"
    if ours.shape != theirs.shape:
        return kinds if _match(ours, theirs) is None else ""
    if ours.dtype.kind not in "fiu" or theirs.dtype.kind not in "fiu":
        return "other values" if ours.dtype == theirs.dtype else kinds
    real, own = ours.astype(np.float64), theirs.astype(np.float64)
    lost = own - real
    differ = int(np.count_nonzero(lost))
    cast = f"{kinds}, " if ours.dtype != theirs.dtype else ""
    if not differ:
        return cast.rstrip(", ")
    return f"{cast}{differ:,} of {ours.size:,} differ, by {np.abs(lost).max():.3g} at most"


def _type(value: Any) -> str:
    array = np.asarray(value)
    return f"{array.dtype}{list(array.shape)}".replace(" ", "")


def _attributes(graph: Graph, node: Node) -> Mapping[str, Any]:
    """Returns the attributes of a node as values; bodies by their operators and weights."""
    opset = graph.model.opsets.get(node.domain, 1)
    own = {each.name: _value(each) for each in node.proto.attribute}
    every = {**_defaults(node.op_type, node.domain, opset), **own}
    if node.op_type == "BatchNormalization" and not every.get("training_mode"):
        every.pop("momentum", None)  # only training reads it
    return every


def _is_usual(name: str, value: Any) -> bool:
    """Whether an attribute does what nodes without it do: older opsets lack some."""
    ones = name in ("dilations", "strides") and value and {*value} == {1}
    zeros = name in ("pads", "output_padding") and value and {*value} == {0}
    return value in (None, 0, b"NOTSET") or bool(ones) or bool(zeros)


@cache
def _defaults(op_type: str, domain: str, opset: int) -> Mapping[str, Any]:
    try:
        attributes = onnx.defs.get_schema(op_type, opset, domain).attributes
    except onnx.defs.SchemaError:
        return {}
    return {
        name: _value(each.default_value)
        for name, each in attributes.items()
        if each.default_value.type
    }


def _value(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.GraphProto):  # what it computes, without names
        nodes = [
            (each.op_type, sorted((a.name, str(_value(a))) for a in each.attribute))
            for each in value.node
        ]
        return [nodes, [weight.raw_data or str(weight) for weight in value.initializer]]
    if isinstance(value, onnx.TensorProto):
        return value.SerializeToString(deterministic=True)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, bytes) else value


def _text_of(value: Any) -> str:
    if value is None:
        return "(none)"
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= 40 else "(…)"


def _tensor_pairs(pairing: Pairing) -> Iterator[TensorPair]:
    """Yields the tensors of the second graph that stand for one of the first, weights last."""
    first, second = pairing.first, pairing.second
    for name in filter(None, dict.fromkeys((*second.inputs, *second.makers))):
        equal = pairing.equal.get(name, {})
        partner = pairing.tensors.get(name) or next(iter(equal), None)
        if partner is not None:
            how = equal.get(partner)
            if partner not in equal:  # it has one value, which proves nothing alone
                matches = [
                    _match(ours.get(partner), theirs.get(name))
                    for ours, theirs in zip(first.tensors, second.tensors, strict=True)
                ]
                how = None if None in matches else max(each or 0 for each in matches)
            if how is None and name in second.origins:
                how = QUANTISED
            yield TensorPair(partner, name, PAIRED if how is None else READINGS[how])
    constants = dict[str, str]()
    for number, each in sorted(pairing.partners.items()):
        weights, others = first.weights(each), second.weights(number)
        for slot in sorted({*weights} & {*others}):
            constants.setdefault(others[slot], weights[slot])
    for name, partner in _equal_constants(first, second).items():
        if name not in constants:
            yield TensorPair(partner, name, READINGS[SAME_SHAPE])
    for name, partner in constants.items():
        difference = _of_constants(pairing, partner, name)
        yield TensorPair(partner, name, PAIRED if difference else READINGS[SAME_SHAPE])
