"""Widths of accumulators as the toolchains for FPGAs configure them: FINN and hls4ml.

Both read QONNX models and number the nodes of each operator in the order of the graph. FINN makes
an MVAU of each product with stored weights, and a VVAU of each depthwise convolution, numbered
after `convert_to_hw` and before it chooses HLS or RTL; its builder reads the configuration from
`specialize_layers_config_file`. hls4ml's is in the layout of
`config_from_onnx_model(granularity="name")`. Its accumulators are in fixed point: `fixed<W, I>` has
W bits, I of them before the binary point. A sum of W bits in units of 2^-f is `fixed<W, W - f>`;
f is 0 where hls4ml multiplies integers.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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
        attributes = {a.name: values.from_attribute(a) for a in node.proto.attribute}
        yield Product(
            node.key,
            f"{op_type}_{counts[op_type]}",
            int(attributes.get("group", 1)) > 1,
            scales.stored_integers(node.inputs[1], node.scope) is not None,
            -sum(_exponent(scales, node, name) for name in node.inputs[:2]),
        )
        counts[op_type] += 1


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


def finn_configuration(model: Model, widths: Mapping[str, int]) -> dict[str, Any]:
    """Returns `accDataType` for each node of `model` with a width, by the name that FINN gives it.

    FINN's accumulators are in two's complement, as `widths`, and hold the sum without its bias,
    which becomes part of the thresholds.
    """
    nodes, counts = dict[str, Any](), Counter[str]()
    for product in products(model):
        if not product.has_weights:
            continue
        unit = "VVAU" if product.is_depthwise else "MVAU"
        if product.key in widths:
            nodes[f"{unit}_{counts[unit]}"] = {"accDataType": f"INT{widths[product.key]}"}
        counts[unit] += 1
    return {"Defaults": {}, **nodes}


def hls4ml_configuration(model: Model, widths: Mapping[str, int]) -> dict[str, Any]:
    """Returns the type `accum` of each layer of `model` with a width, by the name in QONNX."""
    layers = {}
    for product in products(model):
        if product.key in widths:
            bits = widths[product.key]
            accum = f"fixed<{bits},{bits - product.fraction_bits}>"
            layers[product.name] = {"Precision": {"accum": accum}}
    return {"LayerName": layers}
