"""The energy of multiplications and additions, and its sum over the nodes of a model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from tracer.analyzers.energy.operands import Operands
from tracer.analyzers.energy.work import Work
from tracer.support.types import FloatArray

Rule: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""Maps bits of activation, weight and accumulator to the energy of one integer operation."""


class FloatEnergy(NamedTuple):
    """Energies of one multiplication and one addition of floats."""

    multiplication: float
    addition: float


@dataclass(frozen=True, slots=True)
class EnergyModel:
    """Energies of a multiplication and an addition, in `unit`; `source` cites their origin.

    `multiplication` and `addition` are rules for integers. `floats` has the figures of float types
    by name, as `float16`; a type without figures has no energy. Only sums of products count:
    memory traffic and other arithmetic do not depend on the width of the accumulator.
    """

    name: str
    unit: str
    source: str
    multiplication: Rule = field(repr=False)
    addition: Rule = field(repr=False)
    floats: Mapping[str, FloatEnergy] = field(default_factory=dict, repr=False)

    def energies(self, work: Work, widths: FloatArray) -> FloatArray:
        """Returns the energy per run of each node, float64 (..., nodes); NaN without figures.

        `widths` has the accumulator bits: (nodes,), or (candidates, nodes) for many assignments.
        Nodes that add floats do not depend on them.
        """
        bits = work.operand_bits, work.weight_bits, widths
        multiplied = self._each(self.multiplication, bits, work.float_types, "multiplication")
        added = self._each(self.addition, bits, work.adders, "addition")
        return multiplied * work.muls + added * work.adds

    def _each(
        self,
        rule: Rule,
        bits: tuple[FloatArray, FloatArray, FloatArray],
        types: Sequence[str | None],
        operation: Literal["multiplication", "addition"],
    ) -> FloatArray:
        """Returns the energy of one operation in each node: by `rule` where the type is None."""
        operands, weights, widths = bits
        energies = np.full(widths.shape, np.nan)
        ints = np.array([name is None for name in types], bool)
        energies[..., ints] = rule(operands[ints], weights[ints], widths[..., ints])
        for index, name in enumerate(types):
            if name is not None and name in self.floats:
                energies[..., index] = getattr(self.floats[name], operation)
        return energies

    def lacks(self, operands: Operands) -> str | None:
        """Returns the type of floats that a node multiplies or adds and that has no figures."""
        types = (operands.float_type, operands.adder)
        return next((name for name in types if name is not None and name not in self.floats), None)

    def per_node(self, work: Work, bits: Mapping[str, int] | int) -> dict[str, float]:
        """Returns the energy per run of each node; `bits` is one width or a width for each node.

        Nodes of a type without figures are left out. Raises KeyError for a node without a width.
        """
        energies = self.energies(work, work.widths(bits))
        pairs = zip(work.nodes, energies.tolist(), strict=True)
        return {node: energy for node, energy in pairs if energy == energy}  # NaN differs

    def total(self, work: Work, bits: Mapping[str, int] | int) -> float:
        """Returns the energy per run of all nodes with figures. Raises KeyError as `per_node`."""
        return float(sum(self.per_node(work, bits).values()))
