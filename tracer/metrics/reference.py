"""Errors against the outputs of a reference, for models without labels."""

from typing import Any

import numpy as np

from tracer.errors import InputError
from tracer.metrics.metric import Outputs
from tracer.support.types import Array, FloatArray


def noise(outputs: Outputs, reference: Any) -> FloatArray:
    """Returns sum (x - q)^2 / sum x^2 of each sample, at most 1, float64 (N,).

    x are the outputs of the reference; -10 log10 of the result is the SQNR in dB. The noisiest of
    several outputs counts, so that large values of one do not hide the loss of another; an output
    with another number of rows than the first has no samples, and does not count. Raises
    InputError for outputs without numbers, or of other shapes than the reference's.
    """
    shares = []
    for ours, theirs in _pairs(outputs, reference):
        lost, signal = ((theirs - ours) ** 2).sum(1), (theirs**2).sum(1)
        share = np.divide(lost, signal, out=np.sign(lost), where=signal > 0)
        shares.append(np.minimum(share, 1.0))
    return np.asarray(np.max(shares, axis=0))


def reference_mse(outputs: Outputs, reference: Any) -> FloatArray:
    """Returns the mean squared error of each sample against a reference, float64 (N,).

    The output with the largest error counts. Raises the errors of `noise`.
    """
    errors = [((theirs - ours) ** 2).mean(1) for ours, theirs in _pairs(outputs, reference)]
    return np.asarray(np.max(errors, axis=0))


def one_of(outputs: Outputs, name: str) -> Outputs:
    """Returns the output called `name` alone. Raises InputError where there is none."""
    if name not in outputs:
        raise InputError(f"the model has no output '{name}'", f"It has {', '.join(outputs)}.")
    return {name: outputs[name]}


def _pairs(outputs: Outputs, reference: Any) -> list[tuple[Array, Array]]:
    """Float outputs and those of the reference, as float64 (N, values); integers without floats."""
    count = len(next(iter(outputs.values())))
    numeric = [
        name
        for name, value in outputs.items()
        if value.dtype.kind in "buif" and value.size and len(value) == count
    ]
    floats = [name for name in numeric if outputs[name].dtype.kind == "f"]
    if not numeric:
        raise InputError("no output has numbers to compare", "Give FILE.py:NAME.")
    pairs = []
    for name in floats or numeric:
        ours, theirs = outputs[name], reference[name]
        if ours.shape != theirs.shape:
            raise InputError(
                f"output '{name}' is {list(ours.shape)}, the reference's is {list(theirs.shape)}",
                "Compare the same model on the same data, or one output, as in noise@NAME.",
            )
        pairs.append((_rows(ours), _rows(theirs)))
    return pairs


def _rows(value: Array) -> Array:
    return value.reshape(len(value), -1).astype(np.float64)
