"""The channels of a tensor: the slices whose values may have a scale of their own."""

from tracer.metrics.ranking import IMAGE_RANK


def channel_axes(rank: int) -> tuple[int, ...]:
    """Returns the axes that may be those of the channels in tensors of a rank; axis 0 has samples.

    Images have channels first in ONNX, [N, C, H, W], and rows have them last, [N, C]. A rank of 3
    does not tell: signals and detectors are [N, C, length], texts [N, tokens, C]. Axis 1 and axis 2
    are then both looked at.
    """
    if rank < 2:
        return ()
    return (1, 2) if rank == IMAGE_RANK - 1 else (1,)
