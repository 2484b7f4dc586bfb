"""The products of a model, with the numbers that qonnx gives their nodes."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.graph.model import Model, Node
from tracer.interpreter import values

_OPERATORS = {"Conv": "Conv", "MatMul": "MatMul", "Gemm": "MatMul"}
"""Operators that multiply, and the operators they are in QONNX: GemmToMatMul splits a Gemm."""


@dataclass(frozen=True, slots=True)
class Product:
    """A node that multiplies, and its name after qonnx's `cleanup_model`: Conv_0, MatMul_2.

    `is_depthwise`: each input channel has filters of its own. `has_weights`: its second operand is
    stored. `fraction_bits` is f where a unit of its sums is 2^-f, in fixed point: see `_exponent`.
    """

    key: str
    name: str
    is_depthwise: bool
    has_weights: bool
    fraction_bits: int


def products(model: Model) -> Iterator[Product]:
    """Yields the products of the main graph, in its order."""
    scales, counts = TensorScales(model), Counter[str]()
    for node in model.nodes:
        op_type = _OPERATORS.get(node.op_type)
        if op_type is None or node.domain or node.scope.path:
            continue
        yield Product(
            node.key,
            f"{op_type}_{counts[op_type]}",
            _group(node) > 1,
            scales.stored_integers(node.inputs[1], node.scope) is not None,
            -sum(_exponent(scales, node, name) for name in node.inputs[:2]),
        )
        counts[op_type] += 1


def _group(node: Node) -> int:
    attributes = {a.name: values.from_attribute(a) for a in node.proto.attribute}
    return int(attributes.get("group", 1))


def _exponent(scales: TensorScales, node: Node, name: str) -> int:
    """Returns e where a factor is integers times 2^e in fixed point.

    hls4ml keeps a scale within the type where all scales of a tensor are one power of two and its
    zero point is 0. It multiplies the sums by any other scale, so that the factors are integers.
    """
    scale = scales.of(name, node.scope)
    if scale is None or scale.zero != 0 or (scale.step != scale.step.flat[0]).any():
        return 0
    mantissa, exponent = math.frexp(float(scale.step.flat[0]))
    return exponent - 1 if mantissa == _OF_A_POWER else 0


_OF_A_POWER = 0.5
"""The mantissa of a power of two, which is 0.5 times 2^exponent."""
