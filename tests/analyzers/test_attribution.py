"""Which nodes a kernel stands for, checked against what onnxruntime itself makes of the model."""

import numpy as np
import onnx
import pytest

from tests.graphs import BRANCHES, in_float16, parse, quantised, residual
from tracer.analyzers.attribution import attribute
from tracer.analyzers.fusions import service
from tracer.containment.activity import silent
from tracer.executors.onnxruntime import calibration
from tracer.executors.onnxruntime.executor import executor
from tracer.executors.settings import OPTIMIZATIONS, OrtSettings
from tracer.graph import loading
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import make_feeds

GELU_AND_LAYERNORM = """
<ir_version: 8, opset_import: ["": 16]>
block (float[N,4,16] x) => (float[N,4,16] y) {
  m = MatMul (x, w)
  b = Add (m, bias)
  s = Div (b, root)
  e = Erf (s)
  o = Add (e, one)
  p = Mul (b, o)
  g = Mul (p, half)
  mean = ReduceMean <axes = [-1]> (g)
  d = Sub (g, mean)
  q = Pow (d, two)
  var = ReduceMean <axes = [-1]> (q)
  v = Add (var, eps)
  dev = Sqrt (v)
  n = Div (d, dev)
  sc = Mul (n, gamma)
  y = Add (sc, beta)
}
"""


NINE = {"mean", "d", "q", "var", "v", "dev", "n", "sc", "y"}


def gelu_and_layernorm():
    rng = np.random.default_rng(0)
    scalar = {"root": 2**0.5, "one": 1, "half": 0.5, "two": 2, "eps": 1e-5}
    model = parse(
        GELU_AND_LAYERNORM,
        w=rng.standard_normal((16, 16)).astype(np.float32),
        **{n: np.ones(16, np.float32) for n in ("bias", "gamma", "beta")},
        **{n: np.array(v, np.float32) for n, v in scalar.items()},
    )
    for node in model.graph.node:
        node.name = node.output[0]
    return model


@pytest.fixture(autouse=True)
def no_calibration(monkeypatch):
    monkeypatch.setattr(calibration, "measure", lambda threads: calibration.Bias(0, 0))


def kernels_of(proto, optimization, feeds=None):
    model = loading.from_proto(proto)
    feedset = FeedSet(feeds, None) if feeds else make_feeds(model)
    settings = OrtSettings(2, 1, None, 1, optimization=optimization)
    run = executor.profile(model, feedset, settings, silent).run
    return run.kernels, attribute(model, run.kernels)


@pytest.mark.parametrize("optimization", OPTIMIZATIONS)
@pytest.mark.parametrize("graph", [residual, gelu_and_layernorm])
def test_every_node_is_in_just_one_kernel(graph, optimization):
    proto = graph()
    _, groups = kernels_of(proto, optimization)
    found = [key for group in groups for key in group]
    assert sorted(found) == sorted(node.name for node in proto.graph.node)


@pytest.mark.parametrize("named", [True, False])
def test_the_residual_add_and_relu_are_in_the_kernel_that_bears_the_name_of_the_conv(named):
    kernels, groups = kernels_of(residual(named), "all")
    if not any(kernel.domain == "com.microsoft.nchwc" for kernel in kernels):
        pytest.skip("this CPU has no blocked layout")
    index = {node.output[0]: position for position, node in enumerate(residual().graph.node)}
    keys = [node.key for node in loading.from_proto(residual(named)).nodes]
    trap = tuple(keys[index[tensor]] for tensor in ("c2", "sum", "r2"))
    assert trap in groups
    assert kernels[groups.index(trap)].name == "c2_nchwc"


