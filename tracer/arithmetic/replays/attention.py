"""Attention, of onnxruntime and of ONNX: products of each head, and a softmax between them.

A product has the rule of a product of one head's shapes, which a kernel of its own reveals. Source:
onnxruntime, contrib_ops/cpu/bert/attention_cpu_base.h, core/mlas/lib/flashattn.cpp,
core/providers/cpu/llm/attention.cc and, for GroupQueryAttention, core/mlas/lib/flashattn_gqa.cpp,
where several tokens are products of matrices, and one token is in 8 lanes.

RotaryEmbedding turns heads: one product is rounded, the other is fused with the addition, but for a
rest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from onnx import helper

from tracer.arithmetic import c_library, mlas, sums
from tracer.arithmetic.kernel import Facts, Inputs, Kernel, NotKnown, Rule, are_equal, reveal
from tracer.arithmetic.replays import of_floats, replay_of
from tracer.arithmetic.replays.elementwise import indices_of, runs_of
from tracer.arithmetic.sums import Operands, replay_regions
from tracer.interpreter.compiled_code import loaded
from tracer.interpreter.numeric.attention import joined_heads, split_heads
from tracer.interpreter.ops.group_query_attention import grouped_heads, places_of
from tracer.interpreter.ops.multi_head_attention import (
    Heads,
    multi_head_operands,
    projected_operands,
)
from tracer.interpreter.ops.quantized import matmul_integer_to_float
from tracer.support.types import Array

_FLOAT = np.dtype(np.float32)
_ENDS = {
    "softmax": "a softmax",
    "quotient": "exponentials, divided by their sum after the product with values",
    "product": "exponentials, times the reciprocal of their sum after the product with values",
}
_CACHES = [1 << 20, 1 << 21, 1 << 19, 1 << 18, 5 << 18, 3 << 20, 3 << 19]
"""Bytes of caches of the second level, by which onnxruntime chooses its blocks of keys."""
_LOWEST, _ONE = np.finfo(np.float32).min, np.float32(1)
Operate = Callable[[Kernel, Mapping[str, Any], Sequence[Any]], tuple[Heads, Array | None]]
"""From a kernel, its facts and inputs to heads of query, key and value, and what scores are
increased by."""
_ROTARY_SAMPLES = 20
_STEPS = "products", "capped", "masked", "shares"
"""What scores may be when a node gives them out, by `qk_matmul_output_mode`."""
_WINDOWS = ("left_window_size", "right_window_size")
_ONNX_INPUTS = 7


def part(op_type: str, *shapes: Sequence[int], domain: str = "", **attributes: Any) -> Kernel:
    """Returns the kernel of a step: of float32 inputs, in one thread, as a head is computed."""
    inputs = {f"x{place}": (_FLOAT, tuple(shape)) for place, shape in enumerate(shapes)}
    node = helper.make_node(op_type, list(inputs), ["y"], domain=domain, **attributes)
    return Kernel(node, inputs, {}, {"": 17, "com.microsoft": 1})


def reveal_part(kernel: Kernel) -> Rule:
    """Returns the rule of a step. Raises NotKnown."""
    return reveal(replay_of(kernel.node.domain, kernel.op_type), kernel)


def scale_of(kernel: Kernel, query: Array) -> float:
    """Returns what scores of the heads of queries are multiplied by, a float32."""
    scale = np.float32(kernel.attributes.get("scale", 0.0))
    return float(scale or np.float32(1) / np.sqrt(np.float32(query.shape[3])))


def rules_of_heads(
    shapes: Sequence[Sequence[int]], scale: float, ends: Sequence[str], folds: bool = False
) -> Iterator[Rule]:
    """Yields the rules that a head of queries, keys and values may have, with each of `ends`.

    `shapes` are tokens and size of each. With `folds`, what is added to scores is a term of them.
    """
    query, key, value = shapes
    beside = [(query[0], key[0])] * folds
    scores = reveal_part(part("Gemm", query, key, *beside, transB=1, alpha=scale))
    values = reveal_part(part("MatMul", (query[0], key[0]), value))
    lanes = reveal_part(part("Softmax", (query[0], key[0]))).facts["lanes"]
    facts = {"scores": scores.facts, "lanes": lanes, "values": [values.facts], "block": key[0]}
    facts |= {"folds": True} if folds else {}
    for end in ends:
        text = f"scores: {scores.text}; {_ENDS[end]}, in {lanes} lanes; values: {values.text}"
        yield Rule(text, {**facts, "end": end})
    for block in dict.fromkeys(size // (16 * (key[1] + value[1])) for size in _CACHES):
        if ends[-1] != "softmax" and block < key[0]:
            text = f"scores: {scores.text}; {_ENDS[ends[-1]]}, in blocks of {block} keys"
            parts = [_values_of_block(query[0], min(block, key[0] - low), value[1], low == 0)
                     for low in range(0, key[0], block)]  # fmt: skip
            yield Rule(text, {**facts, "block": block, "values": parts, "end": ends[-1]})


@cache
def _values_of_block(queries: int, keys: int, width: int, is_first: bool) -> dict[str, Any]:
    """Returns the facts of a block's product with values, which is added to that of others."""
    shapes = (queries, keys), (keys, width), (queries, width)
    step = part("MatMul", *shapes[:2]) if is_first else part("Gemm", *shapes)
    return reveal_part(step).facts


