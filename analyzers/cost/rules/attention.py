"""Attention: Q K^T and the weighted sum of V are MACs; scale, mask and softmax are added.

Every score counts, including scores that a causal mask or a sliding window hides.
"""

from functools import partial

from tracer.analyzers.cost.count import (
    Bytes,
    Count,
    Operand,
    Operation,
    UnknownWorkError,
    counts,
    everything,
    known_sum,
    total,
)
from tracer.analyzers.cost.rules import reduction
from tracer.analyzers.cost.rules.normalization import SCALE, root_mean_square
from tracer.analyzers.cost.rules.quantization import zero_points
from tracer.graph.operators import MICROSOFT


@counts("Attention", settings=(3, 6))
def _attention(op: Operation) -> Count:
    query, key, value = (op.input(index).shape for index in range(3))
    if len(query) == 3:
        heads = op.integer("q_num_heads", 1)
        width = query[-1] // heads
        value_width = value[-1] // op.integer("kv_num_heads", heads)
    else:
        heads, width, value_width = query[1], query[-1], value[-1]
    past = op.input(4).shape[-2] if op.has(4) else 0
    scores = query[0] * heads * query[-2] * (key[-2] + past)
    count = scaled_dot_product(scores, width, value_width, masks=int(op.has(3)))
    if op.number("softcap", 0.0):
        count += SOFTCAP * scores
    return count


@counts("FlexAttention", domain="ai.onnx.preview")
def _flex(op: Operation) -> Count:
    """Counts attention of heads; nodes of its bodies, which change scores or shares, count too."""
    batch, heads, tokens, width = op.input(0).shape
    scores = batch * heads * tokens * op.input(1).shape[2]
    return scaled_dot_product(scores, width, op.input(2).shape[3], masks=0)


SOFTCAP = Count(muls=1, other=2)
"""c tanh(score / c)."""


def scaled_dot_product(scores: int, width: int, value_width: int, masks: int) -> Count:
    """Counts softmax(scale × Q K^T + masks) V, for heads of these widths."""
    per_score = Count(macs=width + value_width, adds=masks, muls=1) + reduction.PER_ELEMENT
    return per_score * scores


def rotary_traffic(op: Operation, tables: tuple[int, int]) -> tuple[Bytes, Bytes]:
    """Counts everything, but of the tables a row for each token at most."""
    shape = op.input(0).shape
    tokens = shape[0] * shape[2 if len(shape) == 4 else 1]
    names = {op.node.inputs[index] for index in tables}
    rest = total(operand for operand in op.inputs() if operand.name not in names)
    rows = [table_rows(op, index, tokens) for index in tables]
    return known_sum((rest, *rows)), total(op.outputs())


def table_rows(op: Operation, index: int, rows: int) -> Bytes:
    """Returns the bytes of `rows` rows of an input, at most of all."""
    table = op.input(index)
    if table.nbytes is None:
        return None
    return table.nbytes * min(rows, table.shape[0]) // max(table.shape[0], 1)


# reads the rows of both tables that the tokens need; without positions, all of them
@counts(
    "RotaryEmbedding", settings=(3,),
    moves=lambda op: rotary_traffic(op, tables=(1, 2)) if op.has(3) else everything(op),
)  # fmt: skip
def _rotary(op: Operation) -> Count:
    shape = op.input(0).shape
    heads = op.integer("num_heads", 0)
    width = shape[-1] if len(shape) == 4 else shape[-1] // max(heads, 1)
    return rotary(op, width)


