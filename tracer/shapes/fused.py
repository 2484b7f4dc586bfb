"""Types of the outputs of onnxruntime's own operators: images, quantised tensors, texts, attention.

onnx has no shape inference for them. What a rule does not tell is None.
"""

from tracer.graph.tensor_type import Dim, TensorType
from tracer.interpreter.numeric.windows import window
from tracer.interpreter.ops.conv import geometry
from tracer.shapes.known import (
    Known,
    Outputs,
    Rules,
    Shape,
    added,
    broadcast,
    concatenated,
    divided,
    like_first,
    times,
)

RULES = Rules(
    dict.fromkeys(
        ("LayerNormalization", "MoE", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax",
         "QMoE", "RotaryEmbedding", "SimplifiedLayerNormalization"),
        like_first,
    )
)  # fmt: skip
OF_ONNX = ("LayerNormalization", "SimplifiedLayerNormalization")
"""Operators that onnxruntime has in the domain of ONNX."""


def pooled(known: Known, kernel: tuple[int, ...], maps: Dim, last: bool) -> Shape:
    """Returns the shape of what windows over the first input give, or None.

    `maps` are the channels of the output, None as many as before; `last` says where they are.
    """
    shape = known.sizes(0)
    if len(shape) != len(kernel) + 2:
        return None
    space = shape[1:-1] if last else shape[2:]
    sizes = tuple(size for size in space if isinstance(size, int))
    if len(sizes) < len(space):
        return None
    slid = window(
        sizes, kernel, known.integers("strides") or None, known.integers("pads") or None,
        known.integers("dilations") or None, known.text("auto_pad", "NOTSET"),
        known.integer("ceil_mode"),
    )  # fmt: skip
    channels = maps if maps is not None else shape[-1 if last else 1]
    return (shape[0], *slid.out, channels) if last else (shape[0], channels, *slid.out)


def transposed(
    known: Known, pads: tuple[int, ...] | None, output_shape: tuple[int, ...] | None
) -> Shape:
    """Returns the shape of a transposed convolution of the first input, or None."""
    shape, weights = known.sizes(0), known.sizes(1)
    sizes = [size for size in (*shape[2:], *weights[1:]) if isinstance(size, int)]
    rank = len(shape) - 2
    if len(sizes) < 2 * rank + 1:
        return None
    ones = [1] * rank
    *_, cropped = geometry(
        sizes[:rank], sizes[rank + 1 :], list(known.integers("strides") or ones),
        list(known.integers("dilations") or ones), pads, known.integers("output_padding") or None,
        output_shape, known.text("auto_pad", "NOTSET"),
    )  # fmt: skip
    return (shape[0], sizes[rank] * known.integer("group", 1), *cropped)


RULES("CDist")(lambda known: [known.typed(0, (known.sizes(0)[0], known.sizes(1)[0]))])
RULES("DequantizeLinear")(lambda known: [known.typed(1, known.shape(0))])
RULES("NGramRepeatBlock")(lambda known: [known.type_of(1)])
RULES("QLinearAdd", "QLinearMul")(
    lambda known: [known.typed(0, broadcast(known.shape(0), known.shape(3)))]
)
RULES("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")(
    lambda known: [known.type_of(0), None, None, known.type_of(0)]
)
RULES("WordConvEmbedding")(lambda known: [known.typed(3, (known.sizes(0)[0], known.sizes(1)[0]))])


@RULES("MaxpoolWithMask", "NhwcMaxPool")
def _largest(known: Known) -> Outputs:
    last = known.node.op_type == "NhwcMaxPool"
    return [known.typed(0, pooled(known, known.integers("kernel_shape"), None, last))]


@RULES("CropAndResize")
def _cropped_regions(known: Known) -> Outputs:
    images, regions = known.sizes(0), known.sizes(1)
    return [known.typed(0, (regions[0], images[1], *known.numbers(3)))]


@RULES("ConvTransposeWithDynamicPads")
def _convolved_back(known: Known) -> Outputs:
    pads = known.numbers(2) if known.has(2) else None
    return [known.typed(0, transposed(known, pads, None))]


@RULES("QLinearWhere")
def _where(known: Known) -> Outputs:
    values = broadcast(known.shape(1), known.shape(4))
    return [known.typed(1, broadcast(known.shape(0), values))]


@RULES("QLinearConcat")
def _concatenated(known: Known) -> Outputs:
    shapes = [known.sizes(index) for index in range(2, len(known.node.inputs), 3)]
    return [known.typed(2, concatenated(shapes, known.integer("axis") % len(shapes[0])))]


