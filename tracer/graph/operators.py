"""Facts of operators by name, and what follows from them for the tensors of a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import onnx

from tracer.support.tolerance import Precision

if TYPE_CHECKING:
    from tracer.graph.model import Model, Node

_Rule = TypeVar("_Rule")


class RulesByOperator(dict[str, _Rule]):
    """The rules of a domain by operator; `@rules("Conv")` adds the function below it."""

    def __call__(self, *op_types: str) -> Callable[[_Rule], _Rule]:
        """Returns a decorator that adds a function as the rule of these operators."""

        def add(rule: _Rule) -> _Rule:
            self.update(dict.fromkeys(op_types, rule))
            return rule

        return add


def integer_attribute(node: onnx.NodeProto, name: str, default: int = 0) -> int:
    """Returns an attribute of one integer; `default` where the node leaves it out."""
    return next((each.i for each in node.attribute if each.name == name), default)


ONNX_DOMAINS = frozenset({"", "ai.onnx"})
"""Both names of the standard domain."""
QONNX_DOMAIN = "qonnx.custom_op.general"
"""The domain that qonnx writes today. Brevitas, QKeras, FINN and hls4ml write its operators, which
round floats to integers of any number of bits."""
QONNX_DOMAINS = frozenset({QONNX_DOMAIN, "onnx.brevitas", "finn.custom_op.general"})
"""All names of QONNX's domain; older files have the others."""
MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""
CLASSICAL = "ai.onnx.ml"
"""ONNX's domain of classical models, whose weights and tables are attributes."""
TWINS = frozenset({f"{MICROSOFT}.QuantizeLinear", f"{MICROSOFT}.DequantizeLinear"})
"""Operators of ONNX that onnxruntime has in its own domain too: for 16 bits before opset 21."""

INTEGER_QUANTIZERS = frozenset({"Quant", "IntQuant", "BipolarQuant", "Trunc", "MultiThreshold"})
"""QONNX's operators that round to integers times a scale; `IntQuant` is a newer name of `Quant`."""
QUANTIZERS = INTEGER_QUANTIZERS | {"FloatQuant"}
"""QONNX's operators that round."""
CONVERSIONS = frozenset({
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Quant", "IntQuant",
    "BipolarQuant", "FloatQuant",
})  # fmt: skip
"""Operators between floats and quantised numbers."""
_INTEGER_TO_FLOAT = frozenset({
    "ConvInteger", "MatMulInteger", "MatMulInteger16", "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QAttention",
})  # fmt: skip
_INTEGER_TO_INTEGER = ("QLinear", "QGemm", "NhwcMaxPool")
_PACKED = frozenset({"MatMulNBits", "GatherBlockQuantized", "QMoE", "MatMulBnb4", "MatMulFpQ4"})
"""Operators of onnxruntime whose weights have few bits."""

_ROUNDED = 4
"""Accuracy level of MatMulNBits at which activations are rounded."""
_GROUPS = 4
"""Index of the input of MatMulNBits that chooses the scale of each term."""

_STEP = 2.0**-7
"""A step of 8 bits ÷ the largest value: rounding to a neighbour moves a quantised value by it."""

_CHANNELS_FIRST = (
    "Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization", "GroupNormalization",
    "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool",
    "LRN", "Resize", "Upsample", "DepthToSpace", "SpaceToDepth",
)  # fmt: skip
"""Operators whose specification has the channels in axis 1."""
_KEEPS_AXES = (
    "Abs", "Add", "Cast", "Ceil", "Celu", "Clip", "Concat", "Div", "Dropout", "Elu", "Erf",
    "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LayerNormalization",
    "LeakyRelu", "Log", "LogSoftmax", "Max", "Mean", "Min", "Mish", "Mul", "Neg", "Pad", "Pow",
    "PRelu", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Cos", "Slice",
    "Softmax", "Softplus", "Softsign", "Split", "Sqrt", "Sub", "Sum", "Swish", "Tanh",
    "ThresholdedRelu",
)  # fmt: skip
"""Operators whose outputs have the axes of their inputs."""


class Product(NamedTuple):
    """What an operator that adds products is, and which of its inputs are weights."""

    kind: str
    weights: int | None = 1


CONVOLUTION, TRANSPOSED = "convolution", "transposed convolution"
MATRIX, RECURRENT, ATTENTION, OTHER = "matrix product", "recurrent layer", "attention", "other"

