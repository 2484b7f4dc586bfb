"""The formula of the narrow-accumulator experiment, unit-less.

It is about integers: a float has no accumulator whose width says what its arithmetic costs, so
floats have no energy.
"""

import numpy as np

from tracer.analyzers.energy.energy_model import EnergyModel
from tracer.support.types import FloatArray


def _multiplication(operands: FloatArray, weights: FloatArray, widths: FloatArray) -> FloatArray:
    """64 (B/8)² for an accumulator of B bits; the factors count as wide as the sum."""
    return np.asarray(64 * (widths / 8) ** 2)


def _addition(operands: FloatArray, weights: FloatArray, widths: FloatArray) -> FloatArray:
    """B."""
    return widths


MODEL = EnergyModel(
    name="lab",
    unit="units",
    source="E = 64 (B/8)² per multiplication + B per addition, B bits of accumulator",
    multiplication=_multiplication,
    addition=_addition,
)
