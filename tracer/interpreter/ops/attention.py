"""Attention, FlexAttention, and LinearAttention of ONNX and of com.microsoft.

The first two are softmax(Q K^T + bias) V over heads; of the last, the past is one matrix of each
head.
"""

from typing import Any

import numpy as np
import onnx

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric.attention import (
    check_groups,
    check_pasts,
    grouped_product,
    joined_heads,
    split_heads,
)
from tracer.interpreter.numeric.tensors import are_indices, widened
from tracer.interpreter.operators import (
    MICROSOFT,
    Arguments,
    Body,
    operator,
    parameters_of,
    value_of,
)
from tracer.interpreter.ops.softmax import softmax
from tracer.support.types import Array


def check_inputs(given: Arguments) -> None:
    """Raises ModelError for inputs that do not fit each other or the attributes."""
    Q, K, V, seqlen = given.Q, given.K, given.V, given.nonpad_kv_seqlen
    flat = Q.ndim == 3
    query = split_heads(Q, given.q_num_heads) if flat else Q
    key, value = (split_heads(each, given.kv_num_heads) if flat else each for each in (K, V))
    q, k, v = query.shape, key.shape, value.shape
    if not len(q) == len(k) == len(v) == 4 or k[:3] != v[:3] or (k[0], k[3]) != (q[0], q[3]):
        shapes = ", ".join(str(list(each.shape)) for each in (Q, K, V))
        raise ModelError(f"Q, K and V do not fit each other as heads: {shapes}")
    check_groups(q[1], k[1])
    check_pasts(given.past_key, given.past_value, key, value)
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
    kind = scores.dtype
    if softmax_precision is not None:
        kind = onnx.helper.tensor_dtype_to_np_dtype(softmax_precision)
    shares = softmax(scores.astype(kind, copy=False))
    if bias is not None:  # a row without visible keys is 0
        blind = np.isneginf(bias.astype(np.float32).max(axis=-1, keepdims=True))
        shares = np.where(blind, np.zeros((), kind), shares) if blind.any() else shares
    shares = shares.astype(Q.dtype)
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
    mask: Array | None, allowed: Array | None, lengths: Array | None, keys: int, dtype:
    np.dtype[np.generic],
) -> Array | None:  # fmt: skip
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


RULES = ("linear", "gated", "delta", "gated_delta")
"""How a token changes the state. Gated rules decay it, delta rules correct what it tells."""


def check_linear(given: Arguments) -> None:
    """Raises ModelError for operands that do not fit the rule or each other."""
    for name, has_use_for in _GATES.items():
        if getattr(given, name) is not None and not has_use_for(given.update_rule):
            raise ModelError(f"the rule '{given.update_rule}' takes no {name}")
    check_groups(given.q_num_heads, given.kv_num_heads)
    check_contrib_linear(given)


def check_contrib_linear(given: Arguments) -> None:
    """Raises ModelError for operands that do not fit the rule or each other."""
    groups, rule, past_state = given.kv_num_heads, given.update_rule, given.past_state
    check_groups(max(given.q_num_heads, groups), min(given.q_num_heads, groups))
    operands = given.query, given.key, given.value
    q, k, v = (
        split_heads(each, count).shape
        for each, count in zip(operands, (given.q_num_heads, groups, groups), strict=True)
    )
    if k[:3] != v[:3] or (k[0], k[2], k[3]) != (q[0], q[2], q[3]):
        shapes = ", ".join(str(list(each.shape)) for each in operands)
        raise ModelError(f"query, key and value do not fit each other: {shapes}")
    state = (k[0], groups, k[3], v[3])
    if past_state is not None and past_state.shape != state:
        raise ModelError(f"past_state is {list(past_state.shape)}, not {list(state)}")
    for name, gate, size in (("decay", given.decay, k[3]), ("beta", given.beta, 1)):
        fits = gate is None or (
            gate.ndim == 3
            and gate.shape[:2] == (k[0], k[2])
            and gate.shape[2] in (1, groups, groups * size)
        )
        if not fits:
            raise ModelError(f"{name} is {list(gate.shape)}, for {groups} heads of {size} numbers")
    if rule not in RULES:
        raise ModelError(f"update_rule is '{rule}'", f"Known: {', '.join(RULES)}.")
    for name, has_use_for in _GATES.items():
        if getattr(given, name) is None and has_use_for(rule):
            raise ModelError(f"the rule '{rule}' needs {name}")


@operator("LinearAttention", since=27, check=check_linear)
def linear_attention(
    query: Array, key: Array, value: Array, past_state: Array | None = None,
    decay: Array | None = None, beta: Array | None = None,
    *, chunk_size: int = 64, kv_num_heads: int, q_num_heads: int, scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:  # fmt: skip
    """The recurrence of the specification, token by token; also returns the state at the end.

    Operands are [batch, tokens, heads * size], the state [batch, kv heads, key size, value size].
    """
    queries, keys, values = (
        widened(split_heads(each, count))
        for each, count in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads))
    )
    decays, rates = _gates(decay, kv_num_heads), _gates(beta, kv_num_heads)
    (batch, _, count, size), width = queries.shape, values.shape[3]
    shape = (batch, kv_num_heads, size, width)
    state = np.zeros(shape, np.float32) if past_state is None else widened(past_state)
    most = max(kv_num_heads, q_num_heads)
    limits.allow((batch, most, count, width), np.float32)
    output = np.empty((batch, most, count, width), np.float32)
    factor = scale or 1 / np.sqrt(size)
    for token in range(count):
        k, v = keys[:, :, token], values[:, :, token]
        if decays is not None:
            state = state * np.exp(decays[:, :, token])[..., None]
        if rates is not None:  # corrects what the state has for the key
            v = rates[:, :, token] * (v - np.matmul(k[:, :, None], state)[:, :, 0])
        state = state + k[..., None] * v[:, :, None]
        q = np.repeat(queries[:, :, token], most // q_num_heads, axis=1)
        read = np.repeat(state, most // kv_num_heads, axis=1)
        output[:, :, token] = np.matmul(q[:, :, None], read)[:, :, 0] * np.float32(factor)
    kept = query.dtype if past_state is None else past_state.dtype
    return joined_heads(output).astype(query.dtype, copy=False), state.astype(kept, copy=False)


@operator("LinearAttention", domain=MICROSOFT, check=check_contrib_linear)
@parameters_of(linear_attention)
def contrib_linear_attention(
    query: Array, key: Array, value: Array, past_state: Array | None = None,
    decay: Array | None = None, beta: Array | None = None,
    *, state_window: int = 0, update_rule: str = "gated_delta", **attributes: Any,
) -> tuple[Array, Array]:  # fmt: skip
    """LinearAttention that may have fewer query heads than heads of keys.

    As in onnxruntime, an operand that the rule has no use for does nothing. Raises
    ModelError for states of a window.
    """
    if state_window:
        raise ModelError(f"state_window is {state_window}; onnxruntime's CPU has no states of it")
    decay = decay if _decays(update_rule) else None
    beta = beta if _corrects(update_rule) else None
    return linear_attention(query, key, value, past_state, decay, beta, **attributes)


def _gates(gates: Array | None, heads: int) -> Array | None:
    """Returns gates as [batch, heads or 1, tokens, size or 1]."""
    if gates is None:
        return None
    return widened(split_heads(gates, 1 if gates.shape[2] == 1 else heads))


def _decays(rule: str) -> bool:
    return rule.startswith("gated")


def _corrects(rule: str) -> bool:
    return rule.endswith("delta")


_GATES = {"decay": _decays, "beta": _corrects}
"""Whether a rule has a use for an operand, by its name."""
