"""Runs a graph under onnxruntime without optimisation, with chosen tensors as its outputs.

Tensors inside the bodies of If, Loop and Scan cannot be outputs.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from tracer.accumulators.engine.stored_values import StoredValues
from tracer.executors.onnxruntime import feeding, int8_workaround, node_names, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph import footprint
from tracer.graph.encoding import encoded
from tracer.graph.model import Model, expanded_keys
from tracer.inputs.feedset import Feeds

_CPU = OrtSettings()


def tensors(model: Model, feeds: Feeds, settings: OrtSettings = _CPU) -> Mapping[str, Any]:
    """Returns every tensor that nodes of the main graph of `model` compute, by name.

    Threads and provider are those of `settings`.

    Of a large model those that follow from weights alone are missing, if they are no outputs: the
    floats of integer weights take four times their memory. Raises ModelError or InputError for what
    onnxruntime refuses.
    """
    proto = onnx.ModelProto.FromString(node_names.serialize(model))
    names = computed(proto.graph)
    if footprint.is_large(model):
        outputs = {value.name for value in proto.graph.output}
        constant = _constant_first(model, proto.graph) - outputs
        names = [name for name in names if name not in constant]
    return runner(model, proto, names, settings)(feeds)


def _constant_first(model: Model, graph: onnx.GraphProto) -> set[str]:
    """Returns the tensors that follow from weights alone; their nodes become the first of `graph`.

    onnxruntime's order is a depth-first search from the outputs that goes to the inputs of later
    nodes first. So it computes the floats of a weight right before they are read, and frees them.
    """
    stored, scope = StoredValues(model), model.scopes[0]
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    names = {name for node in nodes for name in node.output if name and stored.has(name, scope)}
    del graph.node[:]
    graph.node.extend(sorted(nodes, key=lambda node: names.isdisjoint(node.output)))
    return names


def runner_of_saved(
    path: Path, inputs: Container[str], threads: int, register: Sequence[str | Path] = ()
) -> Callable[[Feeds], Mapping[str, Any]]:
    """Returns a function from feeds to all tensors, by name, of the main graph saved at `path`.

    `inputs` are the names of the inputs that feeds will hold. Models before IR 4 list all weights
    as inputs, folded ones too; these are removed from the list. `register` are libraries of
    operators.

    Raises ModelError for a graph that onnxruntime saves and does not load again; the function
    raises InputError for feeds that it does not run on.
    """
    proto = onnx.load(path, load_external_data=False)
    int8_workaround.shift(proto, path.parent)
    weights = {weight.name for weight in proto.graph.initializer}
    for value in list(proto.graph.input):
        if value.name not in inputs and value.name not in weights:
            proto.graph.input.remove(value)
    saved = Model(proto, path, "", expanded_keys(proto))
    settings = OrtSettings(threads=threads, register=register)
    return runner(saved, proto, computed(proto.graph), settings)


def computed(graph: onnx.GraphProto) -> Sequence[str]:
    """Returns the names of the graph's outputs, then of the other tensors that nodes compute."""
    outputs = [value.name for value in graph.output]
    names = (name for node in graph.node for name in node.output if name)
    return list(dict.fromkeys([*outputs, *names]))


def runner(
    model: Model, proto: onnx.ModelProto, names: Sequence[str], settings: OrtSettings = _CPU
) -> Callable[[Feeds], Mapping[str, Any]]:
    """Returns a function from feeds to the tensors `names` of `proto`, a form of `model`.

    The outputs of `proto` are replaced. Beside a tensor of a type that numpy lacks, what is no
    tensor is None.
    """
    outputs = proto.graph.output
    for value in [value for value in outputs if value.name not in names]:
        outputs.remove(value)
    listed = {value.name for value in outputs}
    outputs.extend(onnx.ValueInfoProto(name=name) for name in names if name not in listed)
    order = [value.name for value in outputs]
    settings = replace(settings, optimization="none")
    session = sessions.Factory(model, encoded(proto, model.name), settings, arena=False).open()

    def run(feeds: Feeds) -> Mapping[str, Any]:
        with sessions.running(model):
            values = feeding.runner(model, session, feeds)()
        return {name: _as_numpy(value) for name, value in zip(order, values, strict=True)}

    return run


def _as_numpy(value: Any) -> Any:
    try:
        return feeding.as_array(value)
    except RuntimeError:
        return None