def attend(facts: Facts, heads: Heads, added: Array | None, hidden: Array | None = None) -> Array:
    """Returns the attention [batch, tokens, channels].

    `added` has the shape of scores, [batch, heads, L, T], or is broadcast to it; scores at `hidden`
    places are the least number.
    """
    query, key, value = heads
    term = added if facts.get("folds") else None
    scores = product(facts["scores"], query, key.swapaxes(2, 3), term)
    scores *= np.float32(facts.get("factor", 1))
    if added is not None and term is None:
        scores = scores + added
    if hidden is not None:
        scores = np.where(hidden, _LOWEST, scores)
    if facts["end"] == "softmax":
        return joined_heads(product(facts["values"][0], softmax(scores, facts["lanes"]), value))
    sums, totals = _unnormalised(facts, scores, value)
    divisors = totals.reshape(*scores.shape[:3], 1)
    quotients = sums / divisors if facts["end"] == "quotient" else sums * (_ONE / divisors)
    return joined_heads(quotients)


def softmax(scores: Array, lanes: int) -> Array:
    """Returns the softmax of scores over the last axis, whose sums have so many lanes."""
    rows = np.ascontiguousarray(scores).reshape(-1, scores.shape[-1])
    shares = np.empty_like(rows)
    _kernels().softmax(rows, lanes > 8, False, shares)
    return shares.reshape(scores.shape)


def _unnormalised(facts: Facts, scores: Array, value: Array) -> tuple[Array, Array]:
    """Returns products of exponentials and values, and sums of exponentials (rows).

    Of several blocks of keys, those before are scaled where a later one has a larger score.
    """
    keys, rows = scores.shape[-1], scores.size // scores.shape[-1]
    largest, totals = np.full(rows, _LOWEST), np.zeros(rows, np.float32)
    sums: Array = np.zeros(0, np.float32)
    for at, low in enumerate(range(0, keys, block := facts["block"])):
        part_of_rows = np.ascontiguousarray(scores[..., low : low + block]).reshape(rows, -1)
        powers, added, before = np.empty_like(part_of_rows), np.empty_like(totals), largest.copy()
        _kernels().exponentials(part_of_rows, facts["lanes"] > 8, largest, powers, added)
        hidden = part_of_rows.max(1) == _LOWEST  # which change nothing
        powers[hidden], added[hidden] = 0, 0
        shares = powers.reshape(*scores.shape[:3], -1)
        if low == 0:
            sums, totals = product(facts["values"][0], shares, value[:, :, :block]), added
            continue
        step = np.where(hidden, _ONE, c_library.exp(before - largest))
        totals = step * totals + added
        scaled = step.reshape(*scores.shape[:3], 1) * sums
        sums = product(facts["values"][at], shares, value[:, :, low : low + block], scaled)
    return sums, totals


def _kernels() -> Any:
    return loaded("rows", "tracer.arithmetic.kernels")


