"""Zero points that stay in the operands while they are summed, and are taken off the sum after.

(x - p)(w - q) added up is x w added up, less p w and q x, and more p q: products of bytes as they
are stored, which libraries add with instructions for bytes, and corrections that are exact. What
an accumulator does to the first part it does to the whole.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tracer.accumulators.engine.node_operands import Integers
from tracer.accumulators.engine.sum_runner import UNCHANGED
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.support.types import Array

Exact = Callable[[Integers, Integers], Array]
"""The sums of two operands, int64, that nothing limits."""


def stay_in(accumulator: Accumulator, x: Integers, w: Integers) -> bool:
    """Whether these operands have zero points that are taken off after."""
    return accumulator.zero_points == "after" and (x.zero, w.zero) != (0, 0)


def taken_off(sums: Array, x: Integers, w: Integers, exact: Exact) -> Array:
    """`sums` of the operands as stored, or UNCHANGED, as those of operands without zero points."""
    changed = sums != UNCHANGED
    if not changed.any():
        return sums
    difference = exact(x, w) - exact(x.stored(), w.stored())
    return np.where(changed, sums + difference, UNCHANGED)