@RULES("QLinearConv")
def _convolved(known: Known) -> Outputs:
    weights = known.sizes(3)
    window = tuple(size for size in weights[2:] if isinstance(size, int))
    shape = pooled(known, window, weights[0], bool(known.integer("channels_last")))
    return [known.typed(7, shape)]


@RULES("QLinearAveragePool")
def _averaged(known: Known) -> Outputs:
    window = known.integers("kernel_shape")
    return [known.typed(0, pooled(known, window, None, bool(known.integer("channels_last"))))]


@RULES("QLinearGlobalAveragePool")
def _averaged_whole(known: Known) -> Outputs:
    shape = known.sizes(0)
    if len(shape) < 3:
        return []
    ones = (1,) * (len(shape) - 2)
    last = known.integer("channels_last")
    return [known.typed(0, (shape[0], *ones, shape[-1]) if last else (*shape[:2], *ones))]


@RULES("QLinearReduceMean")
def _mean(known: Known) -> Outputs:
    shape, keeps = known.sizes(0), known.integer("keepdims", 1)
    axes = {axis % len(shape) for axis in known.integers("axes") or range(len(shape))}
    sizes = [1 if at in axes else size for at, size in enumerate(shape)]
    return [known.typed(0, tuple(s for at, s in enumerate(sizes) if keeps or at not in axes))]


@RULES("QGemm")
def _quantized_product(known: Known) -> Outputs:
    rows = known.sizes(0)[1 if known.integer("transA") else 0]
    columns = known.sizes(3)[0 if known.integer("transB") else 1]
    return [known.typed(8 if known.has(7) else 1, (rows, columns))]


@RULES("MatMulInteger16")
def _wide_product(known: Known) -> Outputs:
    left, right = known.sizes(0), known.sizes(1)
    if len(left) < 2 or len(right) != 2:
        return []
    return [TensorType("int32", (*left[:-1], right[1]))]


@RULES("QuantizeLinear")
def _quantized(known: Known) -> Outputs:
    shape = known.sizes(0)
    return [known.typed(2, shape) if known.has(2) else TensorType("uint8", shape)]


@RULES("GatherND")
def _picked(known: Known) -> Outputs:
    table, indices = known.sizes(0), known.sizes(1)
    if not isinstance(indices[-1], int):
        return []
    return [known.typed(0, (*indices[:-1], *table[indices[-1] :]))]


@RULES("MurmurHash3")
def _hashes(known: Known) -> Outputs:
    dtype = "uint32" if known.integer("positive", 1) else "int32"
    return [TensorType(dtype, known.sizes(0))]


@RULES("UnfoldTensor")
def _unfolded(known: Known) -> Outputs:
    shape, size = known.sizes(0), known.integer("size")
    at = known.integer("dim", -1) % len(shape)
    length = shape[at]
    count = (length - size) // known.integer("step", 1) + 1 if isinstance(length, int) else None
    return [known.typed(0, (*shape[:at], count, *shape[at + 1 :], size))]


@RULES("ExpandDims")
def _expanded(known: Known) -> Outputs:
    shape, axis = known.sizes(0), known.number(1)
    if axis is None:
        return []
    at = axis % (len(shape) + 1)
    return [known.typed(0, (*shape[:at], 1, *shape[at:]))]


@RULES("Pad")
def _padded(known: Known) -> Outputs:
    shape, pads = known.sizes(0), known.numbers(1)
    if len(pads) != 2 * len(shape):
        return []
    around = zip(shape, pads[: len(shape)], pads[len(shape) :], strict=True)
    sizes = tuple(s + b + a if isinstance(s, int) else None for s, b, a in around)
    return [known.typed(0, sizes)]


@RULES("EmbedLayerNormalization", "QEmbedLayerNormalization")
def _embedded(known: Known) -> Outputs:
    is_quantized = known.node.op_type.startswith("Q")
    ids, table = known.sizes(0), known.sizes(2)
    rows = known.typed(8 if is_quantized else 2, (*ids, table[-1]))
    outputs = [rows, TensorType("int32", ids[:1]), rows]
    return outputs[:2] if is_quantized else outputs


@RULES("MatMulBnb4", "MatMulNBits")
def _packed_product(known: Known) -> Outputs:
    columns = known.integer("N" if known.integer("transB", 1) else "K")
    return [known.typed(0, (*known.sizes(0)[:-1], columns))]


