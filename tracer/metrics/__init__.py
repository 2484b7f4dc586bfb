"""Metrics of a model's outputs, scored sample by sample: by name, or FILE.py:NAME."""

import re
from dataclasses import replace
from functools import partial

from tracer.errors import UsageError
from tracer.inputs.datasets.batch import Batch
from tracer.metrics import user_metric
from tracer.metrics.metric import Metric
from tracer.metrics.ranking import agreement, class_axis, top1, top5
from tracer.metrics.regression import mse
from tracer.support.types import Array

METRICS = {
    metric.name: metric
    for metric in (
        Metric("top1", top1),
        Metric("top5", top5),
        Metric("mse", mse, higher_is_better=False, unit=""),
        Metric("agreement", agreement, needs_labels=False),
    )
}

_AXIS = re.compile(r"agreement@(-?[1-9])")


def find(spec: str) -> Metric:
    """Returns the metric called `spec`, or the user's function FILE.py:NAME.

    `agreement@1` has the classes in axis 1. Raises UsageError for an unknown name, InputError for
    a file without such a function.
    """
    if spec in METRICS:
        return METRICS[spec]
    axis = _AXIS.fullmatch(spec)
    if axis is not None:
        function = partial(agreement, axis=int(axis[1]))
        return replace(METRICS["agreement"], name=spec, function=function)
    file, colon, _ = spec.rpartition(":")
    if colon and file.endswith(".py"):
        return user_metric.load(spec)
    raise UsageError(
        f"there is no metric '{spec}'", f"There are {', '.join(METRICS)}; or give FILE.py:NAME."
    )


def default_metric(batch: Batch, output: Array) -> Metric | None:
    """Returns top1 or mse where the labels fit the output, else agreement, else None."""
    classes = output.ndim >= 2 and output.shape[class_axis(output.ndim)] > 1
    if batch.labels is None:
        return METRICS["agreement"] if classes else None
    class_numbers = batch.labels.dtype.kind in "iu" and batch.labels.ndim == 1
    if classes and class_numbers and output.ndim == 2:
        return METRICS["top1"]
    return METRICS["mse"] if batch.labels.size == output.size else None


__all__ = ["METRICS", "Metric", "default_metric", "find"]