def perceptron():
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[N,16] x) => (float[N,4] y) { a = Gemm (x, w, b)  r = Relu (a)  y = MatMul (r, v) }
    """
    rng = np.random.default_rng(0)
    shapes = {"w": (16, 8), "b": (8,), "v": (8, 4)}
    weights = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    return named(parse(text, **{name: w.astype(np.float32) for name, w in weights.items()}))


@pytest.mark.parametrize("graph", [residual, perceptron])
def test_kernels_of_a_float16_model_have_the_nodes_of_the_float32_model(graph):
    """Without kernels for float16, onnxruntime computes tensors of other names in float32."""
    float32 = graph()
    _, expected = kernels_of(float32, "all")
    kernels, groups = kernels_of(in_float16(float32), "all")
    if not any("InsertedPrecisionFreeCast" in kernel.name for kernel in kernels):
        pytest.skip("this CPU has kernels for float16")
    assert sorted(filter(None, groups)) == sorted(filter(None, expected))


def test_a_change_of_layout_stands_for_no_node():
    kernels, groups = kernels_of(residual(), "all")
    for kernel, group in zip(kernels, groups, strict=True):
        assert (group == ()) == kernel.op_type.startswith("Reorder")


def test_a_fused_layer_normalisation_holds_its_nine_nodes():
    kernels, groups = kernels_of(gelu_and_layernorm(), "extended")
    fused = {k.op_type: g for k, g in zip(kernels, groups, strict=True)}
    assert set(fused["LayerNormalization"]) == NINE


@pytest.mark.parametrize("optimization", OPTIMIZATIONS)
def test_nodes_of_bodies_keep_the_path_of_their_parents(optimization):
    feeds = {
        "x": np.ones(4, np.float32),
        "flag": np.array(False),
        "trips": np.array(2, np.int64),
    }
    kernels, groups = kernels_of(onnx.parser.parse_model(BRANCHES), optimization, feeds)
    found = {
        key: kernel.calls for kernel, group in zip(kernels, groups, strict=True) for key in group
    }
    assert found["If_0.else_branch/Neg_0"] == 1
    assert found["Loop_1.body/Tanh_2"] == 2
    assert "If_0.then_branch/Exp_1" not in found


def named(proto):
    for node in proto.graph.node:
        node.name = node.output[0]
    return proto


def test_the_kernels_an_operator_is_expanded_into_all_stand_for_it():
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[N,4,8,8] x) => (float[N,4,8,8] y) {
      n = GroupNormalization <num_groups = 2> (x, s, b)
      y = Relu (n)
    }
    """
    ones = np.ones(4, np.float32)
    kernels, groups = kernels_of(named(parse(text, s=ones, b=ones)), "all")
    assert len(kernels) > 3
    assert {group[0] for group in groups if group} <= {"n", "y"}
    assert sum(group == () for group in groups) <= 1


def test_a_change_of_layout_does_not_take_what_the_kernel_before_it_computes():
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[N,16,8,8] x) => (float[N,16,8,8] y) {
      c = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (x, w)
      s = Sigmoid (c)
      y = Mul (c, s)
    }
    """
    w = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32)
    kernels, groups = kernels_of(named(parse(text, w=w)), "all")
    for kernel, group in zip(kernels, groups, strict=True):
        assert (group == ()) == kernel.op_type.startswith("Reorder"), kernel.name
    assert sorted(key for group in groups for key in group) == ["c", "s", "y"]


def test_a_duplicate_that_is_removed_is_in_no_kernel():
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[N,4] x) => (float[N,4] y) { a = Sigmoid (x)  b = Sigmoid (x)  y = Add (a, b) }
    """
    _, groups = kernels_of(named(parse(text)), "all")
    found = sorted(key for group in groups for key in group)
    assert found in (["a", "y"], ["b", "y"])
    assert all(len(group) == 1 for group in groups)


@pytest.mark.parametrize("quant_format", ["QDQ", "QOperator"])
def test_the_time_of_a_quantised_convolution_is_its_own(quant_format, tmp_path):
    model = loading.load(quantised(tmp_path, quant_format))
    settings = OrtSettings(2, 1, None, 1, optimization="all")
    run = executor.profile(model, make_feeds(model), settings, silent).run
    groups = attribute(model, run.kernels)
    kinds = {node.key: node.op_type for node in model.nodes}
    convolutions = 0
    for kernel, group in zip(run.kernels, groups, strict=True):
        if kernel.op_type == "QLinearConv":
            convolutions += 1
            assert {"Conv", "QLinearConv"} & {kinds[key] for key in group}, kernel.name
        if kernel.op_type == "Transpose":
            assert group == ()
    assert convolutions == 2


def test_a_bias_that_the_runtime_quantises_has_no_node_of_the_convolution():
    """As NNCF stores it: the runtime quantises the float bias, and names that after the Conv.

    It reads no input of the model: none of the nodes that the kernel of the Conv runs is in it.
    """
    random = np.random.default_rng(0)
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    net (float[1,4,8,8] x) => (float[1,6,8,8] y) {
      q = QuantizeLinear (x, s, z)
      d = DequantizeLinear (q, s, z)
      v = DequantizeLinear <axis = 0> (w, ws, wz)
      c = Conv <pads = [1, 1, 1, 1]> (d, v, b)
      r = Relu (c)
      p = QuantizeLinear <axis = 1> (r, os, oz)
      y = DequantizeLinear <axis = 1> (p, os, oz)
    }
    """
    proto = parse(
        text, s=np.float32(0.02), z=np.uint8(128), oz=np.zeros(6, np.uint8),
        w=random.integers(-127, 128, (6, 4, 3, 3)).astype(np.int8), wz=np.zeros(6, np.int8),
        ws=random.uniform(0.001, 0.01, 6).astype(np.float32),
        b=random.standard_normal(6).astype(np.float32),
        os=random.uniform(0.01, 0.1, 6).astype(np.float32),
    )  # fmt: skip
    for node in proto.graph.node:
        node.name = node.output[0]
    kernels, groups = kernels_of(proto, "all")
    found = {kernel.name: group for kernel, group in zip(kernels, groups, strict=True)}
    assert (found["c"], found["c_bias_dq"]) == (("c", "r"), ())
    assert service(next(k for k in kernels if k.name == "c_bias_dq"), None) == "type change"
