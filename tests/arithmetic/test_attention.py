"""Attention and its rotary embedding are replayed with onnxruntime's bits, on other values."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper, numpy_helper

import tracer
from tracer.arithmetic.kernel import Kernel, NotKnown, are_equal, reveal
from tracer.arithmetic.replays import replay_of

FLOAT, INT, LONG = (np.dtype(each) for each in (np.float32, np.int32, np.int64))
DOMAIN = "com.microsoft"


def kernel_of(op_type, names, inputs, outputs=("y",), fixed=None, stored=None, **attributes):
    """Returns a kernel; what is fixed, or stored, is an array by name."""
    threads, domain = attributes.pop("threads", 1), attributes.pop("domain", DOMAIN)
    node = helper.make_node(op_type, names, list(outputs), domain=domain, **attributes)
    fixed = fixed or {}
    computed = {name: (FLOAT, shape) for name, shape in inputs.items()}
    computed |= {name: (value.dtype, value.shape) for name, value in fixed.items()}
    return Kernel(node, computed, stored or {}, {"": 23, DOMAIN: 1}, threads, fixed)


def check(kernel):
    """Compares the kernel's replay with onnxruntime, on values that revealed nothing."""
    replay = replay_of(kernel.node.domain, kernel.op_type)
    rule = reveal(replay, kernel)
    drawn = kernel.draw(np.random.default_rng(7))
    inputs = {n: v * np.float32(1.7) if v.dtype == FLOAT else v for n, v in drawn.items()}
    pairs = zip(kernel.run(inputs), replay.replay(kernel, rule.facts, inputs), strict=True)
    assert all(are_equal(real, replayed).all() for real, replayed in pairs)
    return rule


