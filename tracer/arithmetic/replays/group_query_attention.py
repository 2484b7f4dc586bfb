"""GroupQueryAttention: of several tokens as products of matrices, of one token in 8 lanes.

Source: onnxruntime, core/mlas/lib/flashattn_gqa.cpp.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tracer.arithmetic import sums
from tracer.arithmetic.kernel import Facts, Inputs, Kernel, NotKnown, Rule
from tracer.arithmetic.replays import attention, of_floats, replay_of
from tracer.interpreter.ops.group_query_attention import Heads, grouped_heads, places_of
from tracer.support.types import Array

_ELSEWHERE = (
    "softcap",
    "smooth_softmax",
    "qk_output",
    "sliding_window_cache",
    "kv_cache_bit_width",
)
"""Attributes with which another kernel runs."""
_COSINES, _BIAS, _FURTHER = 7, 10, 11


class _GroupQuery:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        own, node = kernel.attributes, kernel.node
        is_other = any(node.input[_FURTHER:]) or len(node.output) > 3 or not own.get("causal", 1)
        if is_other or any(own.get(name) for name in _ELSEWHERE):
            raise NotKnown("caps, sinks, quantised caches and scores as an output are not known")
        values: list[Any] = kernel.values(kernel.draw(np.random.default_rng(0)))
        q, k, v = _new_heads(kernel, values)
        total, facts, text = int(values[6].item()), {}, ""
        if own.get("do_rotary"):
            rotary = attention.reveal_part(_rotary(kernel, values, q))
            facts, text = {"rotary": rotary.facts}, f"turned by {rotary.text}; "
        shapes = q.shape[2:], (total, k.shape[3]), (total, v.shape[3])
        scale = attention.scale_of(kernel, q)
        rules = attention.rules_of_heads(shapes, scale, ["product"])
        for rule in rules if q.shape[2] > 1 else _rules_of_a_token(shapes, scale):
            yield Rule(text + rule.text, {**facts, **rule.facts})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        values: list[Any] = kernel.values(inputs)
        q, k, v = _new_heads(kernel, values)
        total = int(values[6].item())
        if (values[5] + 1 != total).any():
            raise NotKnown("entries of several lengths are not known")
        if "rotary" in facts:
            cosines, sines = values[_COSINES : _COSINES + 2]
            turned = list[Array]()
            for heads in (q, k):
                step = _rotary(kernel, values, heads)
                own = {"x0": heads, **step.fixed, "x2": cosines, "x3": sines}
                rotary = replay_of(step.node.domain, step.op_type)
                turned += rotary.replay(step, facts["rotary"], own)[:1]
            q, k = turned
        before = total - q.shape[2]
        keys, present_keys = _extended(values[3], k, before)
        extended, present_values = _extended(values[4], v, before)
        distance = before + np.arange(q.shape[2])[:, None] - np.arange(total)
        window = kernel.attributes.get("local_window_size", -1)
        hidden = (distance < 0) | ((distance >= window) & (window >= 0))
        bias = (*values, *[None] * _BIAS)[_BIAS]
        output = attention.attend(facts, (q, keys, extended), bias, hidden)
        outputs = output, present_keys, present_values
        return [v for name, v in zip(kernel.node.output, outputs, strict=False) if name]


def _new_heads(kernel: Kernel, values: Sequence[Any]) -> Heads:
    query, key, value, own = *values[:3], kernel.attributes
    return grouped_heads(query, key, value, own["num_heads"], own["kv_num_heads"])


def _extended(past: Array | None, new: Array, before: int) -> tuple[Array, Array]:
    """Returns keys or values with their past, and the cache, which may have room for more."""
    whole = new if past is None else np.concatenate([past[:, :, :before], new], 2)
    rows = max(whole.shape[2], 0 if past is None else past.shape[2])
    cache = np.zeros((*whole.shape[:2], rows, whole.shape[3]), np.float32)
    cache[:, :, : whole.shape[2]] = whole
    return whole, cache


def _rules_of_a_token(shapes: Sequence[Sequence[int]], scale: float) -> Iterator[Rule]:
    """Yields the rule of one token: each score in 8 lanes, the values one after another."""
    (_, size), (total, _), (_, width) = shapes
    lanes = attention.reveal_part(attention.part("Softmax", (1, total))).facts["lanes"]
    scores, values = (
        {"rows": [1], "columns": [columns], "cells": [[0]],
         "sums": [{"program": program, "fused": False, "from_zero": True}]}
        for columns, program in (
            (total, sums.lanes(size, tree=sums.PAIRS)), (width, sums.blocks(total, total)),
        )
    )  # fmt: skip
    facts = {
        "scores": scores, "factor": scale, "lanes": lanes, "end": "product", "values": [values],
        "block": total,
    }  # fmt: skip
    yield Rule("multiply, then add: scores in 8 lanes, values one after the other", facts)


def _rotary(kernel: Kernel, values: Sequence[Any], heads: Array) -> Kernel:
    """Returns the kernel that turns heads by their positions."""
    tokens, total, further = heads.shape[2], int(values[6].item()), (*values, None, None)
    pasts = np.full(len(heads), total - tokens)
    places = places_of(further[_COSINES + 2], pasts, tokens, tokens == total)
    tables = [values[_COSINES].shape] * 2
    step = attention.part(
        "RotaryEmbedding", heads.shape, places.shape, *tables, domain="com.microsoft",
        interleaved=kernel.attributes.get("rotary_interleaved", 0),
    )  # fmt: skip
    fixed = {"x1": np.ascontiguousarray(places, np.int64)}
    return replace(
        step, inputs={**step.inputs, "x1": (np.dtype(np.int64), places.shape)}, fixed=fixed
    )


REPLAYS = of_floats({"com.microsoft:GroupQueryAttention": _GroupQuery()})
