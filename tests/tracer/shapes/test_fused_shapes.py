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
IDS = np.zeros((2, 3), np.int32)


def all_in_query(feeds):
    whole = np.concatenate([feeds[name] for name in ("query", "key", "value")], axis=-1)
    return feeds | {"query": whole, "key": None, "value": None}


def named(*arrays):
    return {f"x{index}": array for index, array in enumerate(arrays)}


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
    "a projection": ("Attention", packed(past=3), ("y", "present"), {"num_heads": 2}),
    "values of another size": (
        "Attention", packed(sizes=(16, 16, 24)), ("y",),
        {"num_heads": 2, "qkv_hidden_sizes": [16, 16, 24]}),
    "experts": ("MoE", of_floats("silu"), ("y",), settings("silu", 2, True)),
    "packed experts": ("QMoE", of_codes(4, 16, True, "silu"), ("y",),
                       settings("silu", 2, True) | {"block_size": 16}),
    "linear attention": ("LinearAttention", DECAYED, ("y", "state"), GATED),
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
