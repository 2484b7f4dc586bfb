"""The energy of multiplications and additions, summed over the nodes of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from tracer.analyzers.cost import Operands
from tracer.support.types import FloatArray

OPERAND_BITS = 8

_EIGHT_BITS = Operands(OPERAND_BITS, OPERAND_BITS)


@dataclass(frozen=True)
class Work:
    """Nodes with their multiplications and additions per run, and the types of both factors.

    Arrays are (nodes,): `muls` and `adds` of the node table, float64; `operand_bits`, the width of
    the activations, and `weight_bits`. `float_types` are None for nodes that multiply integers,
    `adders` for those that add integers.
    """

    nodes: tuple[str, ...]
    muls: FloatArray = field(repr=False)
    adds: FloatArray = field(repr=False)
    operand_bits: FloatArray = field(repr=False)
    weight_bits: FloatArray = field(repr=False)
    float_types: tuple[str | None, ...] = field(repr=False)
    adders: tuple[str | None, ...] = field(repr=False)

    @classmethod
    def of(cls, counts: pd.DataFrame, operands: Mapping[str, Operands] | None = None) -> Work:
        """Returns the nodes with MACs of a cost table (indexed by node, `macs`, `muls`, `adds`).

        Without `operands`, all factors are integers of 8 bits. Nodes that they lack are left out.
        """
        table = counts[counts["macs"].fillna(0) > 0]
        if operands is not None:
            table = table[table.index.isin(list(operands))]
        nodes = tuple(str(node) for node in table.index)
        each = [_EIGHT_BITS if operands is None else operands[node] for node in nodes]
        return cls(
            nodes,
            table["muls"].to_numpy(np.float64),
            table["adds"].to_numpy(np.float64),
            np.array([operand.activation_bits for operand in each], np.float64),
            np.array([operand.weight_bits for operand in each], np.float64),
            tuple(operand.float_type for operand in each),
            tuple(operand.adder or operand.float_type for operand in each),
        )

    def widths(self, bits: Mapping[str, int] | int) -> FloatArray:
        """Returns the accumulator bits of each node, float64 (nodes,). Raises KeyError."""
        if isinstance(bits, int):
            return np.full(len(self.nodes), float(bits))
        return np.array([bits[node] for node in self.nodes], np.float64)


EnergyRule: TypeAlias = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
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
    multiplication: EnergyRule = field(repr=False)
    addition: EnergyRule = field(repr=False)
    floats: Mapping[str, FloatEnergy] = field(default_factory=dict, repr=False)

    @property
    def settings(self) -> dict[str, str]:
        """What a trace says of its energies."""
        return {"model": self.name, "unit": self.unit, "source": self.source}

    def energies(self, work: Work, widths: FloatArray) -> FloatArray:
        """Returns the energy per run of each node, float64 (..., nodes); NaN without figures.

        `widths` has the accumulator bits: (nodes,), or (candidates, nodes) for many assignments.
        Nodes that add floats do not depend on them.
        """
        bits = work.operand_bits, work.weight_bits, widths
        multiplied = self._of_operation(
            self.multiplication, bits, work.float_types, "multiplication"
        )
        added = self._of_operation(self.addition, bits, work.adders, "addition")
        return multiplied * work.muls + added * work.adds

    def _of_operation(
        self,
        rule: EnergyRule,
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
