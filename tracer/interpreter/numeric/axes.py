"""Converts ONNX's axes, which count from the end if negative."""

from tracer.errors import ModelError


def nonnegative_axis(axis: int, rank: int) -> int:
    """Returns the axis counted from the start. Raises ModelError for an axis out of range."""
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} of a tensor with {rank} axes")
    return int(axis) % rank
