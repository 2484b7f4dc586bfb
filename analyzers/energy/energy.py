"""What an energy model is: the energy of one multiplication and of one addition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from analyzers.energy.work import Floats, Work

Rule: TypeAlias = Callable[[Floats, Floats, Floats], Floats]
"""Bits of the activation, of the weight, and of the accumulator to the energy of one operation."""


@dataclass(frozen=True, slots=True)
class EnergyModel:
    """Energies of one multiplication and one addition, in `unit`; `source` says whose they are.

    Only arithmetic is counted: memory traffic does not depend on the accumulator's width, and
    neither does what a node does beside its sums of products.
    """

    name: str
    unit: str
    source: str
    multiplication: Rule = field(repr=False)
    addition: Rule = field(repr=False)

    def energies(self, work: Work, widths: Floats) -> Floats:
        """Energy per run of each node, float64 (..., nodes), for accumulators of `widths` bits.

        `widths` is (nodes,), or (candidates, nodes) for many assignments at once.
        """
        operands, weights = work.operand_bits, work.weight_bits
        each_mul = self.multiplication(operands, weights, widths)
        each_add = self.addition(operands, weights, widths)
        return np.asarray(each_mul * work.muls + each_add * work.adds, np.float64)

    def per_node(self, work: Work, bits: Mapping[str, int] | int) -> dict[str, float]:
        """Energy per run of each node with accumulators of `bits`, one width or one for each node.

        Raises KeyError for a node without a width.
        """
        energies = self.energies(work, work.widths(bits))
        return dict(zip(work.nodes, energies.tolist(), strict=True))

    def total(self, work: Work, bits: Mapping[str, int] | int) -> float:
        """Energy per run of all nodes. Raises KeyError for a node without a width."""
        return float(self.energies(work, work.widths(bits)).sum())