def product(facts: Facts, a: Array, b: Array, bias: Array | None = None) -> Array:
    """Returns the products of heads, (N, H, M, K) and (N, H or fewer, K, P), by a head's rule.

    `bias` (N, H, M, P) is a further term, of rules that have one.
    """
    b = np.repeat(b, a.shape[1] // b.shape[1], 1)
    shape = *a.shape[:3], b.shape[3]
    beside = np.full(shape, -0.0, np.float32) if bias is None else bias  # -0 adds nothing
    a, b, beside = (each.reshape(-1, *each.shape[2:]) for each in (a, b, beside))
    return replay_regions(facts, Operands(a, b, beside)).reshape(shape)


@dataclass(frozen=True)
class _Attention:
    """An operator whose `operands` have no order of additions of their own, or facts of one."""

    operands: Operate
    presents: Callable[[Heads], Sequence[Array]]
    begin: Callable[[Kernel], Iterator[Rule]]

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        drawn = kernel.draw(np.random.default_rng(0))
        for first in self.begin(kernel):
            heads, _ = self.operands(kernel, first.facts, kernel.values(drawn))
            shapes = [each.shape[2:] for each in heads]
            scale = scale_of(kernel, heads[0])
            for rule in rules_of_heads(shapes, scale, ("softmax", "quotient")):
                yield Rule(first.text + rule.text, {**first.facts, **rule.facts})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        heads, added = self.operands(kernel, facts, kernel.values(inputs))
        outputs = attend(facts, heads, added), *self.presents(heads)
        names = kernel.node.output
        return [output for name, output in zip(names, outputs, strict=False) if name]


def _attributes(kernel: Kernel, *own: str) -> dict[str, Any]:
    return {name: value for name, value in kernel.attributes.items() if name not in own}


def _operands_of_inputs(kernel: Kernel, facts: Facts, values: Sequence[Any]) -> Any:
    if len(kernel.node.output) > 3:
        raise NotKnown("scores as an output are not known")
    return multi_head_operands(*values, **_attributes(kernel, "scale"))


def _projected(kernel: Kernel, facts: Facts, values: Sequence[Any]) -> Any:
    """Multiplies the input by the weights of each head, whose bias is a further term."""
    x, w, b, mask, past, bias = [*values, *[None] * 4][:6]
    count = 3 * kernel.attributes["num_heads"]
    weights = split_heads(w[None], count)
    bias_of_heads = np.zeros(w.shape[1], np.float32) if b is None else b
    biases = np.broadcast_to(
        bias_of_heads.reshape(count, 1, -1), (len(x), count, x.shape[1], weights.shape[3])
    )
    inputs = np.broadcast_to(x[:, None], (len(x), count, *x.shape[1:]))
    repeated = np.repeat(weights, len(x), 0)
    projected = joined_heads(product(facts["inputs"], inputs, repeated, biases))
    given = _attributes(kernel, "scale", "rotary_embedding_dim")
    return projected_operands(projected, mask, past, bias, **given)


def _rules_of_inputs(kernel: Kernel) -> Iterator[Rule]:
    x, w, heads = kernel.shape(0), kernel.shape(1), 3 * kernel.attributes["num_heads"]
    if x is None or w is None or kernel.attributes.get("qkv_hidden_sizes"):
        raise NotKnown("queries, keys and values of several sizes are not known")
    step = part("Gemm", x[1:], (w[0], w[1] // heads), (w[1] // heads,))
    drawn = np.random.default_rng(0).standard_normal((w[0], w[1] // heads)).astype(np.float32)
    inputs = {name: given for name, given in step.inputs.items() if name != "x1"}
    packed = replace(step, inputs=inputs, constants={"x1": drawn})
    for each in (packed, step):
        rule = reveal_part(each)
        yield Rule(f"inputs: {rule.text}; ", {"inputs": rule.facts})


def _of_bytes(kernel: Kernel, facts: Facts, values: Sequence[Any]) -> Any:
    """Multiplies bytes, whose sums are exact, and then scales them."""
    x, w, bias, scale, w_scale, mask, zero, w_zero, past = [*values, *[None] * 4][:9]
    projected = matmul_integer_to_float(x, w, scale, w_scale, zero, w_zero, bias)
    return projected_operands(projected, mask, past, **_attributes(kernel, "scale"))


def _single_rule(kernel: Kernel) -> Iterator[Rule]:
    yield Rule("")


def _stacked(heads: Heads) -> Sequence[Array]:
    return [np.stack(heads[1:])]


class _Rotary:
    """Which pairs of channels are computed without fused multiply-add, random results tell."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        random = np.random.default_rng(0)
        pairs = _tables(kernel, kernel.values(kernel.draw(random)))[0].shape[-1]
        fits = np.ones((2, pairs), bool)
        for _ in range(_ROTARY_SAMPLES):
            drawn = kernel.draw(random)
            (out,) = kernel.run(drawn)
            for way in (0, 1):
                facts = {"plain": runs_of(np.full(pairs, bool(way)))}
                (replayed,) = self.replay(kernel, facts, drawn)
                same = are_equal(out, replayed).reshape(out.shape)
                heads, first, second = _parts(kernel, same, pairs)
                fits[way] &= (heads[..., first] & heads[..., second]).reshape(-1, pairs).all(0)
        if not fits.any(0).all():
            raise NotKnown("neither with nor without fused multiply-add")
        plain = runs_of(~fits[0])
        text = f", {sum(plain[1::2])} of {pairs} pairs rounded each" if plain else ""
        yield Rule(f"fused multiply-add of a product{text}", {"plain": plain})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        values = kernel.values(inputs)
        x = values[0]
        cosine, sine = _tables(kernel, values)
        heads, first, second = _parts(kernel, x, cosine.shape[-1])
        real, imaginary = heads[..., first], heads[..., second]
        out = heads.copy()
        for channels, one, other in (
            (first, cosine, -(imaginary * sine)),
            (second, sine, imaginary * cosine),
        ):
            part = mlas.multiply_add(real, one, other)
            plain = indices_of(facts["plain"])
            part[..., plain] = (real * one + other)[..., plain]
            out[..., channels] = part
        return [joined_heads(out) if x.ndim == 3 else out]


def _tables(kernel: Kernel, values: Sequence[Any]) -> tuple[Array, Array]:
    """Returns cosines and sines of each token, (N or 1, 1, L, pairs)."""
    if kernel.node.domain:
        x, places, cosines, sines = values
    else:
        x, cosines, sines, places = [*values, None][:4]
        pairs = kernel.attributes.get("rotary_embedding_dim", 0) // 2 or cosines.shape[-1]
        cosines, sines = cosines[..., :pairs], sines[..., :pairs]
    if places is not None and places.shape == (1,):
        places = places.reshape(1, 1) + np.arange(x.shape[-2])
    cosine, sine = (each if places is None else each[places] for each in (cosines, sines))
    return cosine[:, None], sine[:, None]


def _parts(kernel: Kernel, x: Array, pairs: int) -> tuple[Array, slice, slice]:
    """Returns heads (N, heads, L, size), and where each pair has its first and second channel."""
    count = kernel.attributes.get("num_heads", 0)
    heads = split_heads(x, count or x.shape[-1] // (2 * pairs)) if x.ndim == 3 else x
    if kernel.attributes.get("interleaved", 0):
        return heads, slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    return heads, slice(0, pairs), slice(pairs, 2 * pairs)


class _OnnxAttention:
    """What is added to scores is the term that their products begin with, or follows a cap.

    `shown` tells which step's scores are an output, where it is not the one of the attribute.
    """

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if any(kernel.attributes.get(name, -1) >= 0 for name in _WINDOWS):
            raise NotKnown("windows are not known")
        heads, added = _operands(kernel, kernel.values(kernel.draw(np.random.default_rng(0))))
        shapes, scale = [each.shape[2:] for each in heads], scale_of(kernel, heads[0])
        for folds in (True, False) if added is not None else (False,):
            for rule in rules_of_heads(shapes, scale, ["softmax"], folds):
                yield rule
                for step in _STEPS if len(kernel.node.output) > 3 else ():
                    yield Rule(rule.text, {**rule.facts, "shown": step})

    def replay(
        self, kernel: Kernel, facts: Mapping[str, Any], inputs: Mapping[str, Array]
    ) -> list[Array]:
        values = kernel.values(inputs)
        (query, key, value), added = _operands(kernel, values)
        term = added if facts.get("folds") else None
        scores = product(facts["scores"], query, key.swapaxes(2, 3), term)
        shown = {"products": scores}
        cap = np.float32(kernel.attributes.get("softcap", 0))
        if cap:
            scores = cap * c_library.tanh(scores / cap)
        shown["capped"] = scores
        if added is not None and term is None:
            scores = scores + added
        if len(values) == _ONNX_INPUTS and values[-1] is not None:
            padding = np.arange(scores.shape[3]) >= values[-1].reshape(-1, 1, 1, 1)
            scores = np.where(padding, _LOWEST, scores)
        shown["masked"], shown["shares"] = scores, softmax(scores, facts["lanes"])
        output = product(facts["values"][0], shown["shares"], value)
        if values[0].ndim == 3:
            output = joined_heads(output)
        mode = kernel.attributes.get("qk_matmul_output_mode", 0)
        outputs = output, key, value, shown[facts.get("shown", _STEPS[mode])]
        return [v for name, v in zip(kernel.node.output, outputs, strict=False) if name]


def _operands(kernel: Kernel, values: list[Any]) -> tuple[Heads, Array | None]:
    """Returns query, key and value as heads with their past, and what is added to scores."""
    query, key, value, mask, *pasts, _ = [*values, *[None] * _ONNX_INPUTS][:_ONNX_INPUTS]
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
        mask = np.where(mask, np.float32(0), _LOWEST)
    if own.get("is_causal") and not (tokens == 1 and before):
        later = np.arange(total) > before + np.arange(tokens)[:, None]
        mask = np.where(later, _LOWEST, np.float32(0) if mask is None else mask)
    shape = *query.shape[:3], total
    return (query, key, value), None if mask is None else np.broadcast_to(mask, shape)


_ELSEWHERE = ("softcap", "smooth_softmax", "qk_output", "sliding_window_cache",
              "kv_cache_bit_width")  # fmt: skip
"""Attributes with which another kernel runs."""
_COSINES, _BIAS, _FURTHER = 7, 10, 11


class _GroupQuery:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        own, node = kernel.attributes, kernel.node
        is_other = any(node.input[_FURTHER:]) or len(node.output) > 3 or not own.get("causal", 1)
        if is_other or any(own.get(name, 0) > 0 for name in _ELSEWHERE):  # -1 is a default
            raise NotKnown("caps, sinks, quantised caches and scores as an output are not known")
        values: list[Any] = kernel.values(kernel.draw(np.random.default_rng(0)))
        q, k, v = _new_heads(kernel, values)
        total, facts, text = int(values[6].item()), {}, ""
        if own.get("do_rotary"):
            rotary = reveal_part(_rotary(kernel, values, q))
            facts, text = {"rotary": rotary.facts}, f"turned by {rotary.text}; "
        shapes = q.shape[2:], (total, k.shape[3]), (total, v.shape[3])
        scale = scale_of(kernel, q)
        rules = rules_of_heads(shapes, scale, ["product"])
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
        output = attend(facts, (q, keys, extended), bias, hidden)
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
    lanes = reveal_part(part("Softmax", (1, total))).facts["lanes"]
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
    step = part(
        "RotaryEmbedding", heads.shape, places.shape, *tables, domain="com.microsoft",
        interleaved=kernel.attributes.get("rotary_interleaved", 0),
    )  # fmt: skip
    fixed = {"x1": np.ascontiguousarray(places, np.int64)}
    return replace(
        step, inputs={**step.inputs, "x1": (np.dtype(np.int64), places.shape)}, fixed=fixed
    )


REPLAYS = {
    **of_floats(
        {
            "Attention": _OnnxAttention(),
            "RotaryEmbedding": _Rotary(),
            "com.microsoft:RotaryEmbedding": _Rotary(),
            "com.microsoft:GroupQueryAttention": _GroupQuery(),
            "com.microsoft:MultiHeadAttention": _Attention(
                _operands_of_inputs, lambda h: h[1:], _single_rule
            ),
            "com.microsoft:Attention": _Attention(_projected, _stacked, _rules_of_inputs),
        }
    ),
    "com.microsoft:QAttention": _Attention(_of_bytes, _stacked, _single_rule),
}
