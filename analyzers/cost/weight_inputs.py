"""Which inputs of an operator read weights, where the model has no marks of its exporter.

An operator that is in no table reads no weights, unless tracer has no counting rule for it.
"""

import math
from enum import Enum

from tracer.analyzers.cost import registry
from tracer.analyzers.cost.operation import Operation
from tracer.support.types import Array

_ALL = frozenset({
    # products; their settings are in their rules
    "Conv", "ConvInteger", "ConvTranspose", "ConvTransposeWithDynamicPads",
    "CausalConvWithState", "DeformConv", "FusedConv", "NhwcConv", "NhwcFusedConv",
    "QLinearConv", "WordConvEmbedding", "Einsum", "Gemm", "MatMul", "MatMulInteger",
    "MatMulInteger16", "QLinearMatMul", "FusedGemm", "FusedMatMul", "FusedMatMulActivation",
    "GemmFastGelu", "TransposeMatMul", "DynamicQuantizeMatMul", "MatMulBnb4",
    "MatMulIntegerToFloat", "MatMulNBits", "QGemm", "MoE", "QMoE", "RNN", "GRU", "LSTM",
    "DynamicQuantizeLSTM", "Attention", "QAttention", "MultiHeadAttention",
    "DecoderMaskedMultiHeadAttention", "LinearAttention",
    # normalisations and embeddings
    "BatchNormalization", "InstanceNormalization", "GroupNormalization", "GroupNorm",
    "SkipGroupNorm", "LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization",
    "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization",
    "QEmbedLayerNormalization", "GatherBlockQuantized",
    # biases and slopes
    "PRelu", "BiasAdd", "BiasGelu", "BiasSplitGelu", "FastGelu", "BiasSoftmax", "MultiThreshold",
})  # fmt: skip
_PRODUCTS_OF_INTEGERS = frozenset({"MatMul", "Gemm", "Conv", "Einsum"})
"""Their weights may be int64."""
_TABLES = {"Gather": 0, "GatherElements": 0, "GatherND": 0}
"""Operators that read rows of a table: the input that is the table."""
_ELEMENTWISE = frozenset(("Add", "Mul", "Sum", "QLinearAdd", "QLinearMul"))
"""A bias or a scale, written as an operator of its own."""
_JOINING = frozenset(("Concat", "Expand", "Where"))
"""Operators that put a trained token beside activations."""
_FLOATS = frozenset(("float16", "bfloat16", "float32", "float64"))
_BLOCKED = -1000.0
"""At most so large is the number that a mask adds to scores; a trained bias is never so small."""


class Role(Enum):
    """What an input reads by its place: weights, weights or constants of the code, no weights."""

    WEIGHT = "weight"
    COMBINED = "combined"
    OTHER = "other"


def role(op: Operation, index: int, stored: str | None, named: bool | None) -> Role:
    """Returns the role of the input at `index`, which is no setting.

    `stored` is the type of the stored tensor that the input is made of, and `named` whether it has
    a name of a state_dict, which a constant of the code has not; None where names tell nothing.
    """
    name = op.op_type
    if stored in ("bool", "string") or (stored == "int64" and name not in _PRODUCTS_OF_INTEGERS):
        return Role.OTHER
    if name in _ALL or registry.rule_of(op) is None:
        return Role.WEIGHT
    if name in _TABLES:
        return Role.WEIGHT if index == _TABLES[name] and stored != "int32" else Role.OTHER
    if name in _JOINING:
        return Role.COMBINED if stored in _FLOATS and named is not False else Role.OTHER
    if named and stored in _FLOATS and name in _ELEMENTWISE:
        return Role.COMBINED
    fits = op.input(index).dtype in _FLOATS or name.startswith("QLinear")
    combines = name in _ELEMENTWISE and fits and not _is_factor(op, index)
    return Role.COMBINED if combines else Role.OTHER


def _is_factor(op: Operation, index: int) -> bool:
    """Returns whether one number serves several elements, as the scale of attention does."""
    size, shape = op.input(index).known_size, op.output().known_shape
    return size == 1 and (shape is None or math.prod(shape[-1:]) != 1)


def is_constant(op: Operation, values: Array | None) -> bool:
    """Returns whether numbers are a mask, or a state or padding that begins with one number."""
    if values is None or values.dtype.kind != "f" or not values.size:
        return False
    if op.op_type in _JOINING:
        return bool((values == values.flat[0]).all())
    hides = values <= _BLOCKED
    return bool(hides.any() and (hides | (values == 0)).all())
