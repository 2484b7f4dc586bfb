"""What a model computes from given feeds: its outputs, and the tensor of every node."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

from analyzers.compare.numbers import Numbers, Values, numbers
from analyzers.table import node_table
from exporters.records import ExportOptions, InputSpec
from exporters.registry import exporter_of
from exporters.source import load_source
from tracer import inputs
from tracer.api.compare.targets import (
    InFramework,
    OnInterpreter,
    OnOnnxruntime,
    Recorded,
    Settings,
    Target,
)
from tracer.errors import TracerError, UsageError
from tracer.executors.onnxruntime import feeding, node_names, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.executors.onnxruntime.tensors import tensors
from tracer.graph import loading, shape_inference
from tracer.graph.model import Model, Node
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import feeds_for
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.values import Value
from tracer.support.optional import not_installed
from tracer.support.tolerance import Tolerance


def compared(
    sides: Sequence[Recorded | Target], settings: Settings, tolerance: Tolerance
) -> tuple[tuple[Numbers, ...], tuple[str, ...]]:
    """The numbers of each side that can run against the first's, and why of any there are none.

    The first side that is an ONNX model decides the feeds. Inputs go by their order.
    """
    models = [side for side in sides if isinstance(side, OnOnnxruntime | OnInterpreter)]
    if not models or not isinstance(sides[0], OnOnnxruntime | OnInterpreter | InFramework):
        return (), ()
    arrays = list(_feeds(models[0], settings).values())
    first, notes, found = None, [], []
    for side in sides:
        if not isinstance(side, OnOnnxruntime | OnInterpreter | InFramework):
            continue
        try:
            values = _values(side, arrays, settings)
        except TracerError as error:
            notes.append(f"numbers not compared: {side.label}: {error.what}")
            continue
        if first is not None:
            found.append(numbers(first, values, tolerance))
        elif side is not sides[0]:
            break
        first = first or values
    return tuple(found), tuple(notes)


def _feeds(side: OnOnnxruntime | OnInterpreter, settings: Settings) -> Mapping[str, Any]:
    return feeds_for(
        side.source,
        side.model,
        batch=settings.batch,
        dims=settings.dims,
        feeds=settings.feeds,
        seed=settings.seed,
    ).feeds


def _values(
    side: OnOnnxruntime | OnInterpreter | InFramework, arrays: Sequence[Any], settings: Settings
) -> Values:
    if isinstance(side, InFramework):
        return _of_framework(side, arrays, settings)
    feeds = _named(side.model, arrays)
    if isinstance(side, OnInterpreter):
        return _of_interpreter(side, feeds, settings)
    return _of_onnxruntime(side, feeds, settings)


def _named(model: Model, arrays: Sequence[Any]) -> dict[str, Any]:
    """The arrays by the names of the model's inputs. Raises InputError where they do not fit."""
    names = [value.name for value in model.inputs]
    if len(names) != len(arrays):
        raise UsageError(f"it takes {len(names)} inputs, and {len(arrays)} are given")
    feeds = dict(zip(names, arrays, strict=True))
    inputs.check(model, feeds)
    return feeds


def _of_onnxruntime(side: OnOnnxruntime, feeds: dict[str, Any], settings: Settings) -> Values:
    """Nodes without optimisation, which leaves each its tensor; outputs with that of the side."""
    model = side.model
    options = OrtSettings(
        threads=settings.threads, optimization=side.optimization or settings.optimization
    )
    session = sessions.Factory(model, node_names.serialize(model), options).open()
    made: Any = feeding.runner(model, session, feeds)()
    names = [value.name for value in model.graph.output]
    known = tensors(model, feeds, settings.threads)
    return _gathered(side.label, model, feeds, dict(zip(names, made, strict=True)), known)


def _of_interpreter(side: OnInterpreter, feeds: dict[str, Any], settings: Settings) -> Values:
    keeper = _Keeper()
    interpreter = Interpreter(side.model, threads=settings.threads or None).with_observers(keeper)
    made = interpreter.run(None, feeds)
    names = [value.name for value in side.model.graph.output]
    outputs = dict(zip(names, made, strict=True))
    return _gathered(side.label, side.model, feeds, outputs, keeper.tensors)


def _of_framework(side: InFramework, arrays: Sequence[Any], settings: Settings) -> Values:
    """Its own activations, by the nodes of the graph that it exports to."""
    with redirect_stdout(sys.stderr):  # what the user's own code prints is no data of ours
        model = load_source(
            side.source,
            settings.arguments,
            weights=settings.weights,
            framework=side.framework,
        )
        exporter = exporter_of(model, side.framework)
        specs = [InputSpec(tuple(array.shape), array.dtype.name) for array in arrays]
        options = ExportOptions(
            framework=side.framework,
            dynamic_batch=False,
            keep_batchnorm=side.framework == "torch",  # Chainer's exporter folds none
        )
        try:
            conversion = exporter.convert(model, specs, options)
        except ModuleNotFoundError as error:
            raise not_installed(f"running {side.source}", error) from error
        made, known = conversion.run(arrays), conversion.values(arrays)
    exported = loading.from_proto(conversion.proto)
    names = [value.name for value in exported.graph.output]
    outputs = dict(zip(names, made, strict=True))
    return _gathered(side.label, exported, _named(exported, arrays), outputs, known)


def _gathered(
    label: str,
    model: Model,
    feeds: Mapping[str, Any],
    outputs: Mapping[str, Any],
    known: Mapping[str, Any],
) -> Values:
    """Tensors of the main graph by the node that makes them, beside the model's table."""
    by_node = {
        node.key: known[node.outputs[0]]
        for node in model.nodes
        if not node.scope.path and node.outputs and node.outputs[0] in known
    }
    types = shape_inference.infer(model, FeedSet(feeds, None).shapes)
    return Values(label, node_table(model, types, []), list(outputs.items()), by_node)


class _Keeper:
    """Keeps the tensors of the main graph."""

    def __init__(self) -> None:
        self.tensors: dict[str, Value] = {}

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Nothing is known yet."""

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Keep what the node made."""
        if not node.scope.path:
            self.tensors.update(zip(node.outputs, outputs, strict=False))
