"""Errors against the outputs of a reference, without labels, and notes where they prove little."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tracer.errors import InputError
from tracer.metrics.metric import Metric, Outputs
from tracer.metrics.scores import IMAGE_RANK
from tracer.support.types import Array, FloatArray

ChannelSquares: TypeAlias = Mapping[tuple[str, int], FloatArray]
"""Sums of squares (channels,) by the name of an output and the axis of its channels."""
_UNLIKE = 16
"""Ratio of the values of two channels from which the noise of one hides the other's: 24 dB."""
ClassCounts: TypeAlias = tuple[Array, Array]
"""Classes, and how often each is predicted."""
_NEARLY_ALL = 0.95
"""Share of the commonest class from which other predictions are too few to judge by."""
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
        place = _channel_axis(ours, axis)
        apart = (np.moveaxis(each, place, 1) for each in (ours, theirs))
        shares.append(_share(*(each.reshape(*each.shape[:2], -1) for each in apart)).max(1))
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


def channel_axes(rank: int) -> tuple[int, ...]:
    """Returns the axes that may be those of the channels in tensors of a rank; axis 0 has samples.

    Images have channels first in ONNX, [N, C, H, W], and rows have them last, [N, C]. A rank of 3
    does not tell: signals and detectors are [N, C, length], texts [N, tokens, C]. Axis 1 and axis 2
    are then both looked at.
    """
    if rank < 2:
        return ()
    return (1, 2) if rank == IMAGE_RANK - 1 else (1,)


def squares_along(axis: int, values: Array) -> FloatArray:
    """Returns the sum of the squares of each slice of float64 `values` along an axis."""
    before, after = values.shape[:axis], values.shape[axis + 1 :]
    split = values.reshape(math.prod(before), values.shape[axis], math.prod(after))
    return np.asarray(np.einsum("bca,bca->c", split, split))


def channel_squares(metric: Metric, outputs: Outputs) -> ChannelSquares:
    """Returns the sums of the squares of the channels of a batch, float64, by name and axis.

    Outputs of three or more axes have several values in each channel of a sample. There are none
    for a metric that does not sum channels.
    """
    if not metric.sums_channels:
        return {}
    return {
        (name, axis): squares_along(axis, value.astype(np.float64))
        for name, value in outputs.items()
        for axis in (channel_axes(value.ndim) if value.ndim >= IMAGE_RANK - 1 else ())
    }


def unlike_channels_note(metric: Metric, batches: Iterable[ChannelSquares]) -> str | None:
    """Returns a note where small channels of an output do not count in `metric`, else None.

    `batches` has the squares of the outputs of the reference, from `channel_squares`; they are
    added in the order of the batches.
    """
    squares: dict[tuple[str, int], list[FloatArray]] = defaultdict(list)
    for batch in batches:
        for place, sums in batch.items():
            squares[place].append(sums)
    unlike = [(_ratio(sums), name, axis) for (name, axis), sums in squares.items()]
    ratio, name, axis = max(unlike, default=(0.0, "", 0))
    if ratio < _UNLIKE:
        return None
    return (
        f"the values of some channels of output '{name}' (axis {axis}) are {ratio:,.0f} times "
        f"those of others, whose loss {metric.name} does not show. "
        f"Give --metric channel-noise@{axis}"
    )


def _ratio(sums: list[FloatArray]) -> float:
    """Returns the greatest RMS of a channel ÷ the least above 0; 0 where it is not known."""
    if len({each.shape for each in sums}) > 1:  # a length, then
        return 0.0
    total = np.sum(sums, axis=0)
    total = total[(total > 0) & np.isfinite(total)]
    return float(np.sqrt(total.max() / total.min())) if total.size else 0.0


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


def _channel_axis(output: Array, axis: int | None) -> int:
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