@RULES("GatherBlockQuantized")
def _gathered(known: Known) -> Outputs:
    table, shape, indices = known.type_of(0), known.sizes(0), known.sizes(1)
    at = known.integer("gather_axis") % len(shape)
    rest = list(shape[at + 1 :])
    if table is not None and table.dtype == "uint8" and rest and isinstance(rest[-1], int):
        rest[-1] = rest[-1] * 8 // known.integer("bits", 4)
    return [known.typed(2, (*shape[:at], *indices, *rest))]


@RULES("FusedMatMul", "TransposeMatMul")
def _transposed_product(known: Known) -> Outputs:
    sides = []
    for index, name in enumerate("AB"):
        shape = known.sizes(index)
        if len(shape) < 2:
            return []
        if known.integer(f"transBatch{name}"):  # the first axis moves behind the batch
            shape = (*shape[1:-1], shape[0], shape[-1])
        if known.integer(f"trans{name}"):
            shape = (*shape[:-2], shape[-1], shape[-2])
        sides.append(shape)
    left, right = sides
    batch = left[:-2] if len(left) >= len(right) else right[:-2]
    if left[:-2] != right[:-2] and min(len(left), len(right)) > 2:
        return []
    return [known.typed(0, (*batch, left[-2], right[-1]))]


@RULES("GroupQueryAttention")
def _grouped_attention(known: Known) -> Outputs:
    query, past = known.sizes(0), known.shape(3)
    if len(query) != 3:
        return []
    heads, groups = known.integer("num_heads", 1), known.integer("kv_num_heads", 1)
    size = divided(query[2], heads if known.has(1) else heads + 2 * groups)
    total = known.number(6) if known.has(3) else query[1]
    rows: Dim = total
    if past is not None and len(past) == 4:
        size_stored, rows = past[3], past[2]
        if not known.integer("sliding_window_cache"):
            rows = max(rows, total) if isinstance(rows, int) and isinstance(total, int) else None
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


@RULES("MultiHeadAttention")
def _attention_of_heads(known: Known) -> Outputs:
    query, value, heads = known.sizes(0), known.shape(2), known.integer("num_heads", 1)
    tokens, size = query[1], query[4] if len(query) == 5 else divided(query[2], heads)
    keys, value_size = tokens, size
    if known.has(1):
        key = known.sizes(1)
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


@RULES("DecoderMaskedMultiHeadAttention")
def _attention_of_a_new_token(known: Known) -> Outputs:
    query, past, heads = known.sizes(0), known.shape(5), known.integer("num_heads", 1)
    if known.has(2):
        value = known.sizes(2)
        width = times(value[3], heads) if len(value) == 4 else value[2]
    else:
        width = divided(query[2], 3)
    output = known.typed(0, (*query[:2], width))
    if past is None:
        return [output]
    kept = past[2] if known.integer("past_present_share_buffer") else added(past[2], 1)
    present = known.typed(5, (*past[:2], kept, past[3]))
    return [output, present, present]


@RULES("Attention", "QAttention")
def _attention_with_projection(known: Known) -> Outputs:
    past_at, floats = (8, 2) if known.node.op_type == "QAttention" else (4, 0)
    tokens, weights, past = known.sizes(0), known.sizes(1), known.shape(past_at)
    if len(tokens) != 3:
        return []
    heads = known.integer("num_heads", 1)
    sizes = known.integers("qkv_hidden_sizes")
    width = sizes[2] if len(sizes) == 3 else divided(weights[1], 3)
    new = tokens[1]
    total = new if not known.has(past_at) else added(None if past is None else past[3], new)
    present = (2, tokens[0], heads, total, divided(width, heads))
    return [known.typed(floats, (*tokens[:2], width)), known.typed(floats, present)]


@RULES("LinearAttention")
def _linear_attention(known: Known) -> Outputs:
    query, value = known.sizes(0), known.sizes(2)
    heads, groups = known.integer("q_num_heads", 1), known.integer("kv_num_heads", 1)
    size, width = divided(query[2], heads), divided(value[2], groups)
    output = (*query[:2], times(width, max(heads, groups)))
    return [known.typed(0, output), known.typed(0, (query[0], groups, size, width))]


@RULES("CausalConvWithState")
def _causal_convolution(known: Known) -> Outputs:
    shape, taps = known.sizes(0), known.shape(1)
    if taps is None or len(shape) != 3 or not isinstance(taps[-1], int):
        return [known.type_of(0)]
    kept = (taps[-1] - 1) * known.integer("dilation", 1)
    return [known.type_of(0), known.typed(0, (*shape[:2], kept))]
