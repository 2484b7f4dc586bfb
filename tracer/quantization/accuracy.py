"""How good a model is before and after it is quantised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.graph.model import Model
from tracer.inputs.datasets import Batch, Dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.metrics import Metric
from tracer.metrics.fitting import fitting
from tracer.support.progress import Progress
from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A metric of the float model and of the quantised one, in `unit`, over so many samples."""

    metric: str
    unit: str
    before: float
    after: float
    samples: int


def accuracy(
    model: Model,
    quantized: Model,
    dataset: Dataset,
    metric: Metric | None,
    batch: int,
    progress: Progress | None = None,
) -> Accuracy | None:
    """Both models on all samples of `dataset`, `batch` at a time, in the reference interpreter.

    A metric without labels compares with the float model. Without a metric it is top1 or mse where
    there are labels, else agreement, as far as labels and outputs fit; None where none does.
    Raises what the metric raises.
    """
    runs = Interpreter(model), Interpreter(quantized)
    scores: tuple[list[Array], list[Array]] = ([], [])
    done, total = 0, dataset.samples
    for each in dataset.batches(batch):
        plain, narrow = (_outputs(run, each) for run in runs)
        metric = metric or fitting(each, next(iter(plain.values())))
        if metric is None:
            return None
        truth = metric.labels(each, dataset.name) if metric.needs_labels else plain
        for kept, outputs in zip(scores, (plain, narrow), strict=True):
            kept.append(metric.scores(outputs, truth))
        done += each.size
        if progress is not None:
            progress(done, total or done, "comparing outputs")
    if metric is None:
        return None
    before, after = (metric.value(np.concatenate(kept)) for kept in scores)
    return Accuracy(metric.name, metric.unit, before, after, done)


def _outputs(interpreter: Interpreter, batch: Batch) -> dict[str, Any]:
    """The outputs for the samples that are meant; a fixed batch may hold more."""
    names = [value.name for value in interpreter.get_outputs()]
    made = interpreter.run(None, batch.inputs)
    return {name: value[: batch.size] for name, value in zip(names, made, strict=True)}
