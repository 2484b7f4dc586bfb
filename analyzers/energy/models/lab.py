"""The formula of the narrow-accumulator experiment, unit-less.

It is about integers: a float has no accumulator whose width says what its arithmetic costs, so
floats have no energy.
"""

from tracer.analyzers.energy import EnergyModel

MODEL = EnergyModel(
    name="lab",
    unit="units",
    source="E = 64 (B/8)² per multiplication + B per addition, B bits of accumulator",
    # the factors count as wide as the sum
    multiplication=lambda operands, weights, widths: 64 * (widths / 8) ** 2,
    addition=lambda operands, weights, widths: widths,
)
