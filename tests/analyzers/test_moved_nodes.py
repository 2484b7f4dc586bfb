"""Nodes that onnxruntime moves across others, and tensors that are equal by chance."""

import re

import numpy as np
import pytest

from tests.graphs import parse
from tracer.analyzers.attribution import attribute
from tracer.analyzers.fusions import OVERHEAD
from tracer.analyzers.fusions.confirmation import CONFIRMED, CONTRADICTED, TIED, confirm
from tracer.api.fusions import fusions
from tracer.containment.activity import silent
from tracer.executors.onnxruntime.executor import executor
from tracer.executors.settings import OrtSettings
from tracer.graph import loading
from tracer.inputs.request import make_feeds
from tracer.limits import Limits


def named(text, **weights):
    model = parse(f'<ir_version: 8, opset_import: ["": 17]>\n{text}', **weights)
    for node in model.graph.node:
        node.name = node.output[0]
    return model


def transposed():
    """Two Transposes cancel across a ReduceSum and a Sqrt; `p` undoes the Sqrt."""
    text = """
    g (float[N,3,8,16] x) => (float[N,8,16,1] y) {
      t = Transpose <perm = [0,2,3,1]> (x)
      q = Mul (t, t)
      s = ReduceSum <keepdims = 1> (q, axes)
      d = Sqrt (s)
      u = Transpose <perm = [0,3,1,2]> (d)
      p = Mul (u, u)
      y = Reshape (p, shape)
    }
    """
    return named(text, axes=np.array([3]), shape=np.array([0, 8, 16, 1]))


def quantised(before, after):
    text = f"""
    g (float[N,6,16] x) => (float[N,4,6,4] y) {{
      m = MatMul (x, w)
      {before}
      v = Reshape (a, shape)
      t = Transpose <perm = [0,2,1,3]> (v)
      {after}
      y = Sin (z)
    }}
    """
    weights = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    scale, shape = np.float32(0.05), np.array([0, 6, 4, 4])
    return named(text, w=weights, sc=np.array(scale), zp=np.array(128, np.uint8), shape=shape)


def dequantised_early():
    pair = "q = QuantizeLinear (m, sc, zp)  a = DequantizeLinear (q, sc, zp)"
    return quantised(pair, "z = Identity (t)")


def quantised_late():
    pair = "q = QuantizeLinear (t, sc, zp)  z = DequantizeLinear (q, sc, zp)"
    return quantised("a = Identity (m)", pair)


def squeezed(kind):
    """A Squeeze between two conversions, which onnxruntime moves behind both; int8 become uint8."""
    text = """
    g (float[N,8,6,6] x) => (float[N,5] y) {
      q = QuantizeLinear (x, sc, zp)  d = DequantizeLinear (q, sc, zp)
      m = GlobalAveragePool (d)
      mq = QuantizeLinear (m, sc, zp)  md = DequantizeLinear (mq, sc, zp)
      s = Squeeze (md, axes)
      sq = QuantizeLinear (s, sc, zp)  sd = DequantizeLinear (sq, sc, zp)
      wd = DequantizeLinear (w, sc, zw)  p = MatMul (sd, wd)
      pq = QuantizeLinear (p, sc, zp)  pd = DequantizeLinear (pq, sc, zp)
      y = Exp (pd)
    }
    """
    weights = np.random.default_rng(0).integers(-99, 99, (8, 5)).astype(np.int8)
    zeros = {"zp": np.array(3 if kind == np.int8 else 131, kind), "zw": np.array(0, np.int8)}
    return named(text, sc=np.array(0.02, np.float32), w=weights, axes=np.array([2, 3]), **zeros)


def blocked():
    text = """
    g (float[N,3,H,W] x) => (float[N,8,A,B] y) {
      a = Conv <kernel_shape = [3,3], pads = [1,1,1,1], strides = [2,2]> (x, w0)
      b = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (a, w1)
      s = Add (a, b)
      c = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (s, w1)
      k = Conv <kernel_shape = [1,1]> (s, w2)
      y = Mul (c, k)
    }
    """
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)  # noqa: E731
    return named(text, w0=draw(8, 3, 3, 3), w1=draw(8, 8, 3, 3), w2=draw(8, 8, 1, 1))


