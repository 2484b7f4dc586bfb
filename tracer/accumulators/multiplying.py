"""Which operators add products, in any domain: those that no accumulator computes stay wide."""

from tracer.graph.model import Node

MULTIPLYING = frozenset({
    "Attention", "AttnLSTM", "CausalConvWithState", "Conv", "ConvInteger", "ConvTranspose",
    "ConvTransposeWithDynamicPads", "DecoderMaskedMultiHeadAttention", "DeformConv",
    "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "Einsum", "FlexAttention", "FusedConv",
    "FusedGemm", "FusedMatMul", "GRU", "Gemm", "GemmFastGelu", "GroupQueryAttention", "LSTM",
    "LinearAttention", "MatMul", "MatMulBnb4", "MatMulFpQ4", "MatMulInteger", "MatMulInteger16",
    "MatMulIntegerToFloat", "MatMulNBits", "MoE", "MultiHeadAttention", "NhwcConv",
    "NhwcFusedConv", "PagedAttention", "QAttention", "QGemm", "QLinearConv", "QLinearMatMul",
    "QMoE", "RNN", "SparseAttention", "SparseToDenseMatMul", "TransposeMatMul",
    "WordConvEmbedding",
})  # fmt: skip


def multiplies(node: Node) -> bool:
    """Whether a node adds products; poolings and sums do not."""
    return node.op_type in MULTIPLYING
