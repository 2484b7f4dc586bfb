"""What an energy model is asked about: the arithmetic of nodes and how wide it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.graph.model import Model
from tracer.graph.shape_inference import TensorTypes
from tracer.graph.tensor_type import bits_of

Floats: TypeAlias = NDArray[np.float64]

OPERAND_BITS = 8
_QUANTISED = 16  # the widest integers that models are quantised to
_SUMMED = {
    # operator: where its two operands are, by domain and name
    **{("", name): (0, 1) for name in ("Conv", "ConvTranspose", "Gemm", "MatMul")},
    **{("", name): (0, 1) for name in ("ConvInteger", "MatMulInteger")},
    **{("", name): (0, 3) for name in ("QLinearConv", "QLinearMatMul")},
    **{("com.microsoft", name): (0, 3) for name in ("QLinearConv", "QGemm")},
}


@dataclass(frozen=True)
class Work:
    """Nodes with their multiplications and additions per run, and bits of both factors.

    Arrays are (nodes,): `muls` and `adds` of the node table, float64; `operand_bits`, the width of
    the activations, and `weight_bits`.
    """

    nodes: tuple[str, ...]
    muls: Floats = field(repr=False)
    adds: Floats = field(repr=False)
    operand_bits: Floats = field(repr=False)
    weight_bits: Floats = field(repr=False)

    @classmethod
    def of(
        cls,
        counts: pd.DataFrame,
        operand_bits: Mapping[str, tuple[int, int]] | int = OPERAND_BITS,
    ) -> Work:
        """The nodes of a cost table (indexed by node, `macs`, `muls`, `adds`) that have MACs.

        They are where an accumulator is. `operand_bits` are the bits of activations and weights
        by node, or one width for all; what is not named has 8.
        """
        table = counts[counts["macs"].fillna(0) > 0]
        nodes = tuple(str(node) for node in table.index)
        same = operand_bits if isinstance(operand_bits, int) else OPERAND_BITS
        known = {} if isinstance(operand_bits, int) else operand_bits
        pairs = np.array([known.get(node, (same, same)) for node in nodes], np.float64)
        pairs = pairs.reshape(-1, 2)
        muls, adds = (table[name].to_numpy(np.float64) for name in ("muls", "adds"))
        return cls(nodes, muls, adds, pairs[:, 0], pairs[:, 1])

    def widths(self, bits: Mapping[str, int] | int) -> Floats:
        """Bits of each node's accumulator, float64 (nodes,). Raises KeyError for one not named."""
        if isinstance(bits, int):
            return np.full(len(self.nodes), float(bits))
        return np.array([bits[node] for node in self.nodes], np.float64)


def operand_bits(model: Model, types: TensorTypes) -> dict[str, tuple[int, int]]:
    """Bits of activations and weights of every node that sums products of quantised numbers.

    Of a QDQ model, the type before DequantizeLinear. Nodes on floats are not named.
    """
    quantised = {
        (node.scope.path, node.outputs[0]): node.inputs[0]
        for node in model.nodes
        if node.op_type == "DequantizeLinear"
    }
    found = {}
    for node in model.nodes:
        places = _SUMMED.get((node.domain, node.op_type))
        if places is None or len(node.inputs) <= max(places):
            continue
        names = [node.inputs[place] for place in places]
        sources = [quantised.get((node.scope.path, name), name) for name in names]
        kinds = [types.of(name, node.scope) for name in sources]
        bits = [_bits(kind.dtype) if kind else None for kind in kinds]
        if bits[0] is not None and bits[1] is not None:
            found[node.key] = (bits[0], bits[1])
    return found


def _bits(dtype: str) -> int | None:
    bits: Any = bits_of(dtype)
    return bits if dtype.startswith(("int", "uint")) and bits and bits <= _QUANTISED else None
