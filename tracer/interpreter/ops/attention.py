"""Attention and FlexAttention: softmax(Q K^T + bias) V over heads."""

import numpy as np
import onnx

from tracer.errors import ModelError
from tracer.interpreter.numeric.attention import (
    check_groups,
    check_pasts,
    grouped_product,
    joined_heads,
    split_heads,
    split_shape,
)
from tracer.interpreter.numeric.tensors import are_indices
from tracer.interpreter.operators import Arguments, Body, operator, value_of
from tracer.interpreter.ops.softmax import softmax
from tracer.support.types import Array


def check_inputs(given: Arguments) -> None:
    """Raises ModelError for inputs that do not fit each other or the attributes."""
    Q, K, V, seqlen = given.Q, given.K, given.V, given.nonpad_kv_seqlen
    flat = Q.ndim == 3
    q = split_shape(Q, given.q_num_heads) if flat else Q.shape
    k, v = (split_shape(each, given.kv_num_heads) if flat else each.shape for each in (K, V))
    if not len(q) == len(k) == len(v) == 4 or k[:3] != v[:3] or (k[0], k[3]) != (q[0], q[3]):
        shapes = ", ".join(str(list(each.shape)) for each in (Q, K, V))
        raise ModelError(f"Q, K and V do not fit each other as heads: {shapes}")
    check_groups(q[1], k[1])
    check_pasts(given.past_key, given.past_value, k, v)
    if seqlen is not None and seqlen.shape != q[:1]:
        raise ModelError(
            f"nonpad_kv_seqlen is {list(seqlen.shape)}, and the batch has {q[0]} entries"
        )
    lengths = value_of(seqlen)
    if lengths is not None and not are_indices(lengths, k[2] + 1):
        raise ModelError(
            f"nonpad_kv_seqlen is {lengths.tolist()}", f"Keys of an entry are 0 to {k[2]} here."
        )


@operator("Attention", since=23, check=check_inputs)
def attention(
    Q: Array, K: Array, V: Array, attn_mask: Array | None = None, past_key: Array | None = None,
    past_value: Array | None = None, nonpad_kv_seqlen: Array | None = None,
    *, is_causal: int = 0, kv_num_heads: int | None = None, left_window_size: int = -1,
    q_num_heads: int | None = None, qk_matmul_output_mode: int = 0, right_window_size: int = -1,
    scale: float | None = None, softcap: float = 0.0, softmax_precision: int | None = None,
) -> tuple[Array, ...]:  # fmt: skip
    """Y, the present key and value, and the scores at the stage that the output mode selects."""
    flat = Q.ndim == 3
    if flat:
        Q = split_heads(Q, q_num_heads)
        K, V = split_heads(K, kv_num_heads), split_heads(V, kv_num_heads)
    key = K if past_key is None else np.concatenate([past_key, K], axis=2)
    value = V if past_value is None else np.concatenate([past_value, V], axis=2)
    queries, keys = Q.shape[2], key.shape[2]
    root = Q.dtype.type(np.sqrt(1 / np.sqrt(Q.shape[3]) if scale is None else scale))
    scores = grouped_product(Q * root, np.swapaxes(key * root, -1, -2))
    stages = [scores]
    if softcap:
        scores = (np.tanh(scores / softcap) * softcap).astype(Q.dtype)
    stages.append(scores)
    offset = np.array(0)  # keys before the queries: one number, or one for each batch entry
    if past_key is not None:
        offset = np.array(past_key.shape[2])
    elif nonpad_kv_seqlen is not None:
        offset = (nonpad_kv_seqlen - queries).reshape(-1, 1, 1, 1)
    allowed = _window(queries, keys, offset, left_window_size, right_window_size, is_causal)
    bias = _bias(attn_mask, allowed, nonpad_kv_seqlen, keys, Q.dtype)
    if bias is not None:
        scores = (scores + bias).astype(Q.dtype)
    stages.append(scores)
    shares = _softmax(scores, bias, softmax_precision).astype(Q.dtype)
    stages.append(shares)
    output = grouped_product(shares, value)
    if flat:
        output = joined_heads(output)
    return output, key, value, stages[qk_matmul_output_mode]


@operator("FlexAttention", since=1, domain="ai.onnx.preview")
def flex_attention(
    Q: Array, K: Array, V: Array,
    *, prob_mod: Body | None = None, scale: float | None = None, score_mod: Body | None = None,
    softmax_precision: int | None = None,
) -> Array:  # fmt: skip
    """Attention whose scores and shares are modified by graphs."""
    root = Q.dtype.type(np.sqrt(1 / np.sqrt(Q.shape[3]) if scale is None else scale))
    scores = grouped_product(Q * root, np.swapaxes(K * root, -1, -2))
    narrow = Q.dtype.itemsize < 4
    kind: np.dtype[np.generic] = np.dtype(np.float32) if narrow else Q.dtype
    if softmax_precision is not None:
        kind = onnx.helper.tensor_dtype_to_np_dtype(softmax_precision)
    scores = scores.astype(kind)
    if score_mod is not None:
        scores = score_mod(scores)[0].astype(kind)
    shares = softmax(scores)
    if prob_mod is not None:
        shares = prob_mod(shares)[0].astype(kind)
    return grouped_product(shares, V.astype(kind)).astype(V.dtype)


def _window(
    queries: int, keys: int, offset: Array, left: int, right: int, causal: int
) -> Array | None:
    """Returns which keys each query may attend to by position; None means all keys."""
    if not causal and left < 0 and right < 0:
        return None
    distance = np.arange(queries)[:, None] + offset - np.arange(keys)
    visible = np.ones(distance.shape, np.bool_)
    if causal:
        visible &= distance >= 0
    if left >= 0:
        visible &= distance <= left
    if right >= 0:
        visible &= -distance <= right
    return visible


def _bias(
    mask: Array | None,
    allowed: Array | None,
    lengths: Array | None,
    keys: int,
    dtype: np.dtype[np.generic],
) -> Array | None:
    """Returns what is added to the scores: 0 or the mask for visible keys, -inf for others."""
    if lengths is not None:
        present = np.arange(keys) < lengths.reshape(-1, 1, 1, 1)
        allowed = present if allowed is None else allowed & present
    never = dtype.type(-np.inf)
    if mask is not None and mask.shape[-1] < keys:
        outside = False if mask.dtype == np.bool_ else -np.inf
        missing = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
        mask = np.pad(mask, missing, constant_values=outside)
    if mask is not None and mask.dtype == np.bool_:
        mask = np.where(mask, dtype.type(0), never)
    if allowed is None:
        return mask
    barrier = np.where(allowed, dtype.type(0), never)
    return barrier if mask is None else mask + barrier


def _softmax(scores: Array, bias: Array | None, precision: int | None) -> Array:
    """Returns the softmax of each row; a row without visible keys is 0."""
    kind = scores.dtype
    if precision is not None:
        kind = onnx.helper.tensor_dtype_to_np_dtype(precision)
    shares = softmax(scores.astype(kind, copy=False))
    if bias is None:
        return shares
    blind = np.isneginf(bias.astype(np.float32).max(axis=-1, keepdims=True))
    return np.where(blind, np.zeros((), kind), shares) if blind.any() else shares
