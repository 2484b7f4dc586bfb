"""Mean squared error."""

from typing import Any

import numpy as np

from tracer.errors import InputError
from tracer.metrics.metric import Outputs, only
from tracer.support.types import FloatArray


def mse(outputs: Outputs, labels: Any) -> FloatArray:
    """Returns the mean squared error of each sample, over its values, float64 (N,).

    Labels have the shape of the output [N, ...]; [N] fits [N, 1] too. Raises InputError for labels
    of another shape.
    """
    output, truth = only(outputs), np.asarray(labels)
    if truth.dtype.kind not in "buif" or output.size != truth.size or len(output) != len(truth):
        raise InputError(
            f"labels {truth.dtype}{list(truth.shape)} do not fit an output {list(output.shape)}",
            "The mean squared error needs a number for each number of the output.",
        )
    if output.shape != truth.shape and truth.ndim != 1:
        raise InputError(
            f"labels {list(truth.shape)} are not in the shape of the output {list(output.shape)}",
            "Reshape the labels.",
        )
    error = output.astype(np.float64).reshape(truth.shape) - truth.astype(np.float64)
    return np.asarray((error**2).reshape(len(error), -1).mean(1))
