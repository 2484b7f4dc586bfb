"""Operators that generate a tensor from a shape, a count or a seed."""

from functools import partial

from tracer.analyzers.cost.count import Count
from tracer.analyzers.cost.registry import counts, no_work, per_output
from tracer.analyzers.cost.traffic import only_writes

_generates = partial(counts, moves=only_writes)

_generates("ConstantOfShape", settings=(0,))(no_work)
_generates("EyeLike")(no_work)

_RANGE = per_output(Count(adds=1, muls=1))  # start + index × delta
_generates("Range", settings=(0, 1, 2))(_RANGE)
_generates("Range", domain="com.microsoft", settings=(0, 1, 2))(_RANGE)

_DRAW = per_output(Count(adds=1, muls=1, other=1))  # a draw, scaled and shifted
_generates("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")(_DRAW)
counts("Bernoulli")(per_output(Count(other=2)))  # a draw and a comparison

_COSINE = per_output(Count(adds=1, muls=2, other=1))  # a0 - a1 cos(2 pi n / N)
_generates("HannWindow", "HammingWindow", settings=(0,))(_COSINE)
_BLACKMAN = per_output(Count(adds=2, muls=4, other=2))  # the same + a2 cos(4 pi n / N)
_generates("BlackmanWindow", settings=(0,))(_BLACKMAN)
