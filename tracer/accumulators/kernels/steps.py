"""Steps after each multiply-add of a sum: what limits it, and what is remembered of the way.

The lanes of CLIP and COUNT hold the sum, or the sum plus one half where the range has one
more negative number: both ranges are then symmetric, [-limit, limit], and one instruction limits a
lane. A lane is exact while the limit is below 2^23 (float32) or 2^52 (float64): a sum beyond that
is rounded, but never across the limit. EXTREMES needs sums that are exact themselves.
"""

from typing import Any

from tracer.interpreter.kernels.tiles import Step
from tracer.interpreter.kernels.vectors import Vectors


def _clip(v: Vectors, added: Any, state: list[Any], limit: Any) -> list[Any]:
    return [v.limited(added, limit)]


def _count(v: Vectors, added: Any, state: list[Any], limit: Any) -> list[Any]:
    b, value = v.builder, v.limited(added, limit)
    outside = b.sext(b.fcmp_ordered("!=", added, value), v.integers)
    events = b.sub(b.bitcast(state[0], v.integers), outside)
    return [value, b.bitcast(events, v.kind)]


def _extremes(v: Vectors, added: Any, state: list[Any], limit: Any) -> list[Any]:
    low, high = state
    return [added, v.least(low, added), v.greatest(high, added)]


CLIP = Step(0, _clip)
"""Limits the sum."""

COUNT = Step(1, _count)
"""Limits the sum; the state, integers as wide as a lane, counts sums outside."""

EXTREMES = Step(2, _extremes)
"""The states are the least and the greatest sum so far, 0 among them."""
