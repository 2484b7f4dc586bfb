"""LinearAttention of ONNX and of com.microsoft: attention whose past is one matrix of each head."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric.half_types import widened
from tracer.interpreter.numeric.heads import joined_heads, split_heads
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.registry import operator
from tracer.support.types import Array

RULES = ("linear", "gated", "delta", "gated_delta")
"""How a token changes the state. Gated rules decay it, delta rules correct what it tells."""


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The operands of all tokens as [batch, heads, tokens, size]; None is not of the rule."""

    query: Array
    key: Array
    value: Array
    decay: Array | None
    rate: Array | None


@operator("LinearAttention", since=27)
def linear_attention(
    query: Array,
    key: Array,
    value: Array,
    past_state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """The recurrence of the specification, token by token; also returns the state at the end.

    Operands are [batch, tokens, heads * size], the state [batch, kv heads, key size, value size].
    Raises ModelError for operands that do not fit the rule or each other.
    """
    if kv_num_heads < 1 or q_num_heads % kv_num_heads:
        raise ModelError(f"{q_num_heads} query heads are no multiple of {kv_num_heads}")
    tokens = _tokens(query, key, value, decay, beta, (q_num_heads, kv_num_heads), update_rule)
    return _recurred(tokens, past_state, scale, query.dtype)


@operator("LinearAttention", domain=DOMAIN)
def contrib_linear_attention(
    query: Array,
    key: Array,
    value: Array,
    past_state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    chunk_size: int = 64,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    state_window: int = 0,
    update_rule: str = "gated_delta",
) -> tuple[Array, Array]:
    """LinearAttention that may have fewer query heads than heads of keys. Raises ModelError."""
    most, least = max(kv_num_heads, q_num_heads), min(kv_num_heads, q_num_heads)
    if least < 1 or most % least:
        raise ModelError(f"{q_num_heads} query heads and {kv_num_heads} of keys and values")
    if state_window:
        raise ModelError(f"state_window is {state_window}; onnxruntime's CPU has no states of it")
    tokens = _tokens(query, key, value, decay, beta, (q_num_heads, kv_num_heads), update_rule)
    return _recurred(tokens, past_state, scale, query.dtype)


def _recurred(
    tokens: _Tokens, past_state: Array | None, scale: float, dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """Returns the output [batch, tokens, channels] of type `dtype`, and the state at the end."""
    batch, query_heads, count, size = tokens.query.shape
    heads, width = tokens.value.shape[1], tokens.value.shape[3]
    shape = (batch, heads, size, width)
    if past_state is not None and past_state.shape != shape:
        raise ModelError(f"past_state is {list(past_state.shape)}, not {list(shape)}")
    state = np.zeros(shape, np.float32) if past_state is None else widened(past_state)
    most = max(heads, query_heads)
    limits.allow((batch, most, count, width), np.float32)
    output = np.empty((batch, most, count, width), np.float32)
    factor = scale or 1 / np.sqrt(size)
    for token in range(count):
        state = _updated(state, tokens, token)
        query = np.repeat(tokens.query[:, :, token], most // query_heads, axis=1)
        read = np.repeat(state, most // heads, axis=1)
        output[:, :, token] = np.matmul(query[:, :, None], read)[:, :, 0] * np.float32(factor)
    kept = dtype if past_state is None else past_state.dtype
    return joined_heads(output).astype(dtype, copy=False), state.astype(kept, copy=False)


def _updated(state: Array, tokens: _Tokens, token: int) -> Array:
    """Returns the state after one more token."""
    key, value = tokens.key[:, :, token], tokens.value[:, :, token]
    if tokens.decay is not None:
        state = state * np.exp(tokens.decay[:, :, token])[..., None]
    if tokens.rate is not None:
        told = np.matmul(key[:, :, None], state)[:, :, 0]
        value = tokens.rate[:, :, token] * (value - told)
    return state + key[..., None] * value[:, :, None]


def _tokens(
    query: Array,
    key: Array,
    value: Array,
    decay: Array | None,
    beta: Array | None,
    heads: tuple[int, int],
    rule: str,
) -> _Tokens:
    """Returns the operands as heads, halves in float32. Raises ModelError."""
    if rule not in RULES:
        raise ModelError(f"update_rule is '{rule}'", f"Known: {', '.join(RULES)}.")
    for name, operand, wanted in (
        ("decay", decay, rule.startswith("gated")),
        ("beta", beta, rule.endswith("delta")),
    ):
        if (operand is not None) != wanted:
            raise ModelError(f"the rule '{rule}' {'needs' if wanted else 'takes no'} {name}")
    queries, groups = heads
    q, k, v = (
        widened(split_heads(each, count))
        for each, count in ((query, queries), (key, groups), (value, groups))
    )
    if k.shape[:3] != v.shape[:3] or k.shape[0::2] != q.shape[0::2] or k.shape[3] != q.shape[3]:
        shapes = ", ".join(str(list(each.shape)) for each in (query, key, value))
        raise ModelError(f"query, key and value do not fit each other: {shapes}")
    return _Tokens(q, k, v, _gates(decay, groups, k.shape[3]), _gates(beta, groups, 1))


def _gates(gates: Array | None, heads: int, size: int) -> Array | None:
    """Returns gates as [batch, heads or 1, tokens, size or 1]. Raises ModelError."""
    if gates is None:
        return None
    if gates.ndim != 3 or gates.shape[2] not in (1, heads, heads * size):
        raise ModelError(f"decay or beta of shape {list(gates.shape)} for {heads} heads")
    count = 1 if gates.shape[2] == 1 else heads
    return widened(split_heads(gates, count))
