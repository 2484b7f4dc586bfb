"""Aladdin's energies of arithmetic at 40 nm and 5 ns, in pJ.

The tables of the Aladdin plug-in of Accelergy: at 32 bits an integer addition takes 0.0857 pJ and a
multiplication 8.63. They scale adders linearly and multipliers quadratically with the width.
Factors of different widths count as their geometric mean, since the size of a multiplier is the
product of its widths. A float32 addition takes 7.93 pJ, a multiplication 24.4.
"""

from tracer.analyzers.energy import EnergyModel, FloatEnergy

_BITS = 32
"""The width of the figures."""
_ADD, _MUL = 0.0857, 8.63


MODEL = EnergyModel(
    name="aladdin40",
    unit="pJ",
    source="Aladdin plug-in of Accelergy, 40 nm",
    multiplication=lambda operands, weights, widths: _MUL * operands * weights / _BITS**2,
    addition=lambda operands, weights, widths: _ADD * widths / _BITS,
    floats={"float32": FloatEnergy(24.4, 7.93)},
)
