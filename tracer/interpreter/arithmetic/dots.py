"""Blocks of dot products under an accumulator: what the nodes that sum are made of."""

from __future__ import annotations

from tracer.interpreter.arithmetic.accumulator import Accumulator
from tracer.interpreter.arithmetic.oracle import emulate, observe
from tracer.interpreter.arithmetic.orders import Terms
from tracer.interpreter.arithmetic.sums import Clipped, Excursions
from tracer.interpreter.values import Array

__all__ = ["emulate", "narrowed", "observe"]


def narrowed(
    left: Array, right: Array, bias: Array | None, terms: Terms, accumulator: Accumulator,
    seen: Excursions,
) -> Clipped:  # fmt: skip
    """What `emulate` returns, once `observe` has been called on the same block."""
    return emulate(left, right, bias, terms, accumulator)
