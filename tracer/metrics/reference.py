"""Errors against the outputs of a reference, for models without labels."""

from typing import Any

import numpy as np

from tracer.errors import InputError
from tracer.metrics.channels import channel_axes
from tracer.metrics.metric import Outputs
from tracer.support.types import Array, FloatArray

_FEWEST_AXES = 3
"""Axes of an output whose channels have several values in each sample."""


def noise(outputs: Outputs, reference: Any) -> FloatArray:
    """Returns sum (x - q)^2 / sum x^2 of each sample, at most 1, float64 (N,).

    x are the outputs of the reference; -10 log10 of the result is the SQNR in dB. The noisiest of
    several outputs counts, so that large values of one do not hide the loss of another; an output
    with another number of rows than the first has no samples, and does not count. Raises
    InputError for outputs without numbers, or of other shapes than the reference's.
    """
    pairs = _pairs(outputs, reference)
    shares = [_share(_rows(ours), _rows(theirs))[:, 0] for ours, theirs in pairs]
    return np.asarray(np.max(shares, axis=0))


def channel_noise(outputs: Outputs, reference: Any, axis: int | None = None) -> FloatArray:
    """Returns the `noise` of each sample in its noisiest channel, float64 (N,).

    `axis` is the axis of the channels [default: 1]. Large values of one channel do not hide the
    loss of another. Raises InputError for three axes without `axis`, for channels that have one
    value in each sample, and the errors of `noise`.
    """
    shares = []
    for ours, theirs in _pairs(outputs, reference):
        place = _channels(ours, axis)
        in_channels = (_in_channels(each, place) for each in (ours, theirs))
        shares.append(_share(*in_channels).max(1))
    return np.asarray(np.max(shares, axis=0))


def reference_mse(outputs: Outputs, reference: Any) -> FloatArray:
    """Returns the mean squared error of each sample against a reference, float64 (N,).

    The output with the largest error counts. Raises the errors of `noise`.
    """
    pairs = _pairs(outputs, reference)
    errors = [((_rows(theirs) - _rows(ours)) ** 2).mean((1, 2)) for ours, theirs in pairs]
    return np.asarray(np.max(errors, axis=0))


def one_of(outputs: Outputs, name: str) -> Outputs:
    """Returns the output called `name` alone. Raises InputError where there is none."""
    if name not in outputs:
        raise InputError(f"the model has no output '{name}'", f"It has {', '.join(outputs)}.")
    return {name: outputs[name]}


def _pairs(outputs: Outputs, reference: Any) -> list[tuple[Array, Array]]:
    """Float outputs and those of the reference, as float64 arrays; integers without floats."""
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
        pairs.append((ours.astype(np.float64), theirs.astype(np.float64)))
    return pairs


def _share(ours: Array, theirs: Array) -> FloatArray:
    """Returns noise / signal, at most 1, float64 (N, rows), of arrays (N, rows, values)."""
    lost, signal = ((theirs - ours) ** 2).sum(2), (theirs**2).sum(2)
    share = np.divide(lost, signal, out=np.sign(lost), where=signal > 0)
    return np.asarray(np.minimum(share, 1.0))


def _rows(value: Array) -> Array:
    return value.reshape(len(value), 1, -1)


def _in_channels(value: Array, axis: int) -> Array:
    return np.moveaxis(value, axis, 1).reshape(len(value), value.shape[axis], -1)


def _channels(output: Array, axis: int | None) -> int:
    """Returns the axis of the channels of an output. Raises InputError where it has none."""
    if axis is None and len(channel_axes(output.ndim)) > 1:
        raise InputError(
            f"channel-noise: the output {list(output.shape)} does not tell which axis has the "
            "channels",
            "Give channel-noise@1 for [N, C, length], or channel-noise@2 for [N, tokens, C].",
        )
    index = 1 if axis is None else axis
    index += output.ndim if index < 0 else 0
    if output.ndim < _FEWEST_AXES or not 0 < index < output.ndim:
        raise InputError(
            f"channel-noise needs channels of several values in each sample, in axis {index} of "
            f"the output, which is {list(output.shape)}",
            "Give noise, or the axis of the channels, as in channel-noise@1.",
        )
    return index
