"""Leaves the pages of mapped weights to the system after each node of a large model."""

from collections.abc import Mapping, Sequence

import numpy as np

from tracer.graph import external_data
from tracer.interpreter.binding import Body, Kernel
from tracer.interpreter.values import Value


def leaving(kernel: Kernel) -> Kernel:
    """Returns `kernel`, after which the pages of its mapped inputs are not in this process.

    The system still has them in its cache, so a later run reads no disk unless memory is short.
    """

    def kernel_leaving(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        outputs = kernel(inputs, bodies)
        for value in inputs:
            if isinstance(value, np.ndarray):
                external_data.leave(value)
        return outputs

    return kernel_leaving
