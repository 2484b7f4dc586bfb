"""onnxruntime's attention operators; see `rules.attention` for what counts."""

from functools import partial

from tracer.analyzers.cost import traffic
from tracer.analyzers.cost.count import Count, UnknownWorkError
from tracer.analyzers.cost.operation import Operand, Operation
from tracer.analyzers.cost.registry import counts
from tracer.analyzers.cost.rules.attention import (
    SOFTCAP,
    rotary,
    rotary_traffic,
    scaled_dot_product,
    table_rows,
)
from tracer.analyzers.cost.rules.normalization import SCALE, root_mean_square
from tracer.analyzers.cost.rules.quantization import zero_points
from tracer.analyzers.cost.traffic import Bytes

_MICROSOFT = "com.microsoft"


@counts("Attention", domain=_MICROSOFT, settings=(3, 6))
def _attention(op: Operation) -> Count:
    return _projected(op, mask=3, past=4, bias=5)


@counts("QAttention", domain=_MICROSOFT, settings=(3, 4, 5, 6, 7))
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


@counts("MultiHeadAttention", domain=_MICROSOFT, settings=(4, 8, 9))
def _multi_head(op: Operation) -> Count:
    query = op.input(0).shape
    heads = op.integer("num_heads", 1)
    batch, tokens = query[:2]
    width = query[4] if len(query) == 5 else query[2] // heads
    value_width = op.output().shape[-1] // heads
    scores = batch * heads * tokens * (_key_tokens(op) + _past(op, 6, axis=2))
    bias = Count(adds=sum(op.input(i).size for i in range(3) if op.has(i)) if op.has(3) else 0)
    masks = op.has(4) + op.has(5)
    return bias + scaled_dot_product(scores, width, value_width, masks)


def _key_tokens(op: Operation) -> int:
    """Returns the tokens of K: [B, S, H E], [B, H, S, E], packed with V, or part of the query."""
    if not op.has(1):
        return op.input(0).shape[1]
    key = op.input(1).shape
    return key[2] if len(key) == 4 else key[1]


@counts("DecoderMaskedMultiHeadAttention", domain=_MICROSOFT, settings=(3, 7, 8, 9))
def _decoder(op: Operation) -> Count:
    """Counts one new token over the tokens before it, or over keys that come as heads."""
    heads = op.integer("num_heads", 1)
    width = op.output().shape[-1] // heads  # of keys and values
    scores = op.input(0).shape[0] * heads * _decoded_keys(op)
    bias = Count(adds=sum(op.input(i).size for i in range(3) if op.has(i)) if op.has(10) else 0)
    return bias + scaled_dot_product(scores, width, width, masks=op.has(3) + op.has(4))


def _decoded_keys(op: Operation) -> int:
    if op.has(1) and len(op.input(1).shape) == 4:
        return op.input(1).shape[2]
    stored = op.constant(7)
    return 1 + (_past(op, 5, axis=2) if stored is None else int(stored.reshape(-1)[0]))


def _group_query_traffic(op: Operation) -> tuple[Bytes, Bytes]:
    """Reads the past that is filled, and writes the present; of a shared buffer the new tokens.

    Past and present of one length are one buffer, that the runtime extends in place.
    """
    batch, tokens = op.input(0).shape[:2]
    caches, tables = ([i for i in pair if op.has(i)] for pair in ((3, 4), (7, 8)))
    partly = {op.node.inputs[index] for index in (*caches, *tables)}
    read = [traffic.total(each for each in op.inputs() if each.name not in partly)]
    read += [table_rows(op, index, batch * tokens) for index in tables]
    written = [op.output().nbytes]
    past = _total_tokens(op, tokens) - tokens
    read += [_tokens_of(op.input(index), past) for index in caches]
    for index in (1, 2):
        if index < len(op.node.outputs) and op.node.outputs[index]:
            present = op.output(index)
            shared = op.has(index + 2) and op.input(index + 2).known_shape == present.known_shape
            written.append(_tokens_of(present, tokens) if shared else present.nbytes)
    return traffic.known_sum(read), traffic.known_sum(written)


def _tokens_of(cache: Operand, tokens: int) -> Bytes:
    """Returns the bytes of some tokens of a cache [batch, heads, tokens, size]."""
    if cache.nbytes is None or cache.known_shape is None:
        return None
    rows = cache.known_shape[2]
    return cache.nbytes * min(tokens, rows) // max(rows, 1)


@counts("GroupQueryAttention", domain=_MICROSOFT, moves=_group_query_traffic,
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
    return count + _cache_codes(op, batch * key_heads * width, tokens, total)


def _cache_codes(op: Operation, channels: int, tokens: int, total: int) -> Count:
    """Counts quantising the new keys and values, and dequantising all of them."""
    count = Count()
    for name in ("k_quant_type", "v_quant_type"):
        if op.text(name, "NONE") != "NONE":
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


@counts("RotaryEmbedding", domain=_MICROSOFT, settings=(1, 2, 3),
        moves=partial(rotary_traffic, tables=(2, 3)))  # fmt: skip
def _rotary(op: Operation) -> Count:
    """Counts X [B, S, H E] or [B, H, S, E]; tables are half as wide as the rotated part."""
    shape = op.input(0).shape
    heads = op.integer("num_heads", 0)
    if len(shape) == 4:
        return rotary(op, shape[-1])
    return rotary(op, shape[-1] // heads if heads else 2 * op.input(2).shape[-1])
