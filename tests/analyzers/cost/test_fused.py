"""onnxruntime's fused operators cost what the operators cost that they replace."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.analyzers.cost.graphs import Graph
from tracer.analyzers.cost import cost
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph import loading, shape_inference
from tracer.graph.shape_inference import TensorTypes
from tracer.graph.tensor_type import TensorType

WORK = ["macs", "adds", "muls", "flops"]
TOKENS = (2, 5, 16)


def totals(build, **inputs):
    graph = Graph(**inputs)
    build(graph)
    model = graph.model(opset=24)
    counted = cost(TypedModel(model, shape_inference.infer(model, {})))
    assert counted.unknown == ()
    return {**counted.table[WORK].sum(), "params": counted.parameters[0]}


def same(fused, parts, **inputs):
    assert totals(fused, **inputs) == totals(parts, **inputs)


def test_a_fused_convolution_is_convolution_sum_and_activation():
    def fused(g):
        weights = g.weight(8, 4, 3, 3), g.weight(8)
        g.fused("FusedConv", "x", *weights, "z", activation="Relu", shape=(1, 8, 6, 6))

    def parts(g):
        y = g.op("Conv", "x", g.weight(8, 4, 3, 3), g.weight(8))
        g.op("Relu", g.op("Add", y, "z"))

    same(fused, parts, x=(1, 4, 8, 8), z=(1, 8, 6, 6))


def test_a_fused_product_is_transposition_product_and_scale():
    def fused(g):
        g.fused("FusedMatMul", "x", "z", transA=1, alpha=0.5, shape=(2, 7, 3))

    def parts(g):
        y = g.op("MatMul", g.op("Transpose", "x", perm=[0, 2, 1]), "z")
        g.op("Mul", y, g.weight())

    same(fused, parts, x=(2, 5, 7), z=(2, 5, 3))


@pytest.mark.parametrize(("last", "inner"), [(0, 7), (1, 2)])
def test_a_fused_product_with_batches_between_its_axes(last, inner):
    """Axes of x: rows, batch, columns; transposing the last two makes the rows the inner axis."""

    def fused(g):
        options = {"transBatchA": 1, "transA": last, "shape": (5, 9 - inner, 3)}
        g.fused("FusedMatMul", "x", "z", **options)

    def parts(g):
        perm = [1, 2, 0] if last else [1, 0, 2]
        g.op("MatMul", g.op("Transpose", "x", perm=perm), "z")

    same(fused, parts, x=(2, 5, 7), z=(5, inner, 3))


def test_a_fused_gemm_is_gemm_and_activation():
    def fused(g):
        weights = g.weight(16, 8), g.weight(8)
        g.fused("FusedGemm", "x", *weights, activation="LeakyRelu", shape=(4, 8))

    def parts(g):
        g.op("LeakyRelu", g.op("Gemm", "x", g.weight(16, 8), g.weight(8)))

    same(fused, parts, x=(4, 16))


@pytest.mark.parametrize(
    ("name", "biased", "approximate"),
    [("BiasGelu", True, "none"), ("FastGelu", True, "tanh"), ("Gelu", False, "none")],
)
def test_a_fused_gelu_is_its_bias_and_gelu(name, biased, approximate):
    def fused(g):
        g.fused(name, "x", *([g.weight(16)] if biased else []), shape=TOKENS)

    def parts(g):
        x = g.op("Add", "x", g.weight(16)) if biased else "x"
        g.op("Gelu", x, approximate=approximate)

    same(fused, parts, x=TOKENS)


@pytest.mark.parametrize("bias", [False, True])
def test_a_skip_normalisation_is_its_sums_and_the_normalisation(bias):
    def fused(g):
        weights = [g.weight(16) for _ in range(2 + bias)]
        g.fused("SkipLayerNormalization", "x", "z", *weights, shape=TOKENS)

    def parts(g):
        x = g.op("Add", "x", "z")
        x = g.op("Add", x, g.weight(16)) if bias else x
        g.op("LayerNormalization", x, g.weight(16), g.weight(16))

    same(fused, parts, x=TOKENS, z=TOKENS)


def test_an_rms_skip_normalisation_is_its_sum_and_the_normalisation():
    def fused(g):
        g.fused("SkipSimplifiedLayerNormalization", "x", "z", g.weight(16), shape=TOKENS)

    def parts(g):
        g.op("RMSNormalization", g.op("Add", "x", "z"), g.weight(16))

    same(fused, parts, x=TOKENS, z=TOKENS)


def test_packed_attention_is_projection_and_attention():
    def fused(g):
        weights = g.weight(16, 48), g.weight(48)
        g.fused("Attention", "x", *weights, num_heads=4, shape=TOKENS)

    def parts(g):
        qkv = [g.dense("x", 16, 16) for _ in range(3)]
        g.op("Attention", *qkv, q_num_heads=4, kv_num_heads=4)

    same(fused, parts, x=TOKENS)


@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_attention_is_attention(masked):
    def fused(g):
        mask = ["", "", "mask"] if masked else []
        g.fused("MultiHeadAttention", "q", "k", "v", *mask, num_heads=4, shape=TOKENS)

    def parts(g):
        mask = ["mask"] if masked else []
        g.op("Attention", "q", "k", "v", *mask, q_num_heads=4, kv_num_heads=4)

    same(fused, parts, q=TOKENS, k=(2, 9, 16), v=(2, 9, 16), mask=(2, 4, 5, 9))


def test_grouped_attention_is_attention_with_its_past():
    def fused(g):
        extra = ("past_k", "past_v", g.weight(2, dtype=TensorProto.INT32), "total")
        options = {"num_heads": 4, "kv_num_heads": 2, "shape": TOKENS}
        g.fused("GroupQueryAttention", "q", "k", "v", *extra, **options)
        node = g.nodes[-1]
        node.output.append("present")
        g.declared.append(helper.make_tensor_value_info("present", TensorProto.FLOAT, (2, 2, 8, 4)))

    def parts(g):
        inputs = ("q", "k", "v", "", "past_k", "past_v")
        g.op("Attention", *inputs, q_num_heads=4, kv_num_heads=2)

    past = {"past_k": (2, 2, 3, 4), "past_v": (2, 2, 3, 4), "total": (1,)}
    same(fused, parts, q=TOKENS, k=(2, 5, 8), v=(2, 5, 8), **past)


def test_attention_written_out_is_the_operator():
    def operator(g):
        g.op("Attention", "q", "k", "v")

    def parts(g):
        scores = g.op("MatMul", "q", g.op("Transpose", "k", perm=[0, 1, 3, 2]))
        weights = g.op("Softmax", g.op("Mul", scores, g.weight()))
        g.op("MatMul", weights, "v")

    same(operator, parts, q=(2, 4, 5, 8), k=(2, 4, 7, 8), v=(2, 4, 7, 6))


def test_packed_weights_of_a_product_count_by_the_weight_not_by_the_byte():
    graph = Graph(x=(3, 64))
    packed = graph.weight(10, 2, 16, dtype=TensorProto.UINT8)
    settings = {"K": 64, "N": 10, "bits": 4, "block_size": 32}
    graph.fused("MatMulNBits", "x", packed, graph.weight(10, 2), shape=(3, 10), **settings)
    model = graph.model()
    row = cost(TypedModel(model, shape_inference.infer(model, {}))).table.iloc[0]
    assert row["macs"] == 3 * 64 * 10
    assert (row["params"], row["param_bytes"]) == (640, 320)


@pytest.mark.parametrize("level", [0, 4])
def test_the_work_of_packed_weights(level):
    """Level 4: per activation a comparison, a product and a rounding; per block a scaled sum."""
    graph = Graph(x=(3, 64))
    packed = graph.weight(10, 2, 16, dtype=TensorProto.UINT8)
    settings = {"K": 64, "N": 10, "bits": 4, "block_size": 32, "accuracy_level": level}
    graph.fused("MatMulNBits", "x", packed, graph.weight(10, 2), shape=(3, 10), **settings)
    row = table(graph).iloc[0]
    dequantised, rounded = 2 * 640, 640 + 3 * 3 * 64 + 3 * (3 * 10 * 2)
    assert row["flops"] == 2 * 3 * 64 * 10 + (rounded if level == 4 else dequantised)
    assert row["bytes_read"] == 4 * 3 * 64 + 320 + 4 * 20


def table(graph):
    model = graph.model()
    counted = cost(TypedModel(model, shape_inference.infer(model, {})))
    assert counted.unknown == ()
    return counted.table


def cached(past, rows, new, present, dtype=TensorProto.FLOAT, **attributes):
    """The costs of grouped attention: 4 heads of 16 channels, 2 of them cached, `past` filled."""
    graph = Graph(q=(1, new, 64), k=(1, new, 32), v=(1, new, 32))
    total = graph.ints(past + new)
    for name in ("past_k", "past_v"):
        graph.inputs.append(helper.make_tensor_value_info(name, dtype, (1, 2, rows, 16)))
    tables = (graph.weight(512, 8), graph.weight(512, 8)) if "do_rotary" in attributes else ()
    extra = ("past_k", "past_v", graph.weight(1, dtype=TensorProto.INT32), total, *tables)
    options = {"num_heads": 4, "kv_num_heads": 2, "shape": (1, new, 64)}
    graph.fused("GroupQueryAttention", "q", "k", "v", *extra, **options, **attributes)
    for name in ("present_k", "present_v"):
        graph.nodes[-1].output.append(name)
        graph.declared.append(helper.make_tensor_value_info(name, dtype, (1, 2, present, 16)))
    return table(graph).iloc[0]


@pytest.mark.parametrize(("rows", "present"), [(7, 8), (32, 32)])
def test_a_cache_is_read_as_far_as_it_is_filled(rows, present):
    """One buffer of 32 rows gets the new row; otherwise the present is written whole."""
    row = cached(7, rows, 1, present)
    of_token = 2 * 2 * 16 * 4  # keys and values, 2 heads, 16 channels, 4 bytes
    counters = 4 + 8  # seqlens_k, and the stored total
    assert row["macs"] == 2 * 4 * 16 * 8
    assert row["bytes_read"] == 4 * (64 + 32 + 32) + 7 * of_token + counters
    assert row["bytes_written"] == 4 * 64 + (1 if rows == present else 8) * of_token


def test_a_cache_of_bytes_is_a_quarter_and_costs_its_conversions():
    settings = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}
    floats = cached(7, 7, 1, 8)
    codes = cached(7, 7, 1, 8, TensorProto.INT8, kv_cache_bit_width=8, **settings)
    of_cache = 2 * 2 * 16
    assert floats["bytes_read"] - codes["bytes_read"] == 3 * 7 * of_cache
    assert codes["flops"] - floats["flops"] == of_cache * (4 * 1 + 8)


def test_tables_of_angles_are_read_by_the_token():
    plain, rotary = cached(7, 7, 1, 8), cached(7, 7, 1, 8, do_rotary=1)
    assert rotary["bytes_read"] - plain["bytes_read"] == 2 * 8 * 4
    assert rotary["flops"] - plain["flops"] == 3 * (4 + 2) * 16


@pytest.mark.parametrize("quantised", [False, True])
def test_a_mixture_is_its_router_and_the_layers_of_the_chosen(quantised):
    tokens, experts, k, width, inner = 6, 4, 2, 32, 16

    def fused(g):
        bits = {"dtype": TensorProto.UINT8} if quantised else {}
        fc1 = g.weight(experts, inner, width // 2 if quantised else width, **bits)
        fc2 = g.weight(experts, width, inner // 2 if quantised else inner, **bits)
        scales = [[g.weight(experts, rows)] if quantised else [] for rows in (inner, width)]
        layers = (fc1, *scales[0], g.weight(experts, inner), fc2, *scales[1])
        options = {"k": k, "activation_type": "silu", "shape": (tokens, width)}
        name = "QMoE" if quantised else "MoE"
        g.fused(name, "x", "router", *layers, g.weight(experts, width), **options)

    def parts(g):
        g.op("Softmax", "router")
        for _ in range(k):
            y = g.dense("x", width, inner)
            y = g.op("Swish", y)
            y = g.op("Mul", g.dense(y, inner, width), g.weight())
            g.op("Add", y, "x")

    inputs = {"x": (tokens, width), "router": (tokens, experts)}
    whole, written_out = totals(fused, **inputs), totals(parts, **inputs)
    weights = experts * 2 * inner * width
    assert whole["params"] == weights + experts * (inner + width)
    assert whole["flops"] - written_out["flops"] == (2 * weights if quantised else 0)
    assert whole["macs"] == written_out["macs"]


def test_the_model_onnxruntime_really_runs_has_the_macs_of_the_given_one(tmp_path):
    given = loading.from_proto(_network())
    optimised = loading.from_proto(_optimised(given.proto, tmp_path))
    domains = {node.domain for node in optimised.nodes}
    assert domains & {"com.microsoft", "com.microsoft.nchwc"}, "nothing was fused"
    before = cost(TypedModel(given, shape_inference.infer(given, {})))
    after = cost(TypedModel(optimised, _observed(optimised, tmp_path)))
    assert before.unknown == after.unknown == ()
    assert after.table["macs"].sum() == before.table["macs"].sum()


def _network():
    graph = Graph(x=(1, 16, 12, 12))
    x = graph.op("Relu", graph.conv("x", 16, 32, 3, pad=1, bias=True))
    y = graph.conv(x, 32, 32, 3, pad=1, bias=True)
    x = graph.op("Relu", graph.op("Add", x, y))
    x = graph.op("Flatten", graph.op("GlobalAveragePool", graph.max_pool(x, 2, 2)))
    x = graph.op("Relu", graph.linear(x, 32, 10))
    proto = graph.model().proto
    for weight in proto.graph.initializer:
        zeros = np.zeros(weight.dims, np.float32)
        weight.CopyFrom(onnx.numpy_helper.from_array(zeros, weight.name))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info(x, TensorProto.FLOAT, (1, 10)))
    return proto


def _optimised(proto, folder):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 3  # it warns that the file is for this machine only
    onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return onnx.load(folder / "optimised.onnx")


def _observed(model, folder):
    """TensorTypes with the shapes that a run of the optimised model showed."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    names = [name for node in model.nodes for name in node.outputs]
    declared = {value.name for value in proto.graph.output}
    for name in names:
        if name not in declared:
            proto.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    feeds = {"x": np.zeros((1, 16, 12, 12), np.float32)}
    seen = dict(zip(names, session.run(names, feeds), strict=True))
    inferred = shape_inference.infer(model, {})
    shown = {name: TensorType(str(a.dtype), a.shape) for name, a in seen.items()}
    return TensorTypes({"": {**inferred.tensors[""], **shown}}, inferred.weights)
