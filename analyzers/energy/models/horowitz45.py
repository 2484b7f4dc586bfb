"""Horowitz's energies of arithmetic at 45 nm and 0.9 V, in pJ.

M. Horowitz, "Computing's energy problem (and what we can do about it)", ISSCC 2014, figure 1.1.9:
an addition takes 0.03 pJ at 8 bits and 0.1 pJ at 32, a multiplication 0.2 pJ at 8 and 3.1 pJ at 32.
Other widths follow the power law through both figures. Factors of different widths count as their
geometric mean, since the size of a multiplier is the product of its widths. The floats of the same
figure are float16 (addition 0.4 pJ, multiplication 1.1) and float32 (0.9 and 3.7).
"""

import math

import numpy as np

from tracer.analyzers.energy import EnergyModel, FloatEnergy
from tracer.support.types import FloatArray

_NARROW, _WIDE = 8, 32  # widths with published figures
_ADD = (0.03, 0.1)
_MUL = (0.2, 3.1)


def _power_law(energies: tuple[float, float], bits: FloatArray) -> FloatArray:
    narrow, wide = energies
    exponent = math.log(wide / narrow) / math.log(_WIDE / _NARROW)
    return np.asarray(narrow * (bits / _NARROW) ** exponent)


MODEL = EnergyModel(
    name="horowitz45",
    unit="pJ",
    source="M. Horowitz, ISSCC 2014, 45 nm",
    multiplication=lambda operands, weights, widths: _power_law(_MUL, np.sqrt(operands * weights)),
    addition=lambda operands, weights, widths: _power_law(_ADD, widths),
    floats={"float16": FloatEnergy(1.1, 0.4), "float32": FloatEnergy(3.7, 0.9)},
)
