"""The metric that is usual for what a model puts out and what is known of the truth."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tracer.inputs.datasets import Batch
from tracer.metrics import METRICS
from tracer.metrics.metric import Metric
from tracer.metrics.ranking import class_axis


def fitting(batch: Batch, output: NDArray[Any]) -> Metric | None:
    """top1 or mse where the batch has labels that fit the output, else agreement; else None."""
    classes = output.ndim >= 2 and output.shape[class_axis(output.ndim)] > 1
    if batch.labels is None:
        return METRICS["agreement"] if classes else None
    whole = batch.labels.dtype.kind in "iu" and batch.labels.ndim == 1
    if classes and whole and output.ndim == 2:
        return METRICS["top1"]
    return METRICS["mse"] if batch.labels.size == output.size else None
