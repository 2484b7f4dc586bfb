"""Zero points that stay in the operands while they are summed, and are subtracted afterwards.

(x - p)(w - q) added up is the sum of x w, minus p times the sum of w, minus q times the sum of x,
plus p q for each term. Libraries add the first part, products of bytes as stored, with
instructions for bytes; the other parts are exact. The accumulator limits the first part only.
"""

from collections.abc import Callable

from tracer.accumulators.engine.node_operands import Integers
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.support.types import Array

Exact = Callable[[Integers, Integers], Array]
"""Returns the exact sums of two operands, int64."""


def stay_in(accumulator: Accumulator, x: Integers, w: Integers) -> bool:
    """Whether these operands have zero points that are subtracted from the sum."""
    return accumulator.is_zero_point_in_sum and (x.zero, w.zero) != (0, 0)


def subtracted(sums: Array, x: Integers, w: Integers, exact: Exact) -> Array:
    """The `sums` of the operands as stored, as sums without zero points."""
    return sums + exact(x, w) - exact(x.stored(), w.stored())
