"""Compare the values that the sides compute: outputs, and the tensor of every node."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from tracer.analyzers.compare.numbers import Numbers, Values, in_type_of, numbers, pairs, unshared
from tracer.analyzers.table import node_table
from tracer.api.compare.inputs import Arrays
from tracer.api.compare.settings import SideSettings
from tracer.api.compare.sides import FrameworkSide, NamedSide, OnnxSide, Recorded
from tracer.errors import ModelError, TracerError, UsageError
from tracer.executors.eager.failure import failing_clearly
from tracer.exporters.records import ExportOptions, InputSpec
from tracer.exporters.registry import exporter_of
from tracer.exporters.source import load_source
from tracer.graph import loading
from tracer.graph.model import Model, Node
from tracer.graph.operators import has_rounded_weights, precisions
from tracer.inputs.feedset import FeedSet
from tracer.inputs.model_feeds import check_feeds
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import Isolation
from tracer.records.node_table import typed
from tracer.shapes import infer
from tracer.support.imports import not_installed
from tracer.support.tolerance import Difference, Tolerance


@dataclass(frozen=True, slots=True)
class _Ran:
    """A side after a run, and the graph whose nodes its values go by.

    `obstacle` is why there is no graph.
    """

    side: OnnxSide | FrameworkSide
    model: Model | None
    feeds: Mapping[str, Any]
    values: Values
    obstacle: str = ""


def compare_values(
    sides: Sequence[NamedSide],
    arrays: Arrays | None,
    settings: SideSettings,
    tolerance: Tolerance,
) -> tuple[tuple[Numbers, ...], tuple[str, ...]]:
    """Compares the values of each side that can run with the first side's, on `arrays`.

    Returns the differences, and notes on sides whose values cannot be compared.
    """
    if arrays is None or isinstance(sides[0], Recorded):
        return (), ()
    first, notes, comparisons = None, [], []
    for side in sides:
        if isinstance(side, Recorded):
            continue
        try:
            ran = _ran(side, arrays, settings)
        except TracerError as error:
            notes.append(f"numbers not compared: {side.label}: {error.what}")
            continue
        if ran.obstacle:
            notes.append(f"only outputs are compared: {side.label}: {ran.obstacle}")
        if first is not None:
            comparisons.append(_numbers(first, ran, tolerance, settings))
        elif side is not sides[0]:
            break
        first = first or ran
    return tuple(comparisons), tuple(notes)


def _numbers(first: _Ran, second: _Ran, tolerance: Tolerance, settings: SideSettings) -> Numbers:
    """Returns the differences; if there are any, with a note on whether the weights are equal."""
    if first.model is None or second.model is None:
        return numbers(first.values, second.values, tolerance)
    isolated, obstacle = _isolated(first, second, tolerance)
    exact = precisions(second.model, _by_tensor(second.model, second.values))
    by_node = {n.key: exact[n.outputs[0]] for n in second.model.nodes if _first(n) in exact}
    result = numbers(first.values, second.values, tolerance, by_node, isolated)
    quantised = [has_rounded_weights(ran.model) for ran in (first, second) if ran.model]
    if quantised[0] != quantised[1]:
        which = (first if quantised[0] else second).side.label
        result = replace(result, no_verdict=f"{which} is quantised and the other is not")
    if obstacle:
        result = replace(result, notes=(*result.notes, obstacle))
    if not result.differ:
        return result
    other, count = unshared(first.model, second.model)
    if not other:
        return replace(result, notes=(*result.notes, "the weights are the same on both sides"))
    note = f"{other:,} of {count:,} weights of {second.side.label} are not in {first.side.label}"
    modules = [ran.side for ran in (first, second) if isinstance(ran.side, FrameworkSide)]
    untrained = [side for side in modules if settings.weights_of(side.framework) is None]
    if untrained:
        files = " ".join(f"--weights {side.framework}=FILE" for side in untrained)
        note += f"; to compare trained models, give {files}"
    return replace(result, notes=(*result.notes, note))


def _isolated(
    first: _Ran, second: _Ran, tolerance: Tolerance
) -> tuple[Mapping[str, Difference] | None, str]:
    """Returns what each layer of the second side differs by on the values of the first, by node.

    Or None, and why the interpreter does not run the second side so.
    """
    assert second.model is not None
    outputs = {node.key: _first(node) for node in second.model.nodes}
    expected = {
        outputs[other]: in_type_of(first.values.by_node[key], second.values.by_node[other])
        for key, other in pairs(first.values, second.values)
    }
    isolation = Isolation(second.model, expected, tolerance)
    try:
        Interpreter(second.model, observers=[isolation]).run(None, second.feeds)
    except TracerError as error:
        return None, f"layers are not run on the values of {first.side.label}: {error.what}"
    return isolation.differences, ""


def _by_tensor(model: Model, values: Values) -> Mapping[str, Any]:
    """Returns the values of a side by tensor."""
    return {_first(n): values.by_node[n.key] for n in model.nodes if n.key in values.by_node}


def _first(node: Node) -> str:
    return node.outputs[0] if node.outputs else ""


def _ran(side: OnnxSide | FrameworkSide, arrays: Arrays, settings: SideSettings) -> _Ran:
    if isinstance(side, FrameworkSide):
        with redirect_stdout(sys.stderr):  # stdout is for data; the user's code may print
            return _of_framework(side, arrays, settings)
    if settings.feeds is None:
        feeds = _feeds_by_name(side.model, arrays)
    else:  # the file tells by name
        feeds = dict(side.request(settings).feeds().feeds)
    tensors = side.tensors(FeedSet(feeds, None), settings)
    values = _by_node(side.label, side.model, feeds, tensors.outputs, tensors.by_name)
    return _Ran(side, side.model, feeds, values)


def _feeds_by_name(model: Model, arrays: Arrays) -> dict[str, Any]:
    """Returns the arrays by input name. Raises UsageError or InputError if they do not fit."""
    names = [value.name for value in model.inputs]
    if len(names) != len(arrays):
        raise UsageError(f"it takes {len(names)} inputs, not {len(arrays)}")
    feeds = dict(zip(names, arrays, strict=True))
    check_feeds(model, feeds)
    return feeds


def _of_framework(side: FrameworkSide, arrays: Arrays, settings: SideSettings) -> _Ran:
    """Runs the framework's model; its activations go by the nodes of its exported graph.

    A model that cannot be exported has outputs alone.
    """
    model = load_source(
        side.source,
        settings.arguments,
        weights=settings.weights_of(side.framework),
        framework=side.framework,
        seed=settings.seed,
    )
    exporter = exporter_of(model, side.framework)
    with failing_clearly(model, arrays):
        outputs = exporter.run(model, arrays)
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
    except ModelError as error:
        named = [(f"output {place}", output) for place, output in enumerate(outputs)]
        nothing = Values(side.label, typed(pd.DataFrame()), named, {})
        return _Ran(side, None, {}, nothing, error.what)
    exported = loading.from_proto(conversion.proto)
    feeds = _feeds_by_name(exported, arrays)
    tensors_by_name = conversion.values(arrays)
    values = _by_node(side.label, exported, feeds, outputs, tensors_by_name)
    return _Ran(side, exported, feeds, values)


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
    types = infer(model, FeedSet(feeds, None).shapes)
    names = [value.name for value in model.graph.output]
    named_outputs = list(zip(names, outputs, strict=True))
    makers = {
        name: node.key
        for node in model.nodes
        if not node.scope.path
        for name in node.outputs
        if name
    }
    made = {name: makers[name] for name in names if name in makers}
    return Values(label, node_table(model, types, []), named_outputs, by_node, made)
