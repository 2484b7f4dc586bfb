"""The arithmetic of nodes, and the types of its operands, for energy models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tracer.analyzers.energy.operands import Operands
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