PRODUCTS: Mapping[str, Product] = {
    name: Product(kind, weights)
    for kind, weights, names in (
        # kind, index of the input that has the weights, None without one, operators in any domain
        (CONVOLUTION, 1, "Conv ConvInteger FusedConv"),
        (CONVOLUTION, 3, "QLinearConv"),
        (TRANSPOSED, 1, "ConvTranspose ConvTransposeWithDynamicPads"),
        (MATRIX, 1, "DynamicQuantizeMatMul FusedGemm FusedMatMul Gemm GemmFastGelu MatMul"),
        (MATRIX, 1, "MatMulBnb4 MatMulFpQ4 MatMulInteger MatMulInteger16 MatMulIntegerToFloat"),
        (MATRIX, 1, "MatMulNBits TransposeMatMul"),
        (MATRIX, 3, "QGemm QLinearMatMul"),
        (RECURRENT, 1, "AttnLSTM DynamicQuantizeLSTM GRU LSTM RNN"),
        (ATTENTION, 1, "Attention DecoderMaskedMultiHeadAttention LinearAttention"),
        (ATTENTION, 1, "MultiHeadAttention QAttention"),
        (ATTENTION, None, "FlexAttention GroupQueryAttention PagedAttention SparseAttention"),
        (OTHER, 1, "CausalConvWithState DeformConv Einsum MoE NhwcConv NhwcFusedConv QMoE"),
        (OTHER, 1, "WordConvEmbedding"),
        (OTHER, None, "SparseToDenseMatMul"),
    )
    for name in names.split()
}
"""Operators that add products; poolings and sums do not."""


def product_types(*kinds: str) -> frozenset[str]:
    """Returns the operators that add products and are of these kinds."""
    return frozenset(name for name, product in PRODUCTS.items() if product.kind in kinds)


CONVOLUTIONS = product_types(CONVOLUTION)
WHOLE_PRODUCTS = CONVOLUTIONS | {
    "MatMul", "FusedMatMul", "TransposeMatMul", "Gemm", "FusedGemm", "MatMulInteger",
    "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QLinearMatMul", "QGemm",
}  # fmt: skip
"""Operators that take every product that is counted, but those with zeros of a padding."""


def draws_numbers(op_type: str) -> bool:
    """Whether an operator returns random numbers, on which two runtimes never agree."""
    return op_type in ("Bernoulli", "Multinomial") or op_type.startswith("Random")


_ATTENTION = (
    "its queries, keys and shares of values are floats inside one operator, which nothing quantises"
)
_AS_MATMUL = "Export it as the operators that it joins, such as MatMul and Softmax."
_STATE = "it multiplies a state of floats, which nothing quantises between its steps"
_NO_SUMS = "the interpreter has no such operator, so that nothing adds its products in integers"

WIDE = {
    **dict.fromkeys(
        ("Attention", "FlexAttention", "GroupQueryAttention", "MultiHeadAttention"), _ATTENTION
    ),
    **dict.fromkeys(("CausalConvWithState", "LinearAttention"), _STATE),
    **dict.fromkeys(
        ("AttnLSTM", "DecoderMaskedMultiHeadAttention", "GemmFastGelu", "NhwcConv", "NhwcFusedConv",
         "PagedAttention", "SparseAttention"),
        _NO_SUMS,
    ),
    "DeformConv": "it multiplies numbers interpolated between elements, which are no integers",
    "MatMulBnb4": "its weights are 4-bit floats, which are no integers",
    "MatMulFpQ4": "its weights are packed in a format that the interpreter does not read",
    "MoE": "its experts multiply floats that nothing quantises between their layers",
    "QMoE": "its experts multiply floats with weights that are dequantised first",
    "SparseToDenseMatMul": "its tensors are sparse, and the interpreter has no such operator",
    "WordConvEmbedding": "it multiplies embeddings of floats inside one operator",
}  # fmt: skip
"""Why the products of an operator that multiplies stay wide, by operator."""

PARTLY = {
    "QAttention": "the products of the input and the weights are narrow; " + _ATTENTION,
}
"""Why some of the products of a narrow operator stay wide, by operator."""

MULTIPLYING = frozenset(PRODUCTS)


def multiplies(node: Node) -> bool:
    """Whether a node adds products; poolings and sums do not."""
    return node.op_type in MULTIPLYING


def reason_to_stay_wide(node: Node) -> tuple[str, str | None]:
    """Returns why a node that multiplies has no narrow sums, and what to do, if that helps."""
    why = WIDE.get(node.op_type, f"{node.qualified_type} has no sums of integers")
    return why, _AS_MATMUL if why == _ATTENTION else None


def is_qonnx_quantizer(domain: str, op_type: str) -> bool:
    """Whether an operator rounds, under any name of QONNX's domain."""
    return domain in QONNX_DOMAINS and op_type in QUANTIZERS


def returns_integers(op_type: str) -> bool:
    """Whether an operator, or a kernel of onnxruntime, reads and returns quantised integers."""
    return op_type.startswith(_INTEGER_TO_INTEGER)


def computes_in_integers(op_type: str) -> bool:
    """Whether an operator, or a kernel of onnxruntime, computes in quantised integers."""
    return op_type in _INTEGER_TO_FLOAT or returns_integers(op_type)


def reads_integers(op_type: str) -> bool:
    """Whether a kernel of onnxruntime reads quantised integers, weights of few bits among them."""
    return op_type in _PACKED or computes_in_integers(op_type)


_INTERPOLATORS = frozenset(("Resize", "Upsample"))
"""Operators that compute integers between integers: ONNX rounds them, onnxruntime cuts them off."""


