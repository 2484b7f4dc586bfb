"""The arithmetic of nodes, and the widths of its operands, for energy models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tracer.graph.model import Model
from tracer.graph.shape_inference import TensorTypes
from tracer.graph.tensor_type import bits_of
from tracer.support.types import FloatArray

OPERAND_BITS = 8
_QUANTISED = 16  # the widest integers that models are quantised to
_SUMMED = {
    # (domain, operator): input indices of its two operands
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
    muls: FloatArray = field(repr=False)
    adds: FloatArray = field(repr=False)
    operand_bits: FloatArray = field(repr=False)
    weight_bits: FloatArray = field(repr=False)

    @classmethod
    def of(
        cls,
        counts: pd.DataFrame,
        operand_bits: Mapping[str, tuple[int, int]] | int = OPERAND_BITS,
    ) -> Work:
        """Returns the nodes with MACs of a cost table (indexed by node, `macs`, `muls`, `adds`).

        `operand_bits` are the bits of activations and weights by node [default: 8], or one width
        for all.
        """
        table = counts[counts["macs"].fillna(0) > 0]
        nodes = tuple(str(node) for node in table.index)
        same = operand_bits if isinstance(operand_bits, int) else OPERAND_BITS
        by_node = {} if isinstance(operand_bits, int) else operand_bits
        pairs = np.array([by_node.get(node, (same, same)) for node in nodes], np.float64)
        pairs = pairs.reshape(-1, 2)
        muls, adds = (table[name].to_numpy(np.float64) for name in ("muls", "adds"))
        return cls(nodes, muls, adds, pairs[:, 0], pairs[:, 1])

    def widths(self, bits: Mapping[str, int] | int) -> FloatArray:
        """Returns the accumulator bits of each node, float64 (nodes,). Raises KeyError."""
        if isinstance(bits, int):
            return np.full(len(self.nodes), float(bits))
        return np.array([bits[node] for node in self.nodes], np.float64)


def operand_bits(model: Model, types: TensorTypes) -> dict[str, tuple[int, int]]:
    """Returns the bits of activations and weights of each node that sums quantised products.

    In a QDQ model they are those of the type before DequantizeLinear. Float nodes are left out.
    """
    quantised = {
        (node.scope.path, node.outputs[0]): node.inputs[0]
        for node in model.nodes
        if node.op_type == "DequantizeLinear"
    }
    bits_by_node = {}
    for node in model.nodes:
        indices = _SUMMED.get((node.domain, node.op_type))
        if indices is None or len(node.inputs) <= max(indices):
            continue
        names = [node.inputs[index] for index in indices]
        sources = [quantised.get((node.scope.path, name), name) for name in names]
        tensors = [types.of(name, node.scope) for name in sources]
        bits = [_bits(tensor.dtype) if tensor else None for tensor in tensors]
        if bits[0] is not None and bits[1] is not None:
            bits_by_node[node.key] = (bits[0], bits[1])
    return bits_by_node


def _bits(dtype: str) -> int | None:
    bits: Any = bits_of(dtype)
    return bits if dtype.startswith(("int", "uint")) and bits and bits <= _QUANTISED else None
