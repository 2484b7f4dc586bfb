"""Scores the sides of a comparison on a data set: accuracy, and agreement with the first side."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracer import metrics
from tracer.analyzers.compare.numbers import Scores, scores_of
from tracer.api.compare.settings import SideSettings
from tracer.api.compare.sides import NamedSide, OnnxSide
from tracer.errors import UsageError
from tracer.graph.model import Model
from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.datasets.opening import open_dataset
from tracer.inputs.feedset import Feeds
from tracer.inputs.request import Samples
from tracer.metrics import Metric, default_metric, suited
from tracer.metrics.metric import Outputs
from tracer.quantization.time_left import within_time
from tracer.support.progress import Progress
from tracer.support.types import FloatArray

_BATCH = 8
"""Samples of an inference, unless the settings or a model say otherwise.

The logits of a window of 256 tokens take 33 MB for a vocabulary of 32,000.
"""
_SHARE = 0.8
"""Of the time that is left, for each pair of sides; the rest is for the tables."""
_AGREEMENT = "agreement"


@dataclass(frozen=True, slots=True)
class _Scored:
    """A metric, with the scores of each batch of the first and of the second side, in its unit."""

    metric: Metric
    first: list[FloatArray] = field(default_factory=list)
    second: list[FloatArray] = field(default_factory=list)

    def add(self, batch: Batch, data: str, first: Outputs, second: Outputs) -> None:
        """Scores a batch."""
        truth = self.metric.labels(batch, data) if self.metric.needs_labels else first
        for kept, outputs in ((self.first, first), (self.second, second)):
            kept.append(self.metric.scores(outputs, truth) * self.metric.scale)

    def result(self, side: str, data: str) -> Scores:
        """Returns the scores of the second side; the first has none of its own as a reference."""
        first = np.concatenate(self.first) if self.metric.needs_labels else None
        own = np.concatenate(self.second)
        return scores_of(side, self.metric.name, self.metric.unit, data, own, first)


def check(sides: Sequence[NamedSide], data: Samples, names: Sequence[str]) -> None:
    """Raises the errors of the first side, the data set and the names, before anything runs."""
    first = sides[0]
    if not isinstance(first, OnnxSide):
        raise UsageError(
            f"--data scores ONNX models, and {first.label} is none", "Name an ONNX model first."
        )
    for name in names:
        metrics.find(name)
    open_dataset(data.name, first.model, limit=data.limit, folder=data.folder)


def score(
    sides: Sequence[NamedSide],
    data: Samples,
    names: Sequence[str],
    settings: SideSettings,
    progress: Progress,
) -> tuple[tuple[Scores, ...], tuple[str, ...]]:
    """Scores each ONNX model but the first, beside the first, by the metrics called `names`.

    Without names, the metrics are the one that fits the labels, and where it is about classes or
    tokens, agreement with the first side. Returns notes on sides that are not scored. Raises
    UsageError where no metric fits, and the errors of the data set and of the metrics.
    """
    first, *others = sides
    assert isinstance(first, OnnxSide)
    chosen = [metrics.find(name) for name in names]
    results, notes = list[Scores](), list[str]()
    for side in others:
        if isinstance(side, OnnxSide):
            results += _pair(first, side, data, chosen, settings, progress)
        else:
            notes.append(f"{side.label} is not scored: it is no ONNX model")
    return tuple(results), tuple(notes)


def _pair(
    first: OnnxSide,
    second: OnnxSide,
    data: Samples,
    chosen: Sequence[Metric],
    settings: SideSettings,
    progress: Progress,
) -> list[Scores]:
    """Returns the scores of the second side; no other side is open beside the two."""
    pair = (first, second)
    datasets = [
        open_dataset(data.name, side.model, limit=data.limit, folder=data.folder) for side in pair
    ]
    size, total = _batch_size(pair, datasets, settings), datasets[0].samples
    tallies: list[_Scored] = []
    done = 0
    with ExitStack() as stack:
        runs = [stack.enter_context(side.outputs(settings)) for side in pair]
        batches = zip(*(dataset.batches(size) for dataset in datasets), strict=True)
        for parts in within_time(batches, _SHARE):
            outputs = [
                _by_name(side.model, run, part)
                for side, run, part in zip(pair, runs, parts, strict=True)
            ]
            tallies = tallies or _tallies(chosen, parts[0], outputs[0], str(data))
            for tally in tallies:
                tally.add(parts[0], str(data), outputs[0], outputs[1])
            done += parts[0].size
            progress(done, total or done, "comparing accuracy")
    return [tally.result(second.label, str(data)) for tally in tallies]


def _tallies(chosen: Sequence[Metric], batch: Batch, outputs: Outputs, data: str) -> list[_Scored]:
    output = next(iter(outputs.values()))
    if not chosen:
        fitting = default_metric(batch, output)
        if fitting is None:
            raise UsageError(
                f"no metric fits the outputs and the labels of {data}",
                f"Give --metric: {', '.join(metrics.METRICS)}, or FILE.py:NAME.",
            )
        chosen = [fitting]
        if fitting.name in ("top1", "perplexity"):
            chosen = [fitting, metrics.find(_AGREEMENT)]
    return [_Scored(suited(metric, batch, output)) for metric in chosen]


def _batch_size(
    pair: Sequence[OnnxSide], datasets: Sequence[Dataset], settings: SideSettings
) -> int:
    """Returns the samples of an inference. Raises UsageError where the models fix two numbers."""
    fixed = {dataset.layout.batch for dataset in datasets} - {None}
    if len(fixed) > 1:
        labels = " and ".join(side.label for side in pair)
        numbers = " and ".join(map(str, sorted(filter(None, fixed))))
        raise UsageError(
            f"{labels} take {numbers} samples at a time",
            "Leave --data out, or export them with a dynamic batch.",
        )
    return next(iter(fixed), None) or settings.batch or _BATCH


def _by_name(
    model: Model, run: Callable[[Feeds], Sequence[Any]], batch: Batch
) -> Mapping[str, Any]:
    """Returns the outputs of the samples of a batch, without those of rows that pad it."""
    names = [value.name for value in model.graph.output]
    rows = map(np.atleast_1d, run(batch.inputs))
    return {name: value[: batch.size] for name, value in zip(names, rows, strict=True)}
