"""LinearAttention of ONNX and of com.microsoft: attention whose past is one matrix of each head."""

from typing import Any

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric.attention import (
    check_groups,
    joined_heads,
    split_heads,
    split_shape,
)
from tracer.interpreter.numeric.tensors import widened
from tracer.interpreter.operators import MICROSOFT, Arguments, Input, operator, parameters_of
from tracer.support.types import Array

RULES = ("linear", "gated", "delta", "gated_delta")
"""How a token changes the state. Gated rules decay it, delta rules correct what it tells."""


def check_inputs(given: Arguments) -> None:
    """Raises ModelError for operands that do not fit the rule or each other."""
    update_rule = given.update_rule
    for name, operand, needed in (
        ("decay", given.decay, _decays(update_rule)),
        ("beta", given.beta, _corrects(update_rule)),
    ):
        if operand is not None and not needed:
            raise ModelError(f"the rule '{update_rule}' takes no {name}")
    check_groups(given.q_num_heads, given.kv_num_heads)
    check_contrib_inputs(given)


def check_contrib_inputs(given: Arguments) -> None:
    """Raises ModelError for operands that do not fit the rule or each other."""
    heads = given.q_num_heads, given.kv_num_heads
    check_groups(max(heads), min(heads))
    operands, gates = (given.query, given.key, given.value), (given.decay, given.beta)
    _check_operands(operands, given.past_state, gates, heads)
    rule = given.update_rule
    if rule not in RULES:
        raise ModelError(f"update_rule is '{rule}'", f"Known: {', '.join(RULES)}.")
    for name, gate, needed in zip(
        ("decay", "beta"), gates, (_decays(rule), _corrects(rule)), strict=True
    ):
        if gate is None and needed:
            raise ModelError(f"the rule '{rule}' needs {name}")


@operator("LinearAttention", since=27, check=check_inputs)
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


@operator("LinearAttention", domain=MICROSOFT, check=check_contrib_inputs)
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


def _check_operands(
    operands: tuple[Input, Input, Input],
    past_state: Input | None,
    gates: tuple[Input | None, Input | None],
    heads: tuple[int, int],
) -> None:
    """Refuses query, key, value, state, decay and beta that do not fit each other."""
    queries, groups = heads
    q, k, v = (
        split_shape(each, count)
        for each, count in zip(operands, (queries, groups, groups), strict=True)
    )
    if k[:3] != v[:3] or (k[0], k[2], k[3]) != (q[0], q[2], q[3]):
        shapes = ", ".join(str(list(each.shape)) for each in operands)
        raise ModelError(f"query, key and value do not fit each other: {shapes}")
    state = (k[0], groups, k[3], v[3])
    if past_state is not None and past_state.shape != state:
        raise ModelError(f"past_state is {list(past_state.shape)}, not {list(state)}")
    for name, gate, size in zip(("decay", "beta"), gates, (k[3], 1), strict=True):
        fits = gate is None or (
            gate.ndim == 3
            and gate.shape[:2] == (k[0], k[2])
            and gate.shape[2] in (1, groups, groups * size)
        )
        if gate is not None and not fits:
            raise ModelError(f"{name} is {list(gate.shape)}, for {groups} heads of {size} numbers")


def _decays(rule: str) -> bool:
    return rule.startswith("gated")


def _corrects(rule: str) -> bool:
    return rule.endswith("delta")
