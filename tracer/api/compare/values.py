"""Compare what the sides compute: outputs, the tensor of every node, and scores on a data set.

A layer that differs is run on the values of the first model, which tells its own error. Where all
that follows from it agrees, the difference is evidence against the layer as much as against the
pair of tensors that are compared. `LayerComparison` tells which.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from tracer import metrics
from tracer.analyzers.compare.numbers import (
    Numbers,
    Scores,
    TensorDifferences,
    count_reordered,
    in_type_of,
    numbers,
    scores_of,
    unshared,
)
from tracer.analyzers.compare.tensor_pairs import (
    TensorPair,
    Values,
    leading_to_others,
    tensor_pairs,
    without_effect,
)
from tracer.analyzers.table import node_table
from tracer.api.compare import SideSettings
from tracer.api.compare.naming import Arrays
from tracer.api.compare.sides import (
    FrameworkSide,
    LiveSide,
    NamedSide,
    OnnxSide,
    Recorded,
    RemoteModule,
)
from tracer.containment.activity import Progress
from tracer.errors import ModelError, TracerError, UsageError, locate_errors
from tracer.executors.eager import failing_clearly
from tracer.exporters.records import ExportOptions, InputSpec, exporter_of
from tracer.exporters.subject import load_source
from tracer.graph import loading, operators, tensor_type
from tracer.graph.model import Model
from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.datasets.opening import open_dataset
from tracer.inputs.feedset import FeedSet, check_feeds
from tracer.inputs.request import Samples
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import Isolation
from tracer.metrics import Metric, default_metric, suited
from tracer.metrics.metric import Outputs
from tracer.quantization.layers import within_time
from tracer.records.environment import TF32
from tracer.records.trace import typed_table
from tracer.shapes import infer
from tracer.support.imports import not_installed
from tracer.support.tolerance import TF32_SHARE, Difference, Tolerance
from tracer.support.types import FloatArray
from tracer.text import agree, plural

_BATCH = 8
"""Samples of an inference, unless the settings or a model say otherwise.

