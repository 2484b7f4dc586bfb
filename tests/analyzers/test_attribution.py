"""Which nodes a kernel stands for, checked against what onnxruntime itself makes of the model."""

import numpy as np
import onnx
import pytest

from analyzers.attribution import attribute
from tests.graphs import BRANCHES, parse, residual
from tracer import inputs, loading
from tracer.executors.onnxruntime import calibration, profiler
from tracer.executors.onnxruntime.options import OPTIMIZATIONS, Options

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
    monkeypatch.setattr(calibration, "measure", lambda threads, provider: calibration.Bias(0, 0))


def kernels_of(proto, optimization, feeds=None):
    model = loading.from_proto(proto)
    feedset = inputs.FeedSet(feeds, None) if feeds else inputs.make(model)
    run = profiler.profile(model, feedset, Options(2, 1, None, 1, optimization))
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
