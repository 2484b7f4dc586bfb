"""Types of the outputs of onnxruntime's operators that have the shapes of no standard operator.

onnx has no shape inference for them. What a rule does not tell is None.
"""

from collections.abc import Mapping

from tracer.graph.tensor_type import Dim, TensorType
from tracer.shapes import images, quantized, tables
from tracer.shapes.known_node import (
    Known,
    Outputs,
    Rule,
    Shape,
    added,
    divided,
    like_first,
    times,
)


def _sum_and_normalised(known: Known) -> Outputs:
    return [known.type_of(0), None, None, known.type_of(0)]


def _embeddings(known: Known) -> Outputs:
    return _embedded(known, floats=2)


def _quantized_embeddings(known: Known) -> Outputs:
    return _embedded(known, floats=8)[:2]


def _embedded(known: Known, floats: int) -> Outputs:
    ids, table = known.shape(0), known.shape(2)
    if ids is None or table is None:
        return []
    whole = known.typed(floats, (*ids, table[-1]))
    return [whole, TensorType("int32", ids[:1]), whole]


def _packed_product(known: Known) -> Outputs:
    shape = known.shape(0)
    return [
        None
        if shape is None
        else known.typed(
            0, (*shape[:-1], known.integer("N" if known.integer("transB", 1) else "K"))
        )
    ]


def _gathered(known: Known) -> Outputs:
    data, indices = known.type_of(0), known.shape(1)
    if data is None or data.shape is None or indices is None:
        return []
    at = known.integer("gather_axis") % len(data.shape)
    rest = list(data.shape[at + 1 :])
    if data.dtype == "uint8" and rest and isinstance(rest[-1], int):
        rest[-1] = rest[-1] * 8 // known.integer("bits", 4)
    return [known.typed(2, (*data.shape[:at], *indices, *rest))]


def _transposed_product(known: Known) -> Outputs:
    left, right = (
        _transposed(known.shape(i), known.integer(f"trans{n}"), known.integer(f"transBatch{n}"))
        for i, n in enumerate("AB")
    )
    if left is None or right is None or min(len(left), len(right)) < 2:
        return []
    batch = left[:-2] if len(left) >= len(right) else right[:-2]
    if left[:-2] != right[:-2] and min(len(left), len(right)) > 2:
        return []
    return [known.typed(0, (*batch, left[-2], right[-1]))]


def _transposed(shape: Shape, last: int, batch: int) -> Shape:
    """Returns the shape after the first axis moved behind the batch, and the last two changed."""
    if shape is None or len(shape) < 2:
        return shape
    moved = (*shape[1:-1], shape[0], shape[-1]) if batch else shape
    return (*moved[:-2], moved[-1], moved[-2]) if last else moved


def _grouped_attention(known: Known) -> Outputs:
    query, past = known.shape(0), known.shape(3)
    if query is None or len(query) != 3:
        return []
    heads, groups = known.integer("num_heads", 1), known.integer("kv_num_heads", 1)
    size = divided(query[2], heads if known.has(1) else heads + 2 * groups)
    total = known.number(6) if known.has(3) else query[1]
    rows: Dim = total
    if past is not None and len(past) == 4:
        size_stored, rows = past[3], _longest(past[2], total, known)
    else:
        size_stored = size
    present = None if known.has(3) and past is None else (query[0], groups, rows, size_stored)
    cache = 3 if known.has(3) else 0
    output = (*query[:2], query[2] if known.has(1) else times(size, heads))
    scores = (query[0], heads, query[1], total)
    return [
        known.typed(0, output), known.typed(cache, present), known.typed(cache, present),
        known.typed(0, scores),
    ]  # fmt: skip


def _longest(past: Dim, total: Dim, known: Known) -> Dim:
    """Returns the rows of a cache after the run."""
    if known.integer("sliding_window_cache"):
        return past
    return max(past, total) if isinstance(past, int) and isinstance(total, int) else None