The logits of a window of 256 tokens take 33 MB for a vocabulary of 32,000.
"""
_SHARE = 0.8
"""Of the time that is left, for each pair of sides; the rest is for the tables."""
_AGREEMENT = "agreement"
_TRIALS = 8
"""Pairs of layers that differ without which the model is run once more. A run takes about as long
as an inference of the interpreter."""

Own = Mapping[str, Difference]
"""What each layer differs by on the values of the first model, by key."""


@dataclass(frozen=True, slots=True)
class _RunSide:
    """A side after a run, and the graph whose nodes its values go by.

    `obstacle` is why there is no graph. `products` are the shares of the scale to which the device
    knows products, by operator, where it rounds their factors.
    """

    side: LiveSide
    model: Model | None
    feeds: Mapping[str, Any]
    values: Values
    obstacle: str = ""
    products: Mapping[str, float] = field(default_factory=dict)


def compare_values(
    sides: Sequence[NamedSide], arrays: Arrays | None, settings: SideSettings, tolerance: Tolerance
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
            run = _run_side(side, arrays, settings)
        except TracerError as error:
            notes.append(f"numbers not compared: {side.label}: {error.what}")
            continue
        if run.obstacle:
            notes.append(f"only outputs are compared: {side.label}: {run.obstacle}")
        if first is not None:
            comparisons.append(_numbers(first, run, tolerance, settings))
        elif side is not sides[0]:
            break
        first = first or run
    return tuple(comparisons), tuple(notes)


def _numbers(
    first: _RunSide, second: _RunSide, tolerance: Tolerance, settings: SideSettings
) -> Numbers:
    """Returns the differences; if there are any, with a note on whether the weights are equal."""
    if first.model is None or second.model is None:
        return numbers(first.values, second.values, tolerance)
    quantised = [operators.rounded_node(model) is not None for model in (first.model, second.model)]
    releases = {run.side.release for run in (first, second) if isinstance(run.side, OnnxSide)}
    comparison = LayerComparison(
        first.values, second.values, second.model, second.feeds,
        {**first.products, **second.products}, tolerance,
    )  # fmt: skip
    result = comparison.numbers(
        is_isolated=len(releases) < 2,  # the interpreter is that of all releases
        has_verdict=quantised[0] == quantised[1],
    )
    if quantised[0] != quantised[1]:
        which = (first if quantised[0] else second).side.label
        result = replace(result, no_verdict=f"{which} is quantised and the other is not")
    if all((table["fault"] == "").all() for table in (result.layers, result.outputs)):
        return result
    other, count = unshared(first.model, second.model)
    if not count:
        return result
    if not other:
        note = "the weights are the same on both sides"
        if moved := count_reordered(first.model, second.model):
            note = (
                f"the weights have the same elements on both sides, {moved:,} of {count:,} in "
                "another order"
            )
        return replace(result, notes=(*result.notes, note))
    note = f"{other:,} of {count:,} weights of {second.side.label} are not in {first.side.label}"
    modules = [run.side for run in (first, second) if isinstance(run.side, FrameworkSide)]
    untrained = [side for side in modules if settings.weights_of(side.framework) is None]
    if untrained:
        files = " ".join(f"--weights {side.framework}=FILE" for side in untrained)
        note += f"; to compare trained models, give {files}"
    return replace(result, notes=(*result.notes, note))


def _run_side(side: LiveSide, arrays: Arrays, settings: SideSettings) -> _RunSide:
    if isinstance(side, RemoteModule):
        there: _RunSide = side.process.call(_of_framework, side.local, arrays, settings)
        return replace(there, side=side)
    if isinstance(side, FrameworkSide):
        with redirect_stdout(sys.stderr):  # stdout is for data; the user's code may print
            return _of_framework(side, arrays, settings)
    if settings.inputs is None:
        feeds = _feeds_by_name(side.model, arrays)
    else:  # the file tells by name
        feeds = dict(side.request(settings).feeds().feeds)
    tensors = side.tensors(FeedSet(feeds, None), settings)
    values = _by_node(side.label, side.model, feeds, tensors.outputs, tensors.by_name)
    return _RunSide(side, side.model, feeds, values)


def _feeds_by_name(model: Model, arrays: Arrays) -> dict[str, Any]:
    """Returns the arrays by input name, floats in the type that the model takes.

    Raises UsageError or InputError if they do not fit.
    """
    kinds = tensor_type.declared_types(model.inputs)
    if len(kinds) != len(arrays):
        raise UsageError(f"it takes {len(kinds)} inputs, not {len(arrays)}")
    feeds: dict[str, Any] = {}
    for (name, kind), array in zip(kinds.items(), arrays, strict=True):
        feeds[name] = array
        if kind is not None and "float" in kind.dtype and "float" in array.dtype.name:
            feeds[name] = array.astype(tensor_type.numpy_dtype(kind.dtype))
    check_feeds(model, feeds)
    return feeds


def _of_framework(side: FrameworkSide, arrays: Arrays, settings: SideSettings) -> _RunSide:
    """Runs the framework's model on its device; activations go by the nodes of its exported graph.

    A model that cannot be exported has outputs alone.
    """
    weights, seed = settings.weights_of(side.framework), settings.seed
    model: Any = load_source(
        side.source, settings.args, weights=weights, framework=side.framework, seed=seed
    )
    device, products = side.on(settings), dict[str, float]()
    if device != "cpu":
        from tracer.host.card import multiplied_as  # imports torch

        model.to(device)
        convolutions = operators.product_types(operators.CONVOLUTION, operators.TRANSPOSED)
        for name in operators.PRODUCTS:  # a card knows those that torch computes in TF32 by less
            if multiplied_as("conv" if name in convolutions else "matmul") == TF32:
                products[name] = TF32_SHARE
    exporter = exporter_of(model, side.framework)
    with failing_clearly(model, arrays):
        outputs = exporter.run(model, arrays)
    specs = [InputSpec(tuple(array.shape), array.dtype.name) for array in arrays]
    keeps = side.framework == "torch"  # Chainer's exporter folds none
    options = ExportOptions(framework=side.framework, dynamic_batch=False, keep_batchnorm=keeps)
    try:
        conversion = exporter.convert(model, specs, options)
    except ModuleNotFoundError as error:
        raise not_installed(f"running {side.source}", error) from error
    except ModelError as error:
        named = [(f"output {place}", output) for place, output in enumerate(outputs)]
        nothing = Values(side.label, typed_table(pd.DataFrame()), named, {})
        return _RunSide(side, None, {}, nothing, error.what)
    exported = loading.from_proto(conversion.proto)
    feeds = _feeds_by_name(exported, arrays)
    tensors_by_name = conversion.values(arrays)
    values = _by_node(side.label, exported, feeds, outputs, tensors_by_name)
    return _RunSide(side, exported, feeds, values, products=products)


def _by_node(
    label: str,
    model: Model,
    feeds: Mapping[str, Any],
    outputs: Sequence[Any],
    tensors_by_name: Mapping[str, Any],
) -> Values:
    """Returns the outputs, and tensors of the main graph by the node that computes them."""
    main = [node for node in model.nodes if not node.scope.path]
    by_node = {
        node.key: tensors_by_name[node.outputs[0]]
        for node in main
        if node.outputs and node.outputs[0] in tensors_by_name
    }
    types = infer(model, FeedSet(feeds, None).shapes)
    names = [value.name for value in model.graph.output]
    named_outputs = list(zip(names, outputs, strict=True))
    made = {name: node.key for node in main for name in node.outputs if name in names}
    return Values(label, node_table(model, types, []), named_outputs, by_node, made, model)


@dataclass(frozen=True, slots=True)
class Scoring:
    """A data set, and the names of the metrics [default: those that fit]."""

    data: Samples
    metrics: Sequence[str] = ()

    def open(self, side: OnnxSide) -> Dataset:
        """Returns the data set as a side takes it."""
        data = self.data
        return open_dataset(data.name, side.model, limit=data.limit, folder=data.folder)


@dataclass(frozen=True, slots=True)
class _Tally:
    """A metric, with the scores of each batch of the first and of the second side, in its unit."""

    metric: Metric
    first: list[FloatArray] = field(default_factory=list)
    second: list[FloatArray] = field(default_factory=list)

    def add(self, batch: Batch, data: str, first: Outputs, second: Outputs) -> None:
        """Scores a batch."""
        truth = self.metric.labels(batch, data) if self.metric.needs_labels else first
        for kept, outputs in ((self.first, first), (self.second, second)):
            with locate_errors(data):
                kept.append(self.metric.scores(outputs, truth) * self.metric.scale)

    def result(self, side: str, data: str) -> Scores:
        """Returns the scores of the second side; the first has none of its own as a reference."""
        first = np.concatenate(self.first) if self.metric.needs_labels else None
        own = np.concatenate(self.second)
        return scores_of(side, self.metric.name, self.metric.unit, data, own, first)


def check_scoring(sides: Sequence[NamedSide], scoring: Scoring) -> None:
    """Raises the errors of the first side, the data set and the metrics, before anything runs."""
    first = sides[0]
    if not isinstance(first, OnnxSide):
        raise UsageError(
            f"--data scores ONNX models, and {first.label} is none", "Name an ONNX model first."
        )
    for name in scoring.metrics:
        metrics.find(name)
    scoring.open(first)


def compare_scores(
    sides: Sequence[NamedSide], scoring: Scoring, settings: SideSettings, progress: Progress
) -> tuple[tuple[Scores, ...], tuple[str, ...]]:
    """Scores each ONNX model but the first, beside the first.

    Without names, the metrics are the one that fits the labels, and where it is about classes or
    tokens, agreement with the first side. Returns notes on sides that are not scored. Raises
    UsageError where no metric fits, and the errors of the data set and of the metrics.
    """
    first, *others = sides
    assert isinstance(first, OnnxSide)
    results, notes = list[Scores](), list[str]()
    for side in others:
        if isinstance(side, OnnxSide):
            scores, told = _score_pair((first, side), scoring, settings, progress)
            results, notes = [*results, *scores], [*notes, *told]
        else:
            notes.append(f"{side.label} is not scored: it is no ONNX model")
    return tuple(results), tuple(dict.fromkeys(notes))


def _score_pair(
    pair: tuple[OnnxSide, OnnxSide], scoring: Scoring, settings: SideSettings, progress: Progress
) -> tuple[list[Scores], Iterable[str]]:
    """Returns the scores of the second side, and notes; no other side is open beside the two.

    Raises UsageError where the models fix two numbers of samples.
    """
    datasets, data = [scoring.open(side) for side in pair], str(scoring.data)
    fixed = {dataset.layout.batch for dataset in datasets} - {None}
    if len(fixed) > 1:
        labels = " and ".join(side.label for side in pair)
        numbers = " and ".join(map(str, sorted(filter(None, fixed))))
        raise UsageError(
            f"{labels} take {numbers} samples at a time",
            "Leave --data out, or export them with a dynamic batch.",
        )
    size, total = next(iter(fixed), None) or settings.batch or _BATCH, datasets[0].samples
    tallies: list[_Tally] = []
    done = 0
    with ExitStack() as stack:
        runs = [stack.enter_context(side.outputs(settings)) for side in pair]
        batches = zip(*(dataset.batches(size) for dataset in datasets), strict=True)
        for parts in within_time(batches, _SHARE):
            outputs = []
            for side, run, part in zip(pair, runs, parts, strict=True):
                names = [value.name for value in side.model.graph.output]
                rows = map(np.atleast_1d, run(part.inputs))
                # Rows that pad a batch are no samples.
                outputs.append({n: v[: part.size] for n, v in zip(names, rows, strict=True)})
            tallies = tallies or _tallies(scoring, parts[0], outputs[0])
            for tally in tallies:
                tally.add(parts[0], data, outputs[0], outputs[1])
            done += parts[0].size
            progress(done, total or done, "comparing accuracy")
    return [tally.result(pair[1].label, data) for tally in tallies], datasets[0].notes


def _tallies(scoring: Scoring, batch: Batch, outputs: Outputs) -> list[_Tally]:
    output = next(iter(outputs.values()))
    chosen = [metrics.find(name) for name in scoring.metrics]
    if not chosen:
        fitting = default_metric(batch, output)
        if fitting is None:
            raise UsageError(
                f"no metric fits the outputs and the labels of {scoring.data}",
                f"Give --metric: {', '.join(metrics.METRICS)}, or FILE.py:NAME.",
            )
        chosen = [fitting]
        if fitting.name in ("top1", "perplexity"):
            chosen.append(metrics.find(_AGREEMENT))
    return [_Tally(suited(metric, batch, output)) for metric in chosen]


class LayerComparison:
    """Compares the layers of a second model, which ran on `feeds`, with those of a first.

    `products` are shares of the scale that a device knows products to, by operator.
    """

    def __init__(
        self, first: Values, second: Values, model: Model, feeds: Mapping[str, Any],
        products: Mapping[str, float], tolerance: Tolerance,
    ) -> None:  # fmt: skip
        self._first, self._second, self._model, self._feeds = first, second, model, feeds
        self._products, self._tolerance = products, tolerance
        self._names = {node.key: node.outputs[0] for node in model.nodes if node.outputs}
        self._by_tensor = {self._names[key]: value for key, value in second.by_node.items()}
        exact = operators.precisions(model, self._by_tensor, products=products)
        by_node = {key: exact[name] for key, name in self._names.items() if name in exact}
        self._differences = TensorDifferences(first, second, tolerance, by_node)

    def numbers(self, is_isolated: bool, has_verdict: bool) -> Numbers:
        """Returns the differences of layers and outputs.

        Layers run on the values of the first model if `is_isolated`. Without a verdict no pair is
        doubted.
        """
        differences = self._differences
        pairs = tensor_pairs(self._first, self._second, differences.agree)
        wrong = {row["output_b"] for row in differences.outputs if row["fault"]}
        doubtable = set[TensorPair]()
        if has_verdict:
            doubtable.update(without_effect(pairs, self._model, differences.agree, wrong))
        likely = [
            p for p in pairs
            if p.is_certain or p not in doubtable or differences.agree(p.first, p.second)
        ]  # fmt: skip
        kept, own, obstacle = likely, None, ""
        first, second = self._first.by_node, self._second.by_node
        of_both = [(first[pair.first], second[pair.second]) for pair in pairs]
        if any(in_type_of(a, b) is not a and a.itemsize < b.itemsize for a, b in of_both):
            obstacle = f"{self._first.label} has narrower floats: layers are not run on its values"
        elif is_isolated:
            try:
                kept, own = self._isolated(pairs, likely, doubtable)
            except TracerError as error:
                obstacle = f"layers are not run on the values of {self._first.label}: {error.what}"
        left = len(pairs) - len(kept)
        uncertain = (
            f"{plural(left, 'layer')} {agree(left, 'is', 'are')} left out: "
            f"{agree(left, 'it differs', 'they differ')} and what follows does not, so the tensors "
            "of both sides may not be the same"
        )
        result = differences.numbers(kept, own)
        notes = [note for note in (left and uncertain, obstacle) if note]
        return replace(result, notes=(*result.notes, *notes))

    def _isolated(
        self, pairs: list[TensorPair], likely: list[TensorPair], doubtable: Set[TensorPair]
    ) -> tuple[list[TensorPair], Own]:
        """Returns the pairs that are compared, and the own differences of their layers.

        The `likely` ones are tried where the model does not run on the values of all. Pairs of
        tensors that have little in common are wrong. So is one without which the layers behind it
        no longer differ: they undo what it does, such as a scale that is applied earlier, or a
        normalisation that is in the weights of a convolution.
        """
        try:
            own = self._own_differences(pairs)
        except TracerError:
            if len(likely) == len(pairs):
                raise
            pairs, own = likely, self._own_differences(likely)
        differing = _differing(pairs, own, doubtable)
        while wrong := {p for p in differing if not p.is_certain and not self._is_close(p)}:
            pairs = [pair for pair in pairs if pair not in wrong]
            own = self._own_differences(pairs)
            differing = _differing(pairs, own, doubtable)
        tried = set[TensorPair]()
        while len(tried) < _TRIALS:
            leading = leading_to_others(differing, self._model)
            pair = next((each for each in leading if each not in tried), None)
            if pair is None:
                break
            tried.add(pair)
            others = [each for each in pairs if each != pair]
            without = self._own_differences(others)
            remaining = _differing(others, without, doubtable)
            if set(remaining) < set(differing) - {pair}:
                pairs, own, differing = others, without, remaining
        unproven = {
            p for p in differing if not (p.is_certain or (p.is_alike and self._is_close(p)))
        }
        return [pair for pair in pairs if pair not in unproven], own

    def _own_differences(self, pairs: Sequence[TensorPair]) -> Own:
        first, second = self._first.by_node, self._second.by_node
        expected = {
            self._names[pair.second]: in_type_of(first[pair.first], second[pair.second])
            for pair in pairs
        }
        isolation = Isolation(
            self._model, expected, self._tolerance, self._products, self._by_tensor
        )
        Interpreter(self._model, observers=[isolation], late_kernels=True).run(None, self._feeds)
        return isolation.differences

    def _is_close(self, pair: TensorPair) -> bool:
        return self._differences.are_close(pair.first, pair.second)


def _differing(
    pairs: Sequence[TensorPair], own: Own, doubtable: Set[TensorPair]
) -> list[TensorPair]:
    faulty = {key for key, difference in own.items() if difference.fault}
    return [pair for pair in pairs if pair.second in faulty and pair in doubtable]