@pytest.mark.parametrize("graph", [transposed, dequantised_early, quantised_late, blocked])
def test_a_kernel_with_name_and_operator_of_a_node_runs_that_node(graph):
    model = graph()
    operators = {node.name: node.op_type for node in model.graph.node}
    found = fusions(model).kernels
    for row in found:
        assert row.verdict != CONTRADICTED, row
        if operators.get(row.kernel) == row.op_type:
            assert row.kernel in row.nodes, row


def test_a_square_that_undoes_a_root_does_not_take_the_kernels_before_it():
    found = {row.kernel: row for row in fusions(transposed()).kernels}
    assert found["s"].nodes == ("s",)
    assert found["d"].nodes == ("d", "u")
    assert {row.verdict for row in found.values()} == {CONFIRMED}


@pytest.mark.parametrize("graph", [dequantised_early, quantised_late])
def test_a_conversion_that_passed_a_reshape_has_its_own_node(graph):
    conversions = {"QuantizeLinear", "DequantizeLinear"}
    rows = [row for row in fusions(graph()).kernels if row.op_type in {*conversions, "Reshape"}]
    assert {"Reshape", "DequantizeLinear"} <= {row.op_type for row in rows}
    operators = {node.name: node.op_type for node in graph().graph.node}
    for row in rows:
        assert row.op_type in {operators[key] for key in row.nodes}, row
        assert row.verdict == CONFIRMED, row


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_a_squeeze_between_two_conversions_takes_them_along_in_either_type(kind):
    found = {row.kernel: (row.nodes, row.verdict) for row in fusions(squeezed(kind)).kernels}
    assert found["m"] == (("d", "m", "mq"), CONFIRMED)
    assert found["s"] == (("md", "s", "sq"), CONFIRMED)
    assert found["p"] == (("sd", "wd", "p", "pq"), CONFIRMED)


def test_a_reshape_that_the_runtime_inserts_before_a_conv_is_no_part_of_it():
    found = fusions(blocked()).kernels
    inserted = [row for row in found if row.op_type == "Reshape"]
    if not inserted:
        pytest.skip("this CPU has no blocked layout")
    assert {row.role for row in inserted} == {OVERHEAD}
    assert sorted(key for row in found for key in row.nodes) == ["a", "b", "c", "k", "s", "y"]


def test_a_shape_that_one_input_cannot_tell_from_others_accuses_nobody(tmp_path):
    text = """
    g (float[N,6] x) => (float[A,B] y) {
      t = NonZero (x)
      c = Cast <to = 1> (t)
      h = Shape (t)
      s = Gather (h, swap)
      y = Reshape (c, s)
    }
    """
    np.savez(tmp_path / "one.npz", x=np.eye(4, 6, dtype=np.float32))
    found = fusions(named(text, swap=np.array([1, 0])), inputs=tmp_path / "one.npz")
    assert CONTRADICTED not in {row.verdict for row in found.kernels}


def test_wrong_nodes_are_contradicted_also_where_the_runtime_moved_nodes():
    model = loading.from_proto(transposed())
    feed_sets = [make_feeds(model, seed=seed) for seed in (0, 1)]
    graph = executor.optimize(model, feed_sets[0], OrtSettings(1, 0, None, 1, optimization="all"))
    evidence = graph.match_tensors(feed_sets, Limits(), silent)
    groups = list(attribute(model, graph.kernels, evidence))
    place = {kernel.name: index for index, kernel in enumerate(graph.kernels)}
    for one, other in (("q", "s"), ("s", "d"), ("d", "p")):
        wrong = list(groups)
        wrong[place[one]], wrong[place[other]] = groups[place[other]], groups[place[one]]
        verdicts = confirm(model, graph.kernels, wrong, evidence)
        assert CONTRADICTED in {verdicts[place[one]].word, verdicts[place[other]].word}, one


