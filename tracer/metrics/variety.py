"""Tells where a metric of classes proves little: the reference predicts one class throughout."""

from collections.abc import Iterable

import numpy as np

from tracer.metrics.metric import Metric, Outputs

_NEARLY_ALL = 0.95
"""Share of the commonest class from which other predictions are too few to judge by."""


def one_class_note(metric: Metric, runs: Iterable[Outputs]) -> str | None:
    """Returns a note where 95 % or more of the predictions in `runs` are one class, else None.

    `runs` has the outputs of the reference for each batch. A metric that makes no predictions has
    no note.
    """
    if metric.predictions is None:
        return None
    classes, counts = np.unique(
        np.concatenate([metric.predictions(outputs).reshape(-1) for outputs in runs]),
        return_counts=True,
    )
    share = counts.max() / counts.sum()
    if share < _NEARLY_ALL:
        return None
    return (
        f"{share:.1%} of the {counts.sum():,} predictions of the reference are class "
        f"{classes[counts.argmax()]}, which any other model gets right too: {metric.name} proves "
        "little here. Give more varied samples, or --metric noise"
    )
