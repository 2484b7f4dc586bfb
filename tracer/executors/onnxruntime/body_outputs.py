"""Computes the tensors inside bodies of If, Loop and Scan, the first time that each body runs.

onnxruntime returns no tensor of a body. So each body is made a model of its own, which is fed what
the body reads that time: its inputs, and tensors of the graphs around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tracer.errors import InputError, ModelError
from tracer.executors.onnxruntime import all_outputs, node_names
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.model import Model, bodies, node_protos
from tracer.support.types import Array

_LEAST_SCAN = 9
"""The opset since which Scan has no batches."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a body of the graph `saved` may read: `values` and stored tensors around it, by name.

    `saved` is a form of `model`; its stored tensors may lie beside its file.
    """

    model: Model
    saved: Model
    settings: OrtSettings
    values: Mapping[str, Any] = field(repr=False)
    stored: Mapping[str, onnx.TensorProto] = field(repr=False)

    def read(self, name: str) -> Any:
        """Returns the value of a tensor; None if it is left out, or numpy lacks its type."""
        if name in self.stored:
            path = self.saved.path
            return numpy_helper.to_array(self.stored[name], str(path.parent) if path else "")
        return self.values.get(name)


def first_runs(
    model: Model,
    saved: Model,
    values: Mapping[str, Any],
    threads: int,
    register: Sequence[str | Path] = (),
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the path of each body that runs, and all tensors that it reads or computes.

    `saved` is a form of `model`, and `values` has the tensors of its main graph. The paths are
    those of `model`; `register` are libraries of operators. A body that cannot run alone is left
    out, and so are those inside it.
    """
    stored = {tensor.name: tensor for tensor in saved.graph.initializer}
    settings = OrtSettings(threads=threads, register=register)
    yield from _inside(saved.graph, Surroundings(model, saved, settings, values, stored))


def _inside(
    graph: onnx.GraphProto, around: Surroundings
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for node in graph.node:
        for attribute, body in bodies(node):
            inputs = _first_inputs(node, attribute, body, around)
            computed = None if inputs is None else _computed(body, inputs, around)
            if inputs is None or computed is None:
                continue
            path = f"{node_names.original(around.model, node.name)}.{attribute}"
            stored = {**around.stored, **{tensor.name: tensor for tensor in body.initializer}}
            read = {name: around.values[name] for name in _read(body) if name in around.values}
            yield path, {**read, **inputs, **computed}
            within = {**around.values, **inputs, **computed}
            yield from _inside(body, replace(around, values=within, stored=stored))


def _first_inputs(
    node: onnx.NodeProto, attribute: str, body: onnx.GraphProto, around: Surroundings
) -> Mapping[str, Array] | None:
    """Returns the inputs of a body the first time, by name; None if it does not run."""
    given = [around.read(name) if name else None for name in node.input]
    match node.op_type:
        case "If" if given[0] is not None:
            return {} if (attribute == "then_branch") == bool(np.all(given[0])) else None
        case "Loop":
            trips, goes_on, *states = given
            if (trips is not None and not np.all(trips > 0)) or np.any(goes_on == np.False_):
                return None
            first = [np.zeros((), np.int64), np.ones((), np.bool_), *states]
        case "Scan" if around.saved.opsets.get("", 1) >= _LEAST_SCAN:
            first = _first_of_scan(node, given)
        case _:
            return None
    if any(value is None or not isinstance(value, np.ndarray | np.generic) for value in first):
        return None
    values = [np.asarray(value) for value in first]
    named = zip(body.input, values, strict=False)
    return {declared.name: _as_declared(declared, value) for declared, value in named}


def _first_of_scan(node: onnx.NodeProto, given: list[Any]) -> list[Any]:
    """Returns the states, and the first slice of each sequence; None for what is not known."""
    settings = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    count = settings["num_scan_inputs"]
    axes = settings.get("scan_input_axes", [0] * count)
    backwards = settings.get("scan_input_directions", [0] * count)
    states, sequences = given[: len(given) - count], given[len(given) - count :]
    slices = [
        None
        if not isinstance(sequence, np.ndarray) or not sequence.shape[axis]
        else sequence.take(-1 if back else 0, axis)
        for sequence, axis, back in zip(sequences, axes, backwards, strict=True)
    ]
    return [*states, *slices]


def _as_declared(declared: onnx.ValueInfoProto, value: Array) -> Array:
    """Returns the number of a trip, or whether to go on, in a shape of [1] where a body asks it."""
    tensor = declared.type.tensor_type
    return value.reshape(1) if not value.shape and len(tensor.shape.dim) == 1 else value


def _computed(
    body: onnx.GraphProto, inputs: Mapping[str, Array], around: Surroundings
) -> Mapping[str, Any] | None:
    """Returns the tensors that the nodes of a body compute; None if it cannot run alone."""
    known = {**around.values, **inputs}
    feeds = {name: known[name] for name in (*inputs, *_read(body)) if name in known}
    if not all(isinstance(value, np.ndarray) for value in feeds.values()):
        return None
    own = {tensor.name: tensor for tensor in body.initializer}
    weights = {**around.stored, **own}
    stored = [weights[name] for name in _read(body) if name in weights]
    listed = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in feeds.items()
    ]
    proto = helper.make_model(
        helper.make_graph(body.node, "body", listed, [], stored),
        opset_imports=around.saved.proto.opset_import,
        ir_version=around.saved.proto.ir_version,
    )
    names = [name for node in body.node for name in node.output if name]
    try:
        return all_outputs.runner(around.saved, proto, names, around.settings)(feeds)
    except (InputError, ModelError):  # it is less known, and the rest is known as before
        return None


def _read(body: onnx.GraphProto) -> list[str]:
    """Returns the names that the nodes of a body and of bodies inside it read."""
    names = []
    for node in node_protos(body):
        names += [*node.input, *(value.name for _, each in bodies(node) for value in each.output)]
    return list(dict.fromkeys(filter(None, names)))
