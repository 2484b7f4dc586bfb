"""Tells where a metric of classes proves little: the reference predicts one class throughout."""

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from tracer.metrics.metric import Metric, Outputs
from tracer.support.types import Array

ClassCounts: TypeAlias = tuple[Array, Array]
"""Classes, and how often each is predicted."""

_NEARLY_ALL = 0.95
"""Share of the commonest class from which other predictions are too few to judge by."""


def class_counts(metric: Metric, outputs: Outputs) -> ClassCounts:
    """Returns the classes that are predicted for a batch, int64, and the number of each.

    Both are empty for a metric that makes no predictions.
    """
    if metric.predictions is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    classes, counts = np.unique(metric.predictions(outputs), return_counts=True)
    return classes, counts


def one_class_note(metric: Metric, batches: Iterable[ClassCounts]) -> str | None:
    """Returns a note where 95 % or more of the predictions are one class, else None.

    `batches` has the classes that the reference predicts in each batch, from `class_counts`. A
    metric that makes no predictions has no note.
    """
    if metric.predictions is None:
        return None
    numbers, counted = (np.concatenate(each) for each in zip(*batches, strict=True))
    classes, places = np.unique(numbers, return_inverse=True)
    counts = np.zeros(len(classes), np.int64)
    np.add.at(counts, places, counted)
    share = counts.max() / counts.sum()
    if share < _NEARLY_ALL:
        return None
    return (
        f"{share:.1%} of the {counts.sum():,} predictions of the reference are class "
        f"{classes[counts.argmax()]}, which any other model gets right too: {metric.name} proves "
        "little here. Give more varied samples, or --metric noise"
    )
