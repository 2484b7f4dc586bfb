"""How far from the right values?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError
from tracer.metrics.metric import Outputs, only


def mse(outputs: Outputs, labels: Any) -> NDArray[np.float64]:
    """The mean, over a sample's values, of the squared difference from its labels, in float64.

    Labels have the shape of the output [N, ...]; [N] fits [N, 1] too. Raises InputError where
    they have another.
    """
    found, wanted = only(outputs), np.asarray(labels)
    if wanted.dtype.kind not in "buif" or found.size != wanted.size or len(found) != len(wanted):
        raise InputError(
            f"labels {wanted.dtype}{list(wanted.shape)} do not fit an output {list(found.shape)}",
            "The mean squared error needs a number for each number of the output.",
        )
    if found.shape != wanted.shape and wanted.ndim != 1:
        raise InputError(
            f"labels {list(wanted.shape)} are not in the shape of the output {list(found.shape)}",
            "Reshape the labels.",
        )
    error = found.astype(np.float64).reshape(wanted.shape) - wanted.astype(np.float64)
    return np.asarray((error**2).reshape(len(error), -1).mean(1))
