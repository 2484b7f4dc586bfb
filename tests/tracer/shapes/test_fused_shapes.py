"""Shapes of onnxruntime's operators, inferred without a run, against those of a run."""

from __future__ import annotations

import numpy as np
import pytest

from tests.interpreter.models import fused, normal, onnxruntime
from tests.interpreter.test_group_query_attention import inputs as grouped
from tests.interpreter.test_mixture_of_experts import of_codes, of_floats, settings
from tests.interpreter.test_multi_head_attention import packed, split
from tests.interpreter.test_quantized_tables import table
from tests.interpreter.test_state_operators import attended
from tracer.graph import loading
from tracer.shapes import infer

PRESENT = ("y", "present_key", "present_value")
HEADS = {"num_heads": 4, "kv_num_heads": 2}
CODES = (np.zeros((8, 4, 16), np.uint8), np.ones((8, 4), np.float32))
IDS = np.ones((2, 3), np.int32)


def all_in_query(feeds):
    whole = np.concatenate([feeds[name] for name in ("query", "key", "value")], axis=-1)
    return feeds | {"query": whole, "key": None, "value": None}


def named(*arrays):
    return {f"x{index}": array for index, array in enumerate(arrays)}


SCALE, ZERO, SIGNED_ZERO = np.array(0.1, np.float32), np.array(9, np.uint8), np.array(0, np.int8)
BYTES, IMAGE = np.arange(32, dtype=np.uint8).reshape(4, 8), np.ones((1, 6, 7, 4), np.uint8)
DECAYED, GATED = attended("gated_delta", (4, 2), 3)
PICKED, OF_PICKED = table((7, 64), np.uint8, (0, 1), 16, zeros=True)
CASES = {
    "the RMS normalisation": (
        "SimplifiedLayerNormalization", named(normal(2, 3, 8), normal(8)), ("y",), {"domain": ""}),
    "a sum and its normalisation": (
        "SkipLayerNormalization", named(normal(2, 3, 8), normal(3, 8), normal(8)),
        ("y", "", "", "sum"), {}),
    "embeddings": (
        "EmbedLayerNormalization",
        named(IDS, None, normal(9, 8), normal(5, 8), None, normal(8), normal(8)),
        ("y", "words", "sum"), {}),
    "a transposed product": (
        "FusedMatMul", named(normal(5, 2, 4), normal(2, 6, 5)), ("y",),
        {"transBatchA": 1, "transA": 1, "transB": 1}),
    "a product of a matrix and a stack": (
        "FusedMatMul", named(normal(3, 4, 5), normal(5, 6)), ("y",), {}),
    "packed weights": (
        "MatMulNBits", named(normal(2, 3, 100), *CODES), ("y",),
        {"K": 100, "N": 8, "bits": 4, "block_size": 32}),
    "a packed table": ("GatherBlockQuantized", PICKED, ("y",), OF_PICKED),
    "a prompt": ("GroupQueryAttention", grouped(), PRESENT, HEADS),
    "a longer cache": ("GroupQueryAttention", grouped(3, 2), PRESENT, HEADS),
    "a cache with room": ("GroupQueryAttention", grouped(3, 2, rows=9), PRESENT, HEADS),
    "a packed query": (
        "GroupQueryAttention", all_in_query(grouped(3, 1)), (*PRESENT, "scores"),
        HEADS | {"qk_output": 1}),
    "heads": ("MultiHeadAttention", split(keys=6, value_size=12), PRESENT, {"num_heads": 2}),
    "heads after a past": ("MultiHeadAttention", split(past=3), PRESENT, {"num_heads": 2}),
    "keys that come as heads": (
        "MultiHeadAttention", split(keys=5, layout="heads"), PRESENT, {"num_heads": 2}),
    "a new token in a cache with room": (
        "DecoderMaskedMultiHeadAttention",
        named(normal(2, 1, 8), normal(2, 1, 8), normal(2, 1, 8), None, None, normal(2, 2, 9, 4),
              normal(2, 2, 9, 4), np.array([3], np.int32)), PRESENT,
        {"num_heads": 2, "past_present_share_buffer": 1}),
    "a new token and keys that come as heads": (
        "DecoderMaskedMultiHeadAttention",
        named(normal(2, 1, 8), normal(2, 2, 5, 4), normal(2, 2, 5, 4)), ("y",), {"num_heads": 2}),
    "a projection": ("Attention", packed(past=3), ("y", "present"), {"num_heads": 2}),
    "values of another size": (
        "Attention", packed(sizes=(16, 16, 24)), ("y",),
        {"num_heads": 2, "qkv_hidden_sizes": [16, 16, 24]}),
    "experts": ("MoE", of_floats("silu"), ("y",), settings("silu", 2, True)),
    "packed experts": ("QMoE", of_codes(4, 16, True, "silu"), ("y",),
                       settings("silu", 2, True) | {"block_size": 16}),
    "linear attention": ("LinearAttention", DECAYED, ("y", "state"), GATED),
    "a projection of bytes": (
        "QAttention",
        named(np.ones((2, 3, 8), np.uint8), np.ones((8, 24), np.int8), normal(24), SCALE, SCALE,
              None, ZERO, SIGNED_ZERO, normal(2, 2, 2, 5, 4)),
        ("y", "present"), {"num_heads": 2}),
    "embeddings of bytes": (
        "QEmbedLayerNormalization",
        named(IDS, None, BYTES, BYTES, None, BYTES[0], BYTES[0], None, SCALE, SCALE, None, SCALE,
              SCALE, ZERO, ZERO, None, ZERO, ZERO), ("y", "words"), {}),
    "weights of bitsandbytes": (
        "MatMulBnb4", named(normal(2, 3, 8), np.zeros(24, np.uint8), normal(3)), ("y",),
        {"K": 8, "N": 6, "block_size": 16, "quant_type": 1}),
    "distances": ("CDist", named(normal(4, 3), normal(5, 3)), ("y",), {"metric": "euclidean"}),
    "regions": (
        "CropAndResize", named(normal(1, 3, 5, 6), normal(4, 4), np.zeros(4, np.int32),
                               np.array([2, 7], np.int32)), ("y",), {}),
    "words": (
        "WordConvEmbedding", named(IDS, normal(6, 1, 2, 4), normal(6), normal(3, 4)), ("y",), {}),
    "hashes": ("MurmurHash3", named(IDS), ("y",), {"positive": 0}),
    "blocked tokens": (
        "NGramRepeatBlock", named(np.zeros((2, 3), int), normal(2, 9)), ("y",), {"ngram_size": 2}),
    "windows": ("UnfoldTensor", named(normal(4, 9, 3)), ("y",), {"dim": 1, "size": 4, "step": 2}),
    "a masked pooling": (
        "MaxpoolWithMask", named(normal(1, 2, 7, 6), np.ones((1, 1, 7, 6), np.int32)), ("y",),
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    "channels at the last axis": (
        "NhwcMaxPool", named(np.ones((1, 7, 6, 5), np.uint8)), ("y",), {"kernel_shape": [3, 2]}),
    "pads as an input": (
        "ConvTransposeWithDynamicPads",
        named(normal(1, 4, 5, 6), normal(4, 3, 3, 2), np.array([1, 0, 1, 1])), ("y",),
        {"strides": [2, 1], "group": 2}),
    "pads": ("Pad", named(normal(2, 3), np.array([1, 0, 2, 3])), ("y",), {}),
    "a further axis": ("ExpandDims", named(normal(2, 3), np.array(1, np.int32)), ("y",), {}),
    "an inverse": ("Inverse", named(normal(2, 3, 3)), ("y",), {}),
    "a triangle": ("Trilu", named(normal(3, 4)), ("y",), {}),
    "picked rows": ("GatherND", named(normal(3, 4, 5), np.array([[0, 1], [2, 3]])), ("y",), {}),
    "a grid": ("GridSample", named(normal(1, 2, 4, 5), normal(1, 3, 6, 2)), ("y",), {}),
    "16-bit integers": (
        "MatMulInteger16", named(np.ones((2, 3, 4), np.int16), np.ones((4, 5), np.int16)),
        ("y",), {}),
    "quantised": ("QuantizeLinear", named(normal(2, 3), SCALE, SIGNED_ZERO), ("y",), {}),
    "dequantised": ("DequantizeLinear", named(BYTES, SCALE, ZERO), ("y",), {}),
    "a sum of bytes": (
        "QLinearAdd", named(BYTES, SCALE, ZERO, BYTES[:1], SCALE, ZERO, SCALE, ZERO), ("y",), {}),
    "bytes times a number": (
        "QLinearMul", named(BYTES, SCALE, ZERO, BYTES[0, :1], SCALE, ZERO, SCALE, ZERO),
        ("y",), {}),
    "chosen bytes": (
        "QLinearWhere", named(np.ones((1, 8), bool), BYTES, SCALE, ZERO, BYTES[:, :1], SCALE, ZERO,
                              SCALE, ZERO), ("y",), {}),
    "joined bytes": (
        "QLinearConcat", named(SCALE, ZERO, BYTES, SCALE, ZERO, BYTES[:2], SCALE, ZERO), ("y",),
        {"axis": 0}),
    "a sigmoid of bytes": ("QLinearSigmoid", named(BYTES, SCALE, ZERO, SCALE, ZERO), ("y",), {}),
    "shares of bytes": (
        "QLinearSoftmax", named(BYTES, SCALE, ZERO, SCALE, ZERO), ("y",), {"opset": 13}),
    "means of windows of bytes": (
        "QLinearAveragePool", named(IMAGE, SCALE, ZERO, SCALE, ZERO), ("y",),
        {"kernel_shape": [2, 3], "strides": [2, 1], "channels_last": 1, "ceil_mode": 1}),
    "means of bytes": (
        "QLinearGlobalAveragePool", named(IMAGE, SCALE, ZERO, SCALE, ZERO), ("y",),
        {"channels_last": 1}),
    "a convolution of bytes": (
        "QLinearConv", named(IMAGE, SCALE, ZERO, np.ones((6, 2, 3, 3), np.int8), SCALE,
                             SIGNED_ZERO, SCALE, ZERO), ("y",),
        {"channels_last": 1, "group": 2, "pads": [1, 0, 1, 0]}),
    "a product of bytes": (
        "QGemm", named(BYTES, SCALE, ZERO, np.ones((5, 8), np.int8), SCALE, SIGNED_ZERO,
                       None, SCALE, ZERO), ("y",), {"transB": 1}),
    "a product of bytes to floats": (
        "QGemm", named(BYTES, SCALE, ZERO, np.ones((4, 5), np.int8), SCALE,
                       SIGNED_ZERO), ("y",), {"transA": 1}),
    "a causal convolution": (
        "CausalConvWithState", named(normal(2, 3, 5), normal(3, 1, 4)), ("y", "state"),
        {"dilation": 2}),
}  # fmt: skip
UNSTORED = ("query", "x", "x0", "key", "value", "router", "indices", "router_weights", "lengths")


@pytest.mark.parametrize(("op_type", "feeds", "outputs", "attributes"), CASES.values(), ids=CASES)
def test_inferred_shapes_are_those_of_a_run(op_type, feeds, outputs, attributes):
    given_feeds = {name: value for name, value in feeds.items() if value is not None}
    stored = [name for name in given_feeds if name not in UNSTORED and "past" not in name]
    proto = fused(op_type, feeds, outputs, stored, **attributes)
    fed = {name: value for name, value in given_feeds.items() if name not in stored}
    model = loading.from_proto(proto)
    types = infer(model, {name: value.shape for name, value in fed.items()})
    scope = model.nodes[0].scope
    inferred = {name: types.of(name, scope) for name in outputs if name}
    names = [value.name for value in proto.graph.output]
    run = dict(zip(names, onnxruntime(proto, fed), strict=True))
    for name, array in run.items():
        assert inferred[name] is not None, name
        assert (inferred[name].dtype, inferred[name].concrete) == (array.dtype.name, array.shape)


def test_what_only_a_run_tells_stays_open():
    """How long a cache becomes is in an input, unless it is stored or follows from shapes."""
    feeds = grouped(3, 1)
    model = loading.from_proto(fused("GroupQueryAttention", feeds, PRESENT, **HEADS))
    shapes = {name: value.shape for name, value in feeds.items() if value is not None}
    types = infer(model, shapes)
    scope = model.nodes[0].scope
    assert types.of("y", scope).concrete == (1, 1, 64)
    assert types.of("present_key", scope).concrete is None
