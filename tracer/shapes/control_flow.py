"""Infers the types in the bodies of If, Loop and Scan, and of the outputs of these nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx

from tracer.graph.model import Node, Scope
from tracer.graph.tensor_type import Dim, TensorType, common_type

if TYPE_CHECKING:
    from tracer.shapes.inference import Inference

Types = Sequence[TensorType | None]

_COUNTERS = (TensorType("int64", ()), TensorType("bool", ()))
"""The first inputs of the body of a Loop: the number of the trip, and the condition."""

_SCAN_WITHOUT_BATCH = 9
"""Before this version, Scan had a batch axis."""


def infer(inference: Inference, node: Node, scopes: Mapping[str, Scope]) -> None:
    """Infers the bodies of a node by attribute name, then its outputs as its operator tells."""
    rule = _BY_OPERATOR.get(node.op_type, _any) if not node.domain else _any
    for name, found in zip(node.outputs, rule(inference, node, scopes), strict=False):
        if name:
            inference.refine((node.scope.path, name), found)


def _any(inference: Inference, node: Node, scopes: Mapping[str, Scope]) -> Types:
    """Tells nothing of the outputs."""
    for scope in scopes.values():
        inference.graph(scope)
    return ()


def _if(inference: Inference, node: Node, scopes: Mapping[str, Scope]) -> Types:
    """Outputs have the types of the branch that runs, else what both branches share."""
    _any(inference, node, scopes)
    taken = inference.values.branch(node)
    ran = [scope for name, scope in scopes.items() if taken in (None, name)]
    inference.idle |= {scope.path for scope in scopes.values() if scope not in ran}
    return [common_type(types) for types in zip(*map(inference.results, ran), strict=False)]


def _loop(inference: Inference, node: Node, scopes: Mapping[str, Scope]) -> Types:
    """States have what is true before and after each trip; scan outputs stack the trips.

    The body is inferred with the states as they come in. If one leaves with another shape, the
    body is inferred once more, with the shapes of states only as it declares them.
    """
    body = scopes["body"]
    states = inference.inputs(node)[2:]
    for value in body.graph.input[1:2]:  # a trip begins only where the condition is true
        inference.values.assume((body.path, value.name), np.array(True))
    results = _trip(inference, body, [*_COUNTERS, *(states if inference.may_repeat else ())])
    kept = _kept(states, results[1:])
    if inference.may_repeat and kept != states:
        inference.reset(body)
        results = _trip(inference, body, _COUNTERS)
        kept = _kept(states, results[1:])
    trips = _loop_trips(inference, node, body)
    after = results[1 : 1 + len(states)] if trips else kept
    return [*after, *(_with_axis(type_, 0, trips) for type_ in results[1 + len(states) :])]


def _trip(inference: Inference, body: Scope, inputs: Types) -> Types:
    """Infers a body with inputs of these types; returns the types of its outputs."""
    for value, type_ in zip(body.graph.input, inputs, strict=False):
        inference.refine((body.path, value.name), type_)
    inference.graph(body)
    return inference.results(body)


def _kept(before: Types, after: Types) -> list[TensorType | None]:
    return [common_type(pair) for pair in zip(before, after, strict=False)]


def _loop_trips(inference: Inference, node: Node, body: Scope) -> int | None:
    """Returns how often the body of a Loop runs; None if that depends on data."""
    maximum, begins = inference.input_value(node, 0), inference.input_value(node, 1)
    if begins is not None and not begins.all():
        return 0
    goes_on = inference.values.of(inference.result(body, 0)) if body.graph.output else None
    is_certain = begins is not None or len(node.inputs) < 2 or not node.inputs[1]
    if maximum is None or maximum.size != 1 or not is_certain:
        return None
    return max(0, int(maximum.item())) if goes_on is not None and goes_on.all() else None


def _scan(inference: Inference, node: Node, scopes: Mapping[str, Scope]) -> Types:
    """A body has one element of each scanned input; states keep their types."""
    if inference.model.opsets.get("", 1) < _SCAN_WITHOUT_BATCH:
        return _any(inference, node, scopes)
    attributes = {each.name: each for each in node.proto.attribute}
    count = attributes["num_scan_inputs"].i if "num_scan_inputs" in attributes else 1
    inputs = inference.inputs(node)
    states, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    axes = _axes(attributes.get("scan_input_axes"), len(scanned))
    elements = [_without_axis(type_, axis) for type_, axis in zip(scanned, axes, strict=False)]
    results = _trip(inference, scopes["body"], [*states, *elements])
    stacked = results[len(states) :]
    axes_out = _axes(attributes.get("scan_output_axes"), len(stacked))
    sizes = [_size(type_, axis) for type_, axis in zip(scanned, axes, strict=False)]
    length = next((size for size in sizes if isinstance(size, int)), None)
    pairs = zip(stacked, axes_out, strict=False)
    after = _kept(states, results)
    return [*after, *(_with_axis(type_, axis, length) for type_, axis in pairs)]


def _axes(attribute: onnx.AttributeProto | None, count: int) -> Sequence[int]:
    return [0] * count if attribute is None else attribute.ints


def _size(type_: TensorType | None, axis: int) -> Dim:
    """Returns the size of an axis; None where it has none."""
    if type_ is None or type_.shape is None or not -len(type_.shape) <= axis < len(type_.shape):
        return None
    return type_.shape[axis]


def _without_axis(type_: TensorType | None, axis: int) -> TensorType | None:
    if type_ is None or type_.shape is None:
        return type_
    at = axis % len(type_.shape) if type_.shape else 0
    return TensorType(type_.dtype, type_.shape[:at] + type_.shape[at + 1 :])


def _with_axis(type_: TensorType | None, axis: int, size: int | None) -> TensorType | None:
    if type_ is None or type_.shape is None:
        return type_
    at = axis % (len(type_.shape) + 1)
    return TensorType(type_.dtype, (*type_.shape[:at], size, *type_.shape[at:]))


_BY_OPERATOR: Mapping[str, Callable[[Inference, Node, Mapping[str, Scope]], Types]] = {
    "If": _if, "Loop": _loop, "Scan": _scan,
}  # fmt: skip
