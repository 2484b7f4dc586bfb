"""Interpolation between neighbours: per output one multiplication per neighbour, and their sum.

Coordinates and interpolation weights are not counted: they are shared between channels.
"""

import math

from tracer.analyzers.cost.count import NOTHING, Count, Operation, UnknownWorkError, counts

_NEIGHBOURS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}


@counts("Resize", "Upsample", settings=(1, 2, 3))
@counts("Upsample", domain="com.microsoft.nchwc")
def _resize(op: Operation) -> Count:
    reach = _reach(op, "nearest")
    antialias = bool(op.integer("antialias", 0))
    neighbours = 1
    for before, after in zip(op.input(0).shape, op.output().shape, strict=True):
        if before != after and reach > 1:
            shrink = before / after if antialias else 1
            neighbours *= math.ceil(reach * max(1, shrink))
    return interpolate(neighbours) * op.output().size


@counts("GridSample")
@counts("GridSample", domain="com.microsoft")
def _grid_sample(op: Operation) -> Count:
    axes = len(op.input(0).shape) - 2
    return interpolate(_reach(op, "linear") ** axes) * op.output().size


@counts("CropAndResize", domain="com.microsoft", settings=(3,))
def _crop_and_resize(op: Operation) -> Count:
    return interpolate(_reach(op, "bilinear") ** 2) * op.output().size


@counts("RoiAlign", settings=(2,))
def _roi_align(op: Operation) -> Count:
    ratio = op.integer("sampling_ratio", 0)
    if ratio <= 0:
        raise UnknownWorkError("its number of samples depends on the regions (sampling_ratio is 0)")
    samples = ratio * ratio
    average = op.text("mode", "avg") == "avg"
    pooled = Count(adds=samples, other=1) if average else Count(other=samples)
    return (interpolate(4) * samples + pooled) * op.output().size


@counts("AffineGrid", settings=(1,))
def _affine_grid(op: Operation) -> Count:
    """Multiplies theta by the homogeneous coordinates of every output point."""
    axes = op.output().shape[-1]
    return Count(macs=axes + 1) * op.output().size


def interpolate(neighbours: int) -> Count:
    """Counts a weighted sum of the neighbours; a single neighbour is copied."""
    if neighbours == 1:
        return NOTHING
    return Count(adds=neighbours - 1, muls=neighbours)


def _reach(op: Operation, default: str) -> int:
    mode = op.text("mode", default)
    if mode not in _NEIGHBOURS:
        raise UnknownWorkError(f"the mode '{mode}' is unknown")
    return _NEIGHBOURS[mode]