def rotary(op: Operation, width: int) -> Count:
    """Counts x cos ± y sin for the rotated elements: `rotary_embedding_dim` of each head."""
    rotated = op.integer("rotary_embedding_dim", 0) or width
    return Count(adds=1, muls=2) * (op.input(0).size // max(width, 1) * rotated)


@counts("LinearAttention", domain=("", MICROSOFT), settings=(3,))
def _linear(op: Operation) -> Count:
    """Counts the recurrence of the specification, token by token, for any size of chunks."""
    batch, tokens = op.input(0).shape[:2]
    query_heads, heads = op.integer("q_num_heads", 1), op.integer("kv_num_heads", 1)
    width = op.input(0).shape[2] // query_heads
    value_width = op.input(2).shape[2] // heads
    state = width * value_width
    rule = op.text("update_rule", "gated_delta")
    read = Count(macs=state, muls=value_width) * max(query_heads, heads)  # scale x q S
    update = Count(macs=state)  # S + k v
    if rule.endswith("delta"):
        update += Count(macs=state, adds=value_width, muls=value_width)  # beta (v - S k)
    if rule.startswith("gated"):
        update += Count(muls=state)  # exp(g) S
    gates = Count(other=op.input(4).size if rule.startswith("gated") else 0)
    return (read + update * heads) * (batch * tokens) + gates


@counts("Attention", domain=MICROSOFT, settings=(3, 6))
def _projected_attention(op: Operation) -> Count:
    return _projected(op, mask=3, past=4, bias=5)


@counts("QAttention", domain=MICROSOFT, settings=(3, 4, 5, 6, 7))
def _quantised_attention(op: Operation) -> Count:
    projected = op.input(0).size // op.input(0).shape[-1] * op.input(1).shape[-1]
    offsets = zero_points(op, ((0, 6), (1, 7)))
    return _projected(op, mask=5, past=8, bias=None) + offsets + Count(muls=projected)


def _projected(op: Operation, mask: int, past: int, bias: int | None) -> Count:
    """Counts attention that also projects one input to Q, K and V."""
    batch, tokens, features = op.input(0).shape
    columns = op.input(1).shape[-1]
    heads = op.integer("num_heads", 1)
    sizes = op.integers("qkv_hidden_sizes") or (columns // 3,) * 3
    total = tokens + _past(op, past, axis=3)
    scores = batch * heads * tokens * total
    masks = op.has(mask) + (bias is not None and op.has(bias))
    outputs = batch * tokens * columns
    projection = Count(macs=outputs * features, adds=outputs if op.has(2) else 0)
    return projection + scaled_dot_product(scores, sizes[0] // heads, sizes[2] // heads, masks)


@counts("MultiHeadAttention", domain=MICROSOFT, settings=(4, 8, 9))
def _multi_head(op: Operation) -> Count:
    query = op.input(0).shape
    heads = op.integer("num_heads", 1)
    batch, tokens = query[:2]
    width = query[4] if len(query) == 5 else query[2] // heads
    value_width = op.output().shape[-1] // heads
    keys = query[1]  # K is packed with Q and V, [B, H, S, E], or [B, S, H E] also packed with V
    if op.has(1):
        keys = op.input(1).shape[2 if len(op.input(1).shape) == 4 else 1]
    scores = batch * heads * tokens * (keys + _past(op, 6, axis=2))
    bias = Count(adds=sum(op.input(i).size for i in range(3) if op.has(i)) if op.has(3) else 0)
    masks = op.has(4) + op.has(5)
    return bias + scaled_dot_product(scores, width, value_width, masks)


@counts("DecoderMaskedMultiHeadAttention", domain=MICROSOFT, settings=(3, 7, 8, 9))
def _decoder(op: Operation) -> Count:
    """Counts one new token over the tokens before it, or over keys that come as heads."""
    heads = op.integer("num_heads", 1)
    width = op.output().shape[-1] // heads  # of keys and values
    if op.has(1) and len(op.input(1).shape) == 4:
        keys = op.input(1).shape[2]
    else:
        stored = op.constant(7)
        keys = 1 + (_past(op, 5, axis=2) if stored is None else int(stored.reshape(-1)[0]))
    scores = op.input(0).shape[0] * heads * keys
    bias = Count(adds=sum(op.input(i).size for i in range(3) if op.has(i)) if op.has(10) else 0)
    return bias + scaled_dot_product(scores, width, width, masks=op.has(3) + op.has(4))


def _group_query_traffic(op: Operation) -> tuple[Bytes, Bytes]:
    """Reads the past that is filled, and writes the present; of a shared buffer the new tokens.

    Past and present of one length are one buffer, that the runtime extends in place.
    """
    batch, tokens = op.input(0).shape[:2]
    caches, tables = ([i for i in pair if op.has(i)] for pair in ((3, 4), (7, 8)))
    partly = {op.node.inputs[index] for index in (*caches, *tables)}
    read = [total(each for each in op.inputs() if each.name not in partly)]
    read += [table_rows(op, index, batch * tokens) for index in tables]
    written = [op.output().nbytes]
    past = _total_tokens(op, tokens) - tokens
    read += [_tokens_of(op.input(index), past) for index in caches]
    for index in (1, 2):
        if index < len(op.node.outputs) and op.node.outputs[index]:
            present = op.output(index)
            shared = op.has(index + 2) and op.input(index + 2).known_shape == present.known_shape
            written.append(_tokens_of(present, tokens) if shared else present.nbytes)
    return known_sum(read), known_sum(written)


def _tokens_of(cache: Operand, tokens: int) -> Bytes:
    """Returns the bytes of some tokens of a cache [batch, heads, tokens, size]."""
    if cache.nbytes is None or cache.known_shape is None:
        return None
    rows = cache.known_shape[2]
    return cache.nbytes * min(tokens, rows) // max(rows, 1)


@counts("GroupQueryAttention", domain=MICROSOFT, moves=_group_query_traffic,
        settings=(5, 6, 7, 8, 9, 12, 13))  # fmt: skip
def _group_query(op: Operation) -> Count:
    batch, tokens, features = op.input(0).shape
    heads, key_heads = op.integer("num_heads", 1), op.integer("kv_num_heads", 1)
    width = features // (heads if op.has(1) else heads + 2 * key_heads)
    total = _total_tokens(op, tokens)
    scores = batch * heads * tokens * total
    count = scaled_dot_product(scores, width, width, masks=int(op.has(10)))
    if op.number("softcap", 0.0):
        count += SOFTCAP * scores
    if op.has(11) or op.integer("smooth_softmax", 0):  # a further term of each softmax
        count += Count(adds=1, other=1) * (batch * heads * tokens)
    both = batch * tokens * (heads + key_heads)
    if op.has(14):
        count += root_mean_square(both * width, both) + SCALE * (both * width)
    if op.integer("do_rotary", 0):  # of queries and keys; a table is half a head wide
        count += Count(adds=1, muls=2) * (both * 2 * op.input(7).shape[-1])
    channels = batch * key_heads * width
    for name in ("k_quant_type", "v_quant_type"):
        if op.text(name, "NONE") != "NONE":  # quantises the new ones, and dequantises all
            new = Count(other=4) * (channels * tokens)  # divide, round, clamp to both ends
            count += new + Count(muls=1) * (channels * total)
    return count


def _total_tokens(op: Operation, tokens: int) -> int:
    """Returns the keys per query: a known number, or the length of the cache + new tokens."""
    stored = op.constant(6)
    if stored is not None:
        return int(stored.reshape(-1)[0])
    past = op.input(3).shape[2] if op.has(3) else 0
    if past and op.output(1).shape[2] == past:
        raise UnknownWorkError("how much of its cache is filled is known at run time only")
    return past + tokens


def _past(op: Operation, index: int, axis: int) -> int:
    """Returns the tokens in the cache; unknown if the output shares the buffer of the cache."""
    if not op.has(index):
        return 0
    if op.integer("past_present_share_buffer", 0):
        raise UnknownWorkError("how much of its cache is filled is known at run time only")
    return op.input(index).shape[axis]


@counts("RotaryEmbedding", domain=MICROSOFT, settings=(1, 2, 3),
        moves=partial(rotary_traffic, tables=(2, 3)))  # fmt: skip
def _rotary_embedding(op: Operation) -> Count:
    """Counts X [B, S, H E] or [B, H, S, E]; tables are half as wide as the rotated part."""
    shape = op.input(0).shape
    heads = op.integer("num_heads", 0)
    if len(shape) == 4:
        return rotary(op, shape[-1])
    return rotary(op, shape[-1] // heads if heads else 2 * op.input(2).shape[-1])
