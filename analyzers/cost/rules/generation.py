"""Operators that generate a tensor from a shape, a count or a seed."""

from analyzers.cost import traffic
from analyzers.cost.count import NOTHING, Count
from analyzers.cost.operation import Operation
from analyzers.cost.registry import counts


@counts("ConstantOfShape", moves=traffic.only_writes, settings=(0,))
@counts("EyeLike", moves=traffic.only_writes)
def _fill(op: Operation) -> Count:
    return NOTHING


@counts("Range", moves=traffic.only_writes, settings=(0, 1, 2))
@counts("Range", domain="com.microsoft", moves=traffic.only_writes, settings=(0, 1, 2))
def _range(op: Operation) -> Count:
    """start + index × delta."""
    return Count(adds=1, muls=1) * op.output().size


@counts("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
        moves=traffic.only_writes)  # fmt: skip
def _random(op: Operation) -> Count:
    """A draw, scaled and shifted."""
    return Count(adds=1, muls=1, other=1) * op.output().size


@counts("Bernoulli")
def _bernoulli(op: Operation) -> Count:
    """A draw and a comparison."""
    return Count(other=2) * op.output().size


@counts("HannWindow", "HammingWindow", moves=traffic.only_writes, settings=(0,))
def _cosine_window(op: Operation) -> Count:
    """a0 - a1 cos(2 pi n / N)."""
    return Count(adds=1, muls=2, other=1) * op.output().size


@counts("BlackmanWindow", moves=traffic.only_writes, settings=(0,))
def _blackman(op: Operation) -> Count:
    """a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N)."""
    return Count(adds=2, muls=4, other=2) * op.output().size