def _attention_of_heads(known: Known) -> Outputs:
    query, key, value = (known.shape(index) for index in range(3))
    heads = known.integer("num_heads", 1)
    if query is None or (known.has(1) and key is None):
        return []
    tokens, size = query[1], query[4] if len(query) == 5 else divided(query[2], heads)
    keys, value_size = tokens, size
    if key is not None:
        keys = key[2] if len(key) == 4 else key[1]
    if value is not None:
        value_size = value[3] if len(value) == 4 else divided(value[2], heads)
    past = known.shape(6)
    total = keys if not known.has(6) else added(None if past is None else past[2], keys)
    shapes = (
        (query[0], tokens, times(value_size, heads)), (query[0], heads, total, size),
        (query[0], heads, total, value_size), (query[0], heads, tokens, total),
    )  # fmt: skip
    return [known.typed(0, shape) for shape in shapes]


def _attention_of_a_new_token(known: Known) -> Outputs:
    query, value, past = known.shape(0), known.shape(2), known.shape(5)
    heads = known.integer("num_heads", 1)
    if query is None or (known.has(2) and value is None):
        return []
    if value is None:
        width = divided(query[2], 3)
    else:
        width = times(value[3], heads) if len(value) == 4 else value[2]
    output = known.typed(0, (*query[:2], width))
    if past is None:
        return [output]
    kept = past[2] if known.integer("past_present_share_buffer") else added(past[2], 1)
    present = known.typed(5, (*past[:2], kept, past[3]))
    return [output, present, present]


def _attention_with_projection(known: Known) -> Outputs:
    return _projected(known, past_at=4, floats=0)


def _quantized_attention(known: Known) -> Outputs:
    return _projected(known, past_at=8, floats=2)


def _projected(known: Known, past_at: int, floats: int) -> Outputs:
    tokens, weights, past = known.shape(0), known.shape(1), known.shape(past_at)
    if tokens is None or weights is None or len(tokens) != 3:
        return []
    heads = known.integer("num_heads", 1)
    sizes = known.integers("qkv_hidden_sizes")
    width = sizes[2] if len(sizes) == 3 else divided(weights[1], 3)
    new = tokens[1]
    total = new if not known.has(past_at) else added(None if past is None else past[3], new)
    present = (2, tokens[0], heads, total, divided(width, heads))
    return [known.typed(floats, (*tokens[:2], width)), known.typed(floats, present)]


def _linear_attention(known: Known) -> Outputs:
    query, value = known.shape(0), known.shape(2)
    if query is None or value is None:
        return []
    heads, groups = known.integer("q_num_heads", 1), known.integer("kv_num_heads", 1)
    size, width = divided(query[2], heads), divided(value[2], groups)
    output = (*query[:2], times(width, max(heads, groups)))
    return [known.typed(0, output), known.typed(0, (query[0], groups, size, width))]


def _causal_convolution(known: Known) -> Outputs:
    shape, taps = known.shape(0), known.shape(1)
    if shape is None or taps is None or len(shape) != 3 or not isinstance(taps[-1], int):
        return [known.type_of(0)]
    kept = (taps[-1] - 1) * known.integer("dilation", 1)
    return [known.type_of(0), known.typed(0, (*shape[:2], kept))]


RULES: Mapping[str, Rule] = {
    **images.RULES,
    **quantized.RULES,
    **tables.RULES,
    "Attention": _attention_with_projection,
    "CausalConvWithState": _causal_convolution,
    "DecoderMaskedMultiHeadAttention": _attention_of_a_new_token,
    "EmbedLayerNormalization": _embeddings,
    "FusedMatMul": _transposed_product,
    "GatherBlockQuantized": _gathered,
    "GroupQueryAttention": _grouped_attention,
    "LayerNormalization": like_first,
    "LinearAttention": _linear_attention,
    "MatMulBnb4": _packed_product,
    "MatMulNBits": _packed_product,
    "MoE": like_first,
    "MultiHeadAttention": _attention_of_heads,
    "QAttention": _quantized_attention,
    "QEmbedLayerNormalization": _quantized_embeddings,
    "QMoE": like_first,
    "RotaryEmbedding": like_first,
    "SimplifiedLayerNormalization": like_first,
    "SkipLayerNormalization": _sum_and_normalised,
    "SkipSimplifiedLayerNormalization": _sum_and_normalised,
    "TransposeMatMul": _transposed_product,
}
OF_ONNX = ("LayerNormalization", "SimplifiedLayerNormalization")
"""Operators that onnxruntime has in the domain of ONNX."""
