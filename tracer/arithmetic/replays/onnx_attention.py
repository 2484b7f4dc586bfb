"""Attention of ONNX: what is added to scores is the term that their products begin with.

Source: onnxruntime, core/providers/cpu/llm/attention.cc.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.replays import attention
from tracer.arithmetic.replays.interpreter import of_floats
from tracer.arithmetic.rule import NotKnown, Rule
from tracer.interpreter.numeric.attention import split_heads
from tracer.interpreter.ops.multi_head_attention import Heads
from tracer.support.types import Array

_ELSEWHERE = ("softcap", "softmax_precision")
_WINDOWS = ("left_window_size", "right_window_size")
_HIDDEN = np.finfo(np.float32).min
_INPUTS = 7


class _OnnxAttention:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        own = kernel.attributes
        is_other = any(own.get(name) for name in _ELSEWHERE) or len(kernel.node.output) > 3
        if is_other or any(own.get(name, -1) >= 0 for name in _WINDOWS) or kernel.shape(6):
            raise NotKnown("caps, windows, lengths and scores as an output are not known")
        heads, added = _operands(kernel, kernel.values(kernel.draw(np.random.default_rng(0))))
        shapes, scale = [each.shape[2:] for each in heads], attention.scale_of(kernel, heads[0])
        yield from attention.rules_of_heads(shapes, scale, ["softmax"], added is not None)

    def replay(
        self, kernel: Kernel, facts: Mapping[str, Any], inputs: Mapping[str, Array]
    ) -> list[Array]:
        values = kernel.values(inputs)
        heads, added = _operands(kernel, values)
        output = attention.attend(facts, heads, added)
        if values[0] is not None and values[0].ndim == 4:
            output = split_heads(output, heads[0].shape[1])
        outputs = output, *heads[1:]
        return [v for name, v in zip(kernel.node.output, outputs, strict=False) if name]


def _operands(kernel: Kernel, values: list[Any]) -> tuple[Heads, Array | None]:
    """Returns query, key and value as heads with their past, and what is added to scores."""
    query, key, value, mask, *pasts, _ = [*values, *[None] * _INPUTS][:_INPUTS]
    own = kernel.attributes
    if query.ndim == 3:
        query = split_heads(query, own.get("q_num_heads"))
        key, value = (split_heads(each, own.get("kv_num_heads")) for each in (key, value))
    before = 0 if pasts[0] is None else pasts[0].shape[2]
    if before:
        key, value = (
            np.concatenate(pair, axis=2) for pair in zip(pasts, (key, value), strict=True)
        )
    tokens, total = query.shape[2], key.shape[2]
    if mask is not None and mask.dtype == np.bool_:
        mask = np.where(mask, np.float32(0), _HIDDEN)
    if own.get("is_causal") and not (tokens == 1 and before):
        later = np.arange(total) > before + np.arange(tokens)[:, None]
        mask = np.where(later, _HIDDEN, np.float32(0) if mask is None else mask)
    shape = *query.shape[:3], total
    return (query, key, value), None if mask is None else np.broadcast_to(mask, shape)


REPLAYS = of_floats({"Attention": _OnnxAttention()})
