"""The accuracy of two models on the same data, as far as the time limit of the command allows."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

from tracer.containment import signals
from tracer.containment.activity import Progress, silent
from tracer.graph.model import Model
from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.dataset import Dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.metrics import Metric, default_metric, suited
from tracer.records.transformed import Accuracy
from tracer.support.types import Array

_Part = TypeVar("_Part")


def within_time(parts: Iterable[_Part], share: float) -> Iterator[_Part]:
    """Yields `parts` while `share` of the time that is left suffices; the first in any case.

    A part is expected to take as long as the longest one before. What is done with a part counts.
    """
    began = time.monotonic()
    ends = began + share * signals.seconds_left()
    longest = 0.0
    for part in parts:
        now = time.monotonic()
        if longest and now + longest > ends:
            return
        yield part
        longest = max(longest, time.monotonic() - now)


_TIME_SHARE = 0.8
"""Of the time that is left; the rest is for the tables."""


def accuracy(
    wide: Interpreter,
    quantized: Interpreter,
    dataset: Dataset,
    metric: Metric | None,
    batch: int,
    progress: Progress | None = None,
) -> Accuracy | None:
    """Scores a float model, `wide`, and a quantised one on all samples of `dataset`, by `batch`.

    A metric without labels compares with the float model. Without a metric, chooses one that fits
    labels and outputs, and returns None where none does. Where the time limit of the command does
    not suffice, scores the first samples. Raises the errors of the metric.
    """
    report = progress or silent
    scores: tuple[list[Array], list[Array]] = ([], [])
    done, total = 0, dataset.samples
    for part in within_time(dataset.batches(batch), _TIME_SHARE):
        before, after = (_outputs(each, part) for each in (wide, quantized))
        first = next(iter(before.values()))
        metric = metric or default_metric(part, first)
        if metric is None:
            return None
        metric = suited(metric, part, first)
        truth = metric.labels(part, dataset.name) if metric.needs_labels else before
        for all_scores, outputs in zip(scores, (before, after), strict=True):
            all_scores.append(metric.scores(outputs, truth))
        done += part.size
        report(done, total or done, "comparing outputs")
    if metric is None:
        return None
    before_value, after_value = (metric.value(np.concatenate(each)) for each in scores)
    return Accuracy(metric.name, metric.unit, before_value, after_value, done)


def check(model: Model, dataset: Dataset, metric: Metric) -> None:
    """Raises the errors of `metric` that one sample of `dataset` shows, before all the others."""
    sample = next(dataset.batches(1))
    outputs = _outputs(Interpreter(model), sample)
    metric = suited(metric, sample, next(iter(outputs.values())))
    metric.scores(outputs, metric.labels(sample, dataset.name) if metric.needs_labels else outputs)


def _outputs(interpreter: Interpreter, batch: Batch) -> dict[str, Array]:
    """The outputs of the samples of the data set, in rows: a fixed batch may be padded.

    A scalar is the row of one sample.
    """
    names = [value.name for value in interpreter.get_outputs()]
    rows = [np.atleast_1d(value) for value in interpreter.run(None, batch.inputs)]
    return {name: value[: batch.size] for name, value in zip(names, rows, strict=True)}
