"""The metric that a what-if judges by, and how it scores batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracer import metrics
from tracer.errors import UsageError
from tracer.graph.model import Model
from tracer.inputs.datasets import Dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.metrics import Metric
from tracer.metrics.fitting import fitting


def metric(model: Model, dataset: Dataset, spec: str | None) -> Metric:
    """The metric called `spec`; without one, the usual for the outputs and the labels.

    It is tried on one sample first. Raises UsageError where none fits, and what a metric raises
    where this one does not.
    """
    sample = next(dataset.batches(1))
    outputs = Interpreter(model).run(None, sample.inputs)
    found = fitting(sample, outputs[0]) if spec is None else metrics.find(spec)
    if found is None:
        labels = "no labels" if sample.labels is None else f"labels {_told(sample.labels)}"
        raise UsageError(
            f"no metric fits an output {_told(outputs[0])} of {model.name} and {labels} of "
            f"{dataset.name}",
            "Give --metric: top1, top5, mse, agreement, or FILE.py:NAME.",
        )
    scoring(model, dataset, found)(outputs, sample, outputs)
    return found


def scoring(
    model: Model, dataset: Dataset, metric: Metric
) -> Callable[[Sequence[Any], Any, Sequence[Any]], Any]:
    """Scores, in the unit of the metric, of outputs for a batch, given those of wide sums."""
    names = [value.name for value in model.graph.output]

    def named(outputs: Sequence[Any], size: int) -> dict[str, Any]:
        """Outputs for the samples that are meant; a fixed batch may hold more."""
        return {name: value[:size] for name, value in zip(names, outputs, strict=True)}

    def score(outputs: Sequence[Any], batch: Any, wide: Sequence[Any]) -> Any:
        truth = (
            metric.labels(batch, dataset.name) if metric.needs_labels else named(wide, batch.size)
        )
        return np.asarray(metric.scores(named(outputs, batch.size), truth)) * metric.scale

    return score


def _told(array: Any) -> str:
    """Type and shape of a sample: `float32[10]`."""
    return f"{array.dtype}{list(array.shape[1:])}"
