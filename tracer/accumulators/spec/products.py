"""Which operators add products, in any domain, and why some stay wide by any policy."""

from tracer.graph.model import Node
from tracer.graph.operators import PRODUCTS

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
