"""Student's t distribution for whole degrees of freedom: a sum of a few terms, and exact."""

from __future__ import annotations

import math

_HALVINGS = 80
_LARGEST_T = 1e6


def two_sided(t: float, dof: int) -> float:
    """P(|T| > |t|) for `dof` >= 1 degrees of freedom.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4. Good to 1e-12.
    """
    theta = math.atan(abs(t) / math.sqrt(dof))
    cosine2, term, total = math.cos(theta) ** 2, 1.0, 0.0
    odd = dof % 2
    for step in range(dof // 2):
        total += term
        term *= cosine2 * (2 * step + 1 + odd) / (2 * step + 2 + odd)
    if odd:
        inside = 2 / math.pi * (theta + math.sin(theta) * math.cos(theta) * total)
    else:
        inside = math.sin(theta) * total
    return min(max(1.0 - inside, 0.0), 1.0)


def critical(level: float, dof: int) -> float:
    """The t that |T| exceeds with probability `level`, by halving."""
    low, high = 0.0, _LARGEST_T
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, dof) > level else (low, middle)
    return high
