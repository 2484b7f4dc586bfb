"""Axes as ONNX counts them: from the end where negative."""

from __future__ import annotations

from tracer.errors import ModelError


def nonnegative_axis(axis: int, rank: int) -> int:
    """The axis counted from the start. Raises ModelError where there is no such axis."""
    if not -rank <= axis < rank:
        raise ModelError(f"axis {axis} of a tensor with {rank} axes")
    return int(axis) % rank
