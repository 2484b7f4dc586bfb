"""The channels of a tensor: slices whose values may have a scale of their own."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np

from tracer.metrics.metric import Metric, Outputs
from tracer.metrics.ranking import IMAGE_RANK
from tracer.support.types import Array, FloatArray

ChannelSquares: TypeAlias = Mapping[tuple[str, int], FloatArray]
"""Sums of squares (channels,) by the name of an output and the axis of its channels."""

_UNLIKE = 16
"""Ratio of the values of two channels from which the noise of one hides the other's: 24 dB."""


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
