"""Chooses the metric that fits a model's outputs and the labels, where the user names none."""

from __future__ import annotations

from tracer.inputs.datasets import Batch
from tracer.metrics import METRICS
from tracer.metrics.metric import Metric
from tracer.metrics.ranking import class_axis
from tracer.support.types import Array


def default_metric(batch: Batch, output: Array) -> Metric | None:
    """Returns top1 or mse where the labels fit the output, else agreement, else None."""
    classes = output.ndim >= 2 and output.shape[class_axis(output.ndim)] > 1
    if batch.labels is None:
        return METRICS["agreement"] if classes else None
    class_numbers = batch.labels.dtype.kind in "iu" and batch.labels.ndim == 1
    if classes and class_numbers and output.ndim == 2:
        return METRICS["top1"]
    return METRICS["mse"] if batch.labels.size == output.size else None