def test_a_reshape_behind_the_quantiser_that_read_it_is_that_reshape():
    """onnxruntime quantises first, and moves bytes."""
    random = np.random.default_rng(0)
    model = named("""
    g (float[N,3,64] x) => (float[N,8,6,6] y) {
      r = Reshape (x, shape)  q = QuantizeLinear (r, s, z)  d = DequantizeLinear (q, s, z)
      wd = DequantizeLinear (w, s, zw)  c = Conv (d, wd)
      cq = QuantizeLinear (c, s, z)  y = DequantizeLinear (cq, s, z)
    }""",
        w=random.integers(-99, 99, (8, 3, 3, 3)).astype(np.int8),
        s=np.array(0.02, np.float32), z=np.array(131, np.uint8), zw=np.array(0, np.int8),
        shape=np.array([-1, 3, 8, 8]),
    )  # fmt: skip
    result = fusions(model)
    order = [kernel.op_type for kernel in result.kernels]
    assert order.index("QuantizeLinear") < order.index("Reshape")  # or nothing is shown
    verdicts = {kernel.kernel: (kernel.nodes, kernel.verdict) for kernel in result.kernels}
    assert verdicts["r"] == (("r",), CONFIRMED)
    assert all(kernel.verdict == CONFIRMED for kernel in result.kernels if kernel.nodes)


MOVED = {
    "query, key and value": """(float[2,3,16] x) => (float[2,4,3,4] y) {
      p = MatMul (x, w)  r = Reshape (p, sizes)  t = Transpose <perm = [2, 0, 3, 1, 4]> (r)
      a = Slice (t, zero, one, zero)  b = Slice (t, one, two, zero)  c = Slice (t, two, three, zero)
      q = Squeeze (a, zero)  k = Squeeze (b, zero)  v = Squeeze (c, zero)
      back = Transpose <perm = [0, 1, 3, 2]> (k)
      s = MatMul (q, back)  e = Softmax (s)  y = MatMul (e, v)
    }""",
    "boxes and scores": """(float[1,5,8] x) => (float[1,8,4] boxes, float[1,1,8] scores) {
      f = Sin (x)  t = Transpose <perm = [0, 2, 1]> (f)
      boxes, s = Split <axis = 2> (t, parts)  scores = Transpose <perm = [0, 2, 1]> (s)
    }""",
    "a query of no input": """(float[N,3,16] x) => (float[N,4,3] y) {
      n = Shape <start = 0, end = 1> (x)  shape = Concat <axis = 0> (n, rest)
      e = Expand (w, shape)  q = Sin (e)  a = Mul (q, half)
      t = Transpose <perm = [0, 2, 1]> (x)  b = Mul (t, half)  y = MatMul (a, b)
    }""",
}
"""Graphs in which onnxruntime moves a Transpose behind a Split, or a scale into a product."""
STORED = {
    name: np.array(value)
    for name, value in {
        "sizes": [2, 3, 3, 4, 4], "zero": [0], "one": [1], "two": [2], "three": [3],
        "parts": [4, 1], "rest": [4, 16],
    }.items()
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_what_onnxruntime_moved_is_not_contradicted(name):
    """The runtime's results are right, and its kernels hold all of these nodes."""
    text, rng = MOVED[name], np.random.default_rng(0)
    w = rng.standard_normal((16, 48) if name.startswith("query") else (1, 4, 16))
    stored = {**STORED, "w": w.astype(np.float32), "half": np.float32(0.5)}
    weights = {n: value for n, value in stored.items() if re.search(rf"[( ]{n}[,)]", text)}
    proto = parse(f'<ir_version: 8, opset_import: ["": 17]> g {text}', **weights)
    x = rng.standard_normal((1, 5, 8) if name.startswith("boxes") else (2, 3, 16))
    for inputs in (None, {"x": x.astype(np.float32)}):
        found = fusions(proto, inputs=inputs)
        assert {row.verdict for row in found.kernels if row.nodes} <= {CONFIRMED, TIED}


def test_casts_that_onnxruntime_inserts_are_no_node_of_the_model():
    """It multiplies float16 in float32; the model's own Cast is of one number, and free."""
    rows = fusions(
        named("""
      g (float16[2,4,8] x, float scalar) => (float16[2,4,4] y) {
        h = Cast <to = 10> (scalar)  r = Sqrt (h)  a = Transpose <perm = [0, 2, 1]> (x)
        p = Mul (x, r)  q = Mul (a, r)  y = MatMul (p, q)
      }""")
    ).kernels
    assert {row.verdict for row in rows if row.nodes} <= {CONFIRMED, TIED}
    assert all(not row.nodes for row in rows if row.kernel.endswith(("_x", "_a", "_y")))
