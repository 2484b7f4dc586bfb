"""Steps after each multiply-add of a sum: what limits it, and what is remembered of the way.

The lanes of CLIP and COUNT hold the sum, or the sum plus one half where the range has one
more negative number: both ranges are then symmetric, [-limit, limit], and one instruction limits a
lane. A lane is exact while the limit is below 2^23 (float32) or 2^52 (float64): a sum beyond that
is rounded, but never across the limit. EXTREMES needs sums that are exact themselves.
"""

from typing import Any

from llvmlite import ir

from tracer.interpreter.kernels.tiles import Step
from tracer.interpreter.kernels.vectors import Vectors


def _clip(v: Vectors, added: Any, state: list[Any], limit: Any) -> list[Any]:
    return [v.limited(added, limit)]


def _count(v: Vectors, added: Any, state: list[Any], limit: Any) -> list[Any]:
    b, value = v.builder, v.limited(added, limit)
    before, after, events = (b.bitcast(each, v.integers) for each in (added, value, state[0]))
    left = b.icmp_signed("!=", before, after)
    events = b.add(events, b.select(left, _one(v, limit), ir.Constant(v.integers, None)))
    return [value, b.bitcast(events, v.kind)]


def _one(v: Vectors, limit: Any) -> Any:
    """1 in every lane: the second bit of a float of at least 2.

    The compiler would add a constant by way of a vector of the comparison, not under its mask.
    """
    b, shift = v.builder, ir.Constant(v.integers, [v.bits - 2] * v.count)
    two = ir.Constant(v.kind, [2.0] * v.count)
    return b.lshr(b.bitcast(b.fadd(limit, two), v.integers), shift)


def _extremes(v: Vectors, added: Any, state: list[Any], limit: Any) -> list[Any]:
    low, high = state
    return [added, v.least(low, added), v.greatest_from_zero(high, added)]


CLIP = Step(0, _clip)
"""Limits the sum."""

COUNT = Step(1, _count)
"""Limits the sum; the state, integers as wide as a lane, counts sums outside."""

EXTREMES = Step(2, _extremes)
"""The states are the least and the greatest sum so far, 0 among them."""