@pytest.mark.parametrize(("size", "interleaved"), [(16, 0), (64, 1), (40, 1), (20, 0)])
@pytest.mark.parametrize("has_heads", [True, False])
def test_rotary_embedding(size, interleaved, has_heads):
    shape = (2, 3, 9, size) if has_heads else (2, 9, 3 * size)
    tables = {"c": (16, size // 2), "s": (16, size // 2)}
    places = np.tile(np.arange(9), (2, 1))
    count = {} if has_heads else {"num_heads": 3}
    check(
        kernel_of(
            "RotaryEmbedding", ["x", "p", "c", "s"], {"x": shape, **tables}, fixed={"p": places},
            interleaved=interleaved, **count,
        )
    )  # fmt: skip


def test_rotary_embedding_of_onnx():
    inputs = {"x": (2, 9, 48), "c": (2, 9, 6), "s": (2, 9, 6)}
    options = {"num_heads": 3, "rotary_embedding_dim": 12}
    check(kernel_of("RotaryEmbedding", list(inputs), inputs, domain="", **options))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("given", ["", "mask", "bool", "causal", "past", "groups"])
def test_attention_of_onnx(given):
    heads = (2, 4, 9, 16)
    inputs, fixed = dict.fromkeys(("q", "k", "v"), heads), {}
    names, outputs, options = ["q", "k", "v", "", "", ""], ("y",), {}
    if given in ("mask", "bool"):
        names[3] = "m"
    match given:
        case "mask":
            inputs["m"] = (4, 9, 9)
        case "bool":
            fixed["m"] = np.tri(9, dtype=bool)
        case "causal":
            options["is_causal"] = 1
        case "past":
            names[4:], outputs, options = ["a", "b"], ("y", "k2", "v2"), {"is_causal": 1}
            inputs |= dict.fromkeys(("a", "b"), (2, 4, 5, 16))
        case "groups":
            inputs = {"q": (2, 9, 64), "k": (2, 9, 32), "v": (2, 9, 32)}
            options = {"q_num_heads": 4, "kv_num_heads": 2}
    check(kernel_of("Attention", names, inputs, outputs, fixed, domain="", **options))


MULTI_HEAD = [
    # queries, keys, heads, size, and what is given besides
    (7, 7, 3, 16, ()),
    (33, 33, 2, 64, ("bias",)),
    (5, 9, 2, 32, ("attention_bias",)),
    (6, 6, 2, 32, ("mask",)),
    (1, 4, 2, 32, ("past",)),
    (12, 12, 2, 32, ("unidirectional", "present")),
    (20, 300, 1, 128, ()),  # blocks of keys
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("queries", "keys", "heads", "size", "given"), MULTI_HEAD)
def test_multi_head_attention(queries, keys, heads, size, given, threads):
    width, past = heads * size, 5 if "past" in given else 0
    inputs = {"q": (2, queries, width), "k": (2, keys, width), "v": (2, keys, width)}
    names, stored, fixed = ["q", "k", "v", *[""] * 5], {}, {}
    if "bias" in given:
        names[3] = "b"
        stored["b"] = np.random.default_rng(0).standard_normal(3 * width).astype(np.float32)
    if "mask" in given:
        names[4], fixed["m"] = "m", np.array([4, 6], np.int32)
    if "attention_bias" in given:
        names[5], inputs["a"] = "a", (1, heads, queries, keys)
    if past:
        names[6:8], shape = ["pk", "pv"], (2, heads, past, size)
        inputs |= {"pk": shape, "pv": shape}
    outputs = ("y", "k2", "v2") if past or "present" in given else ("y",)
    is_causal = int("unidirectional" in given)
    rule = check(
        kernel_of(
            "MultiHeadAttention", names, inputs, outputs, fixed, stored, num_heads=heads,
            unidirectional=is_causal, threads=threads,
        )
    )  # fmt: skip
    assert rule.facts["end"] == ("quotient" if given in ((), ("bias",)) else "softmax")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("tokens", "past", "options"),
    [
        (7, 0, {}),
        (1, 9, {}),
        (7, 0, {"do_rotary": 1}),
        (1, 12, {"do_rotary": 1, "is_packed": True}),
        (5, 6, {"do_rotary": 1, "rotary_interleaved": 1}),
        (20, 3, {"local_window_size": 5}),
        (1, 40, {"threads": 2}),
        (30, 1070, {"local_window_size": 100}),
    ],
)
def test_group_query_attention(tokens, past, options):
    heads, groups, size, total = 4, 2, 64, past + tokens
    is_packed = options.pop("is_packed", False)
    width = heads + 2 * groups if is_packed else heads
    inputs = {"q": (1, tokens, width * size)}
    names = ["q", *(["", ""] if is_packed else ["k", "v"]), "pk", "pv", "n", "t"]
    if not is_packed:
        inputs |= dict.fromkeys(("k", "v"), (1, tokens, groups * size))
    inputs |= dict.fromkeys(("pk", "pv"), (1, groups, past, size))
    fixed = {"n": np.array([total - 1], np.int32), "t": np.array(total, np.int32)}
    stored = {}
    if options.get("do_rotary"):
        angles = np.arange(32)[:, None] / np.arange(1, size // 2 + 1)
        stored = {"c": np.cos(angles).astype("f"), "s": np.sin(angles).astype("f")}
        names += list(stored)
    kernel = kernel_of(
        "GroupQueryAttention", names, inputs, ("y", "k2", "v2"), fixed, stored, num_heads=heads,
        kv_num_heads=groups, **options,
    )  # fmt: skip
    check(kernel)


def test_grouped_queries_of_a_graph_that_names_every_default():
    """onnxruntime writes them, as smooth_softmax = -1, into the graph that it runs."""
    x = {"q": (1, 5, 32), "k": (1, 5, 16), "v": (1, 5, 16)}
    stored = {"n": np.array([4], np.int32), "t": np.array(5, np.int32)}
    outputs = ["y", "k2", "v2"]
    node = helper.make_node(
        "GroupQueryAttention", [*x, "", "", *stored], outputs, domain="com.microsoft", num_heads=4,
        kv_num_heads=2,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "net", [helper.make_tensor_value_info(n, 1, shape) for n, shape in x.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    (kernel,) = tracer.replay(model, threads=1, in_process=True).kernels
    assert kernel.rule
    assert kernel.equal == kernel.size


@pytest.mark.one_in(3)
@pytest.mark.parametrize("options", [{}, {"unidirectional": 1}, {"mask": 5}])
def test_attention_of_projected_inputs(options):
    random, (tokens, heads, size, width) = np.random.default_rng(0), (9, 2, 32, 24)
    stored = {
        "w": random.standard_normal((width, 3 * heads * size)).astype(np.float32),
        "b": random.standard_normal(3 * heads * size).astype(np.float32),
    }
    fixed = {"m": np.full(2, options.pop("mask"), np.int32)} if "mask" in options else {}
    check(
        kernel_of(
            "Attention", ["x", "w", "b", *fixed], {"x": (2, tokens, width)}, fixed=fixed,
            stored=stored, num_heads=heads, **options,
        )
    )  # fmt: skip


def test_attention_of_bytes():
    random, (tokens, heads, size, width) = np.random.default_rng(0), (9, 2, 32, 24)
    stored = {
        "w": random.integers(-50, 50, (width, 3 * heads * size)).astype(np.int8),
        "b": random.standard_normal(3 * heads * size).astype(np.float32),
        "s": np.array(0.02, np.float32), "r": np.array(0.01, np.float32),
        "z": np.array(120, np.uint8), "o": np.array(0, np.int8),
    }  # fmt: skip
    names = ["x", "w", "b", "s", "r", "", "z", "o"]
    x = random.integers(0, 256, (2, tokens, width)).astype(np.uint8)
    bare = kernel_of("QAttention", names, {}, fixed={"x": x}, stored=stored, num_heads=heads)
    check(replace(bare, fixed={}))  # bytes of their whole range are drawn


def test_a_cap_is_not_known():
    shapes = {"q": (1, 4, 64), "k": (1, 4, 32), "v": (1, 4, 32)}
    fixed = {"n": np.array([3], np.int32), "t": np.array(4, np.int32)}
    kernel = kernel_of(
        "GroupQueryAttention", ["q", "k", "v", "", "", "n", "t"], shapes, ("y", "k2", "v2"), fixed,
        num_heads=2, kv_num_heads=1, softcap=20.0,
    )  # fmt: skip
    with pytest.raises(NotKnown, match="caps"):
        check(kernel)
