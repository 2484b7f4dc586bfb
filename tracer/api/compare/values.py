"""Compare the values that the sides compute: outputs, and the tensor of every node."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

from analyzers.compare.numbers import Numbers, Values, numbers
from analyzers.table import node_table
from exporters.records import ExportOptions, InputSpec
from exporters.registry import exporter_of
from exporters.source import load_source
from tracer.api.compare.sides import FrameworkSide, NamedSide, OnnxSide, Recorded, SideSettings
from tracer.errors import TracerError, UsageError
from tracer.executors import registry
from tracer.graph import loading, shape_inference
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.inputs.model_feeds import check_feeds
from tracer.inputs.request import request_for
from tracer.support.optional import not_installed
from tracer.support.tolerance import Tolerance


def compare_values(
    sides: Sequence[NamedSide], settings: SideSettings, tolerance: Tolerance
) -> tuple[tuple[Numbers, ...], tuple[str, ...]]:
    """Compares the values of each side that can run with the first side's.

    Returns the differences, and notes on sides whose values cannot be compared. The feeds are those
    of the first ONNX model; inputs are matched by order.
    """
    models = [side for side in sides if isinstance(side, OnnxSide)]
    if not models or isinstance(sides[0], Recorded):
        return (), ()
    arrays = list(_feeds(models[0], settings).values())
    first, notes, comparisons = None, [], []
    for side in sides:
        if isinstance(side, Recorded):
            continue
        try:
            values = _values(side, arrays, settings)
        except TracerError as error:
            notes.append(f"numbers not compared: {side.label}: {error.what}")
            continue
        if first is not None:
            comparisons.append(numbers(first, values, tolerance))
        elif side is not sides[0]:
            break
        first = first or values
    return tuple(comparisons), tuple(notes)


def _feeds(side: OnnxSide, settings: SideSettings) -> Mapping[str, Any]:
    request = request_for(
        side.source, side.model, settings.batch, settings.dims, settings.feeds, settings.seed
    )
    return request.feeds().feeds


def _values(
    side: OnnxSide | FrameworkSide, arrays: Sequence[Any], settings: SideSettings
) -> Values:
    if isinstance(side, FrameworkSide):
        return _of_framework(side, arrays, settings)
    feeds = _feeds_by_name(side.model, arrays)
    chosen = registry.settings_for(
        side.executor,
        {"threads": settings.threads or None, "optimization": side.level(settings)},
    )
    executor = registry.find_tensors(side.executor)
    tensors = executor.tensors(side.model, FeedSet(feeds, None), chosen)
    return _by_node(side.label, side.model, feeds, tensors.outputs, tensors.by_name)


def _feeds_by_name(model: Model, arrays: Sequence[Any]) -> dict[str, Any]:
    """Returns the arrays by input name. Raises UsageError or InputError if they do not fit."""
    names = [value.name for value in model.inputs]
    if len(names) != len(arrays):
        raise UsageError(f"it takes {len(names)} inputs, not {len(arrays)}")
    feeds = dict(zip(names, arrays, strict=True))
    check_feeds(model, feeds)
    return feeds


def _of_framework(side: FrameworkSide, arrays: Sequence[Any], settings: SideSettings) -> Values:
    """Runs the framework's model; its activations go by the nodes of its exported graph."""
    with redirect_stdout(sys.stderr):  # stdout is for data; the user's code may print
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
        outputs, tensors_by_name = conversion.run(arrays), conversion.values(arrays)
    exported = loading.from_proto(conversion.proto)
    feeds = _feeds_by_name(exported, arrays)
    return _by_node(side.label, exported, feeds, outputs, tensors_by_name)


def _by_node(
    label: str,
    model: Model,
    feeds: Mapping[str, Any],
    outputs: Sequence[Any],
    tensors_by_name: Mapping[str, Any],
) -> Values:
    """Returns the outputs, and tensors of the main graph by the node that computes them."""
    by_node = {
        node.key: tensors_by_name[node.outputs[0]]
        for node in model.nodes
        if not node.scope.path and node.outputs and node.outputs[0] in tensors_by_name
    }
    types = shape_inference.infer(model, FeedSet(feeds, None).shapes)
    names = [value.name for value in model.graph.output]
    named_outputs = list(zip(names, outputs, strict=True))
    return Values(label, node_table(model, types, []), named_outputs, by_node)
