"""The energy of multiplications and additions, and its sum over the nodes of a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from analyzers.energy.work import Work
from tracer.support.types import FloatArray

Rule: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""Maps bits of activation, weight and accumulator to the energy of one operation."""


@dataclass(frozen=True, slots=True)
class EnergyModel:
    """Energies of a multiplication and an addition, in `unit`; `source` cites their origin.

    Only sums of products count: memory traffic and other arithmetic do not depend on the width of
    the accumulator.
    """

    name: str
    unit: str
    source: str
    multiplication: Rule = field(repr=False)
    addition: Rule = field(repr=False)

    def energies(self, work: Work, widths: FloatArray) -> FloatArray:
        """Returns the energy per run of each node, float64 (..., nodes).

        `widths` has the accumulator bits: (nodes,), or (candidates, nodes) for many assignments.
        """
        operands, weights = work.operand_bits, work.weight_bits
        each_mul = self.multiplication(operands, weights, widths)
        each_add = self.addition(operands, weights, widths)
        return np.asarray(each_mul * work.muls + each_add * work.adds, np.float64)

    def per_node(self, work: Work, bits: Mapping[str, int] | int) -> dict[str, float]:
        """Returns the energy per run of each node; `bits` is one width or a width for each node.

        Raises KeyError for a node without a width.
        """
        energies = self.energies(work, work.widths(bits))
        return dict(zip(work.nodes, energies.tolist(), strict=True))

    def total(self, work: Work, bits: Mapping[str, int] | int) -> float:
        """Returns the energy per run of all nodes. Raises KeyError for a node without a width."""
        return float(self.energies(work, work.widths(bits)).sum())
