"""The energy of multiplications and additions, summed over the nodes of a model.

`operands` are the types of the factors that a node multiplies, `Work` the arithmetic of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.accumulators.spec.policy import Rule
from tracer.analyzers.cost.quantized_types import QuantizedTypes, is_integer, width
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph.model import Node
from tracer.graph.operators import (
    MICROSOFT,
    PRODUCTS,
    computes_in_integers,
    multiplies_packed_integers,
)
from tracer.support.types import FloatArray

_DYNAMIC_BITS = 8
"""Bits that an operator rounds float activations to, if it multiplies them as integers."""

_TYPES = {
    "fp32": "float32", "fp16": "float16", "bf16": "bfloat16",
    "fp8-e4m3": "float8_e4m3fn", "fp8-e5m2": "float8_e5m2",
    "fp8-e4m3fnuz": "float8_e4m3fnuz", "fp8-e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip
"""Formats of operands and accumulators that are types of ONNX."""


@dataclass(frozen=True, slots=True)
class Operands:
    """Bits of both factors of a node; `float_type`, as `float16`, if they are floats.

    `adder` is the type of the float accumulator that adds products; None adds products of integers
    as integers, and products of floats in their type.
    """

    activation_bits: int
    weight_bits: int
    float_type: str | None = None
    adder: str | None = None


def operands(typed: TypedModel, rules: Mapping[str, Rule] | None = None) -> dict[str, Operands]:
    """Returns the operands of every node by key, without nodes whose operands have no such type.

    In a quantised model they have the type before DequantizeLinear (`QuantizedTypes`). A node
    multiplies floats if either factor is a float. `rules` of narrow nodes have the fixed-point
    formats of float operands.
    """
    reader = _Reader(typed.quantized_types, TensorScales(typed.model))
    nodes = typed.model.nodes
    found = {node.key: reader.operands(node, (rules or {}).get(node.key)) for node in nodes}
    return {key: each for key, each in found.items() if each is not None}


@dataclass(frozen=True, slots=True)
class _Reader:
    types: QuantizedTypes
    scales: TensorScales

    def operands(self, node: Node, rule: Rule | None) -> Operands | None:
        """Returns the operands of one node; None where a type is unknown or not a number."""
        product = PRODUCTS.get(node.op_type) if node.domain in ("", MICROSOFT) else None
        weights = product.weights if product is not None else None
        # both factors of other operators have the type of the first input
        indices = (0, 0 if weights is None else weights)
        present = [index for index in indices if index < len(node.inputs) and node.inputs[index]]
        if not present:
            return None
        factors = [self._factor(node, index, rule) for index in present]
        if _adder(rule) is None and multiplies_packed_integers(node):
            zeros = (*node.inputs, "")[3]
            if not zeros or self.types.declared(zeros, node.scope) == "uint8":
                bits = next((a.i for a in node.proto.attribute if a.name == "bits"), 4)
                factors = [f"int{_DYNAMIC_BITS}", f"uint{bits}"]
        if any(dtype is None for dtype in factors):
            return None
        dtypes = [dtype for dtype in factors if dtype is not None]
        floats = [dtype for dtype in dtypes if not is_integer(dtype)]
        widths = [width(dtype) for dtype in (floats[:1] or dtypes)]
        return Operands(widths[0], widths[-1], floats[0] if floats else None, _adder(rule))

    def _factor(self, node: Node, index: int, rule: Rule | None) -> str | None:
        """Returns the type of the factor at `index`; a fixed-point format as `int8`."""
        name = node.inputs[index]
        own = self.types.declared(name, node.scope)
        if own is None or is_integer(own):
            return self.types.of(name, node.scope)
        if rule is not None and _adder(rule) is not None:
            return own if rule.operands is None else _type_of(rule.operands.format_name)
        if rule is not None and rule.format is not None:
            weights = index > 0 and self.scales.constant(name, node.scope)
            return f"int{(rule.format.weights if weights else rule.format.activations).bits}"
        if computes_in_integers(node.op_type):
            return f"int{_DYNAMIC_BITS}"
        return self.types.of(name, node.scope)


def _adder(rule: Rule | None) -> str | None:
    """Returns the type that a float accumulator adds in: that of its format, if it has one."""
    if rule is None or isinstance(rule.accumulator, Accumulator):
        return None
    if isinstance(rule.accumulator, FloatAccumulator):
        return _type_of(str(rule.accumulator.format))
    return str(rule.accumulator)


def _type_of(spelling: str) -> str:
    """Returns the name of ONNX for a format, else its spelling."""
    return _TYPES.get(spelling, spelling)


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
