"""Small decoders with a cache, made with onnx.helper, and as transformers exports them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, HEADS, KV_HEADS, SIZE, WIDTH, FFN, VOCABULARY = 2, 4, 2, 16, 48, 96, 61
"""Sizes of `grouped`, each of them different, so that no formula is right by accident."""

POSITIONS = 128
_FLOAT, _INT64, _INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32


class _Graph:
    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name, *shape):
        self.constant(name, (self.rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32))
        return name

    def constant(self, name, value):
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def op(self, op_type, *inputs, name, outputs=None, domain="", **attributes):
        outputs = outputs or [f"{name}_out"]
        self.nodes.append(
            helper.make_node(op_type, inputs, outputs, name=name, domain=domain, **attributes)
        )
        return outputs[0]

    def linear(self, x, name, rows, columns):
        return self.op("MatMul", x, self.weight(f"{name}.weight", rows, columns), name=name)

    def norm(self, x, name):
        scale = self.constant(f"{name}.scale", np.ones(WIDTH, np.float32))
        return self.op("SimplifiedLayerNormalization", x, scale, name=name, axis=-1)


def _lengths(graph):
    """As onnxruntime-genai's builder takes lengths from the mask."""
    axes, one = graph.constant("axes", [1]), graph.constant("one", np.array([1], np.int64))
    tokens = graph.op("ReduceSum", "attention_mask", axes, name="sum", keepdims=0)
    less = graph.op("Sub", tokens, one, name="less")
    lengths = graph.op("Cast", less, name="lengths", to=_INT32)
    shape = graph.op("Shape", "attention_mask", name="shape")
    last = graph.op("Gather", shape, graph.constant("last", np.int64(1)), name="last_axis")
    return lengths, graph.op("Cast", last, name="total", to=_INT32)


def _layer(graph, x, index, lengths, total):
    at = f"layers.{index}"
    h = graph.norm(x, f"{at}.norm1")
    parts = [
        graph.linear(h, f"{at}.{name}", WIDTH, heads * SIZE)
        for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
    ]
    pasts = [f"past_key_values.{index}.{part}" for part in ("key", "value")]
    presents = [f"present.{index}.{part}" for part in ("key", "value")]
    y = graph.op(
        "GroupQueryAttention", *parts, *pasts, lengths, total, "cos", "sin",
        name=f"{at}.attention", outputs=[f"{at}.attended", *presents], domain="com.microsoft",
        num_heads=HEADS, kv_num_heads=KV_HEADS, do_rotary=1,
    )  # fmt: skip
    x = graph.op("Add", x, graph.linear(y, f"{at}.o", HEADS * SIZE, WIDTH), name=f"{at}.add1")
    h = graph.norm(x, f"{at}.norm2")
    gate, up = (graph.linear(h, f"{at}.{name}", WIDTH, FFN) for name in ("gate", "up"))
    swish = graph.op("Mul", gate, graph.op("Sigmoid", gate, name=f"{at}.sigmoid"), name=f"{at}.act")
    gated = graph.op("Mul", swish, up, name=f"{at}.gated")
    return graph.op("Add", x, graph.linear(gated, f"{at}.down", FFN, WIDTH), name=f"{at}.add2")


def grouped(batch="batch", past="past_sequence_length") -> onnx.ModelProto:
    """Two layers as onnxruntime-genai's builder writes them: GroupQueryAttention, rotary, cache."""
    graph = _Graph()
    angles = np.arange(POSITIONS)[:, None] / 100 ** (np.arange(SIZE // 2) / (SIZE // 2))
    graph.constant("cos", np.cos(angles).astype(np.float32))
    graph.constant("sin", np.sin(angles).astype(np.float32))
    lengths, total = _lengths(graph)
    table = graph.weight("embedding", VOCABULARY, WIDTH)
    x = graph.op("Gather", table, "input_ids", name="embed")
    for index in range(LAYERS):
        x = _layer(graph, x, index, lengths, total)
    graph.nodes.append(
        helper.make_node(
            "MatMul",
            [graph.norm(x, "norm"), graph.weight("head.weight", WIDTH, VOCABULARY)],
            ["logits"], name="head",
        )
    )  # fmt: skip

    def cache(name, tokens):
        return helper.make_tensor_value_info(name, _FLOAT, [batch, KV_HEADS, tokens, SIZE])

    names = [f"{index}.{part}" for index in range(LAYERS) for part in ("key", "value")]
    whole = "total_sequence_length"
    inputs = [
        helper.make_tensor_value_info("input_ids", _INT64, [batch, "sequence_length"]),
        helper.make_tensor_value_info("attention_mask", _INT64, [batch, whole]),
        *(cache(f"past_key_values.{name}", past) for name in names),
    ]
    logits = [batch, "sequence_length", VOCABULARY]
    outputs = [
        helper.make_tensor_value_info("logits", _FLOAT, logits),
        *(cache(f"present.{name}", whole) for name in names),
    ]
    return helper.make_model(
        helper.make_graph(graph.nodes, "decoder", inputs, outputs, graph.weights),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )


def llama(path):
    """Writes a Llama of transformers, random and as small as `grouped`, with its cache; returns it.

    The cache is read and returned as tensors by the names of optimum.
    """
    import torch
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=FFN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=SIZE,
        max_position_embeddings=POSITIONS, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)

    class Cached(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = LlamaForCausalLM(config).eval()

        def forward(self, input_ids, position_ids, *past):
            cache = DynamicCache()
            for layer in range(LAYERS):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            new, total = input_ids.shape[1], past[0].shape[2] + input_ids.shape[1]
            seen = torch.arange(total)[None, :] <= position_ids[0][:, None]
            mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
            done = self.model(
                input_ids, attention_mask=mask.reshape(1, 1, new, total),
                position_ids=position_ids, past_key_values=cache, use_cache=True,
            )  # fmt: skip
            layers = done.past_key_values.layers
            return done.logits, *(t for each in layers for t in (each.keys, each.values))

    parts = [f"{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")]
    pasts = [torch.zeros(1, KV_HEADS, 3, SIZE) for _ in parts]
    names = [f"past_key_values.{part}" for part in parts]
    tokens = {0: "batch", 1: "sequence_length"}
    axes = {"input_ids": tokens, "position_ids": tokens}
    axes |= {name: {0: "batch", 2: "past_sequence_length"} for name in names}
    torch.onnx.export(
        Cached().eval(), (torch.zeros(1, 4, dtype=torch.int64), torch.arange(3, 7)[None], *pasts),
        path, input_names=["input_ids", "position_ids", *names],
        output_names=["logits", *(f"present.{part}" for part in parts)],
        dynamic_axes=axes, dynamo=False, opset_version=17,
    )  # fmt: skip
    return path