def rounds_values(op_type: str) -> bool:
    """Whether an operator rounds values to quantised integers; DequantizeLinear does not."""
    return "Quantize" in op_type or op_type in QUANTIZERS or returns_integers(op_type)


def multiplies_packed_integers(node: Node) -> bool:
    """Whether MatMulNBits may round activations to 8 bits, and multiply integers by them."""
    if (node.domain, node.op_type) != (MICROSOFT, "MatMulNBits"):
        return False
    level = integer_attribute(node.proto, "accuracy_level")
    return level == _ROUNDED and not node.has_input(_GROUPS)


def adds_integers(model: Model) -> bool:
    """Whether a node of a model adds integers, so that it need not be quantised for them."""
    return quantized_node(model) is not None or any(map(multiplies_packed_integers, model.nodes))


def quantized_node(model: Model) -> Node | None:
    """Returns the first node that converts to or computes in quantised integers."""
    for node in model.nodes:
        converts = node.op_type in CONVERSIONS or node.op_type in INTEGER_QUANTIZERS
        if (converts and node.op_type != "FloatQuant") or computes_in_integers(node.op_type):
            return node
    return None


def rounded_node(model: Model) -> Node | None:
    """Returns a quantised node, or else one whose weights of few bits are multiplied as floats."""
    packed = (
        node for node in model.nodes
        if (node.op_type in _PACKED and node.domain == MICROSOFT) or node.op_type == "FloatQuant"
    )  # fmt: skip
    return quantized_node(model) or next(packed, None)


def channel_axes(graph: onnx.GraphProto) -> dict[str, int]:
    """Returns the axis of the channels of tensors, where the nodes of the main graph tell it.

    An axis is counted from the front, or, if negative, from the end. A convolution returns its
    channels in axis 1, a product with weights in the last axis. Transposes move the axis, and nodes
    that keep the axes apart keep it. What follows anything else is not known.
    """
    stored = {weight.name for weight in graph.initializer}
    stored |= {node.output[0] for node in graph.node if node.op_type == "Constant"}
    axes: dict[str, int] = {}
    for node in graph.node:
        axis = None
        if node.domain not in ONNX_DOMAINS:
            continue
        if node.op_type in _CHANNELS_FIRST:
            axis = 1
        elif node.op_type in ("MatMul", "Gemm"):  # columns of a computed matrix may be anything
            axis = -1 if node.input[1] in stored else None
        elif node.op_type in _KEEPS_AXES:  # computed inputs must agree; others are broadcast
            found = {axes.get(name) for name in node.input if name and name not in stored}
            axis = found.pop() if len(found) == 1 else None
        elif node.op_type == "Transpose" and node.input[0] in axes:
            before = axes[node.input[0]]
            perm = [*next((each.ints for each in node.attribute if each.name == "perm"), ())]
            # without a permutation the axes are reversed
            axis = perm.index(before % len(perm)) if perm else -1 - before
        if axis is not None:
            axes.update((name, axis) for name in node.output if name)
    return axes


def reads_by_main_node(model: Model) -> Mapping[str, set[str]]:
    """Returns the names of the tensors that each node of the main graph reads, also in bodies."""
    read: dict[str, set[str]] = defaultdict(set)
    for node in model.nodes:
        read[node.outermost.key].update(node.inputs)
    return read


def precisions(
    model: Model,
    values: Mapping[str, Any],
    given: Container[str] = (),
    products: Mapping[str, float] = MappingProxyType({}),
) -> Mapping[str, Precision]:
    """Returns the precision of tensors of the main graph, by name; `values` tell their types.

    `products` are shares of the scale, by operator, of a device that rounds factors below the type.

    A tensor is as inexact as the most inexact one that it follows from. The depth of a tensor is
    the number of operators on the longest way to it. Both begin anew behind tensors that are
    `given`: their readers get equal values.
    """
    read = reads_by_main_node(model)
    found: dict[str, Precision] = {}
    for node in model.nodes:
        if node.scope.path:
            continue
        before = [found[n] for n in read[node.key] if n in found and n not in given]
        depth = 1 + max((each.depth for each in before), default=0)
        share = max((_STEP if each.steps else each.share for each in before), default=0.0)
        rounds = rounds_values(node.op_type)
        in_integers = computes_in_integers(node.op_type) or multiplies_packed_integers(node)
        for name in filter(None, node.outputs):  # of an output computed from equal inputs
            value = values.get(name)
            own = Precision.of(value.dtype) if isinstance(value, np.ndarray) else Precision()
            if own.share and (rounds or in_integers):
                own = Precision(_STEP)
            else:
                coarse = products.get(node.op_type, 0.0) if own.share else 0.0
                steps = int(rounds or (node.op_type in _INTERPOLATORS and not own.share))
                own = Precision(max(own.share, coarse), steps=steps)
            found[name] = Precision(max(own.share, share), depth, own.steps)
    return found
