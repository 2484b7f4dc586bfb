"""The formula of the narrow-accumulator experiment, unit-less."""

from __future__ import annotations

import numpy as np

from analyzers.energy.energy import EnergyModel
from analyzers.energy.work import Floats


def _multiplication(operands: Floats, weights: Floats, widths: Floats) -> Floats:
    """64 (B/8)², of the accumulator's width B: the factors are as wide as the sum."""
    return np.asarray(64 * (widths / 8) ** 2)


def _addition(operands: Floats, weights: Floats, widths: Floats) -> Floats:
    """B."""
    return widths


MODEL = EnergyModel(
    name="lab",
    unit="units",
    source="E = 64 (B/8)² per multiplication + B per addition, B bits of accumulator",
    multiplication=_multiplication,
    addition=_addition,
)
