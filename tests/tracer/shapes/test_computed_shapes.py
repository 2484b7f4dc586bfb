"""Shapes that a graph computes are those of a run, and those of onnxruntime's own inference."""

from itertools import pairwise

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracer.graph import loading
from tracer.graph.model import Model
from tracer.shapes import infer

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'

IDIOMS = {
    "flatten": """
g (float[N,C,H,W] x) => (float[?,?] y) <int64 zero = {0}, int64[1] rest = {-1}, int64[1] axis = {0}>
{ s = Shape (x)  n = Gather <axis = 0> (s, zero)  n1 = Unsqueeze (n, axis)
  to = Concat <axis = 0> (n1, rest)  y = Reshape (x, to) }""",
    "pad": """
g (float[N,C,H,W] x) => (float[?,?,?,?] y)
  <int64[2] ends = {1, 2}, int64[1] four = {4}, int64[1] n = {-1}, int64[2] mat = {-1, 2},
   int64[1] last = {-1}, int64[1] least = {-9223372036854775807}, int64[1] first = {0}>
{ none = ConstantOfShape <value = int64[1] {0}> (four)
  every = Concat <axis = 0> (ends, ends, none)
  rows = Reshape (every, mat)  back = Slice (rows, last, least, first, last)
  swapped = Transpose <perm = [1, 0]> (back)  flat = Reshape (swapped, n)
  pads = Cast <to = 7> (flat)  y = Pad (x, pads) }""",
    "resize": """
g (float[N,C,H,W] x) => (float[?,?,?,?] y)
  <int64[1] two = {2}, int64[1] four = {4}, int64[1] zero = {0}, float factor = {1.7}>
{ s = Shape (x)  kept = Slice (s, zero, two, zero)  image = Slice (s, two, four, zero)
  f = Cast <to = 1> (image)  scaled = Mul (f, factor)  down = Floor (scaled)
  i = Cast <to = 7> (down)  sizes = Concat <axis = 0> (kept, i)
  y = Resize <mode = "nearest"> (x, , , sizes) }""",
    "expand": """
g (float[N,C,H,W] x) => (float[?,?,?,?] y)
  <int64[4] asked = {3, -1, -1, -1}, int64 minus = {-1}, int64[1] four = {4}, int64[1] one = {1},
   int64[1] zero = {0}>
{ ones = ConstantOfShape <value = int64[1] {1}> (four)
  flipped = Mul (ones, minus)  open = Equal (asked, flipped)  to = Where (open, ones, asked)
  row = Slice (x, zero, one, zero)  y = Expand (row, to) }""",
    "range": """
g (float[N,C,H,W] x) => (float[?] y) <int64 axis = {3}, int64 zero = {0}, int64 step = {2}>
{ s = Shape (x)  w = Gather (s, axis)  r = Range (zero, w, step)  y = Cast <to = 1> (r) }""",
    "ones": """
g (float[N,C,H,W] x) => (float[?,?] y) <int64 axis = {2}, int64[1] first = {0}>
{ s = Shape (x)  h = Gather (s, axis)  h1 = Unsqueeze (h, first)
  ones = ConstantOfShape <value = int64[1] {1}> (h1)  at = NonZero (ones)
  y = Cast <to = 1> (at) }""",
    "split": """
g (float[N,C,H,W] x) => (float[?,?,?,?] y) <int64[1] three = {3}, int64[1] four = {4},
  int64[1] zero = {0}, int64[1] one = {1}>
{ s = Shape (x)  w = Slice (s, three, four, zero)  rest = Sub (w, one)
  parts = Concat <axis = 0> (one, rest)  a, b = Split <axis = 3> (x, parts)
  y = Concat <axis = 2> (a, a) }""",
    "tile": """
g (float[N,C,H,W] x) => (float[?,?,?,?] y) <int64[4] two = {2, 2, 2, 2}>
{ s = Shape (x)  half = Div (s, two)  times = Max (half, two)  y = Tile (x, times) }""",
}  # fmt: skip


def computed(text: str, shape: tuple[int, ...]) -> tuple[Model, dict[str, tuple[int, ...] | None]]:
    """Returns a model, and the shapes of the tensors of its main graph for an input `x`."""
    model = loading.from_proto(onnx.parser.parse_model(HEAD + text))
    types = infer(model, {"x": shape})
    names = [name for node in model.nodes if not node.scope.path for name in node.outputs if name]
    kinds = {name: types.of(name, model.nodes[0].scope) for name in names}
    return model, {name: None if kind is None else kind.concrete for name, kind in kinds.items()}


def of_a_run(model: Model, x: np.ndarray) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of all tensors of the main graph in a run of onnxruntime."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    named = {value.name for value in proto.graph.output}
    outputs = [name for node in proto.graph.node for name in node.output if name]
    for name in outputs:
        if name not in named:
            proto.graph.output.add().name = name
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    tensors = session.run(outputs, {"x": x})
    return {name: tensor.shape for name, tensor in zip(outputs, tensors, strict=True)}


@pytest.mark.parametrize("idiom", IDIOMS)
@settings(max_examples=15)
@given(st.tuples(*[st.integers(1, 7)] * 4))
def test_shapes_that_exporters_compute_are_those_of_a_run(idiom, shape):
    model, shapes = computed(IDIOMS[idiom], shape)
    assert shapes == of_a_run(model, np.zeros(shape, np.float32))


@pytest.mark.parametrize("idiom", ["flatten", "pad", "resize", "expand", "split"])
def test_shapes_are_those_of_symbolic_inference(idiom):
    pytest.importorskip("sympy")
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    model, shapes = computed(IDIOMS[idiom], (2, 3, 8, 10))
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    fed = onnx.helper.make_tensor_value_info("x", 1, [2, 3, 8, 10])
    proto.graph.input[0].CopyFrom(fed)
    inferred = SymbolicShapeInference.infer_shapes(proto, auto_merge=True)
    (output,) = inferred.graph.output
    assert shapes["y"] == tuple(dim.dim_value for dim in output.type.tensor_type.shape.dim)


MISTAKEN = {
    "a resized image": ((1, 1, 10, 4), """
g (float[N,C,H,W] x) => (float[?,?] y) <float[4] scales = {1, 1, 0.7, 1}, int64[2] to = {0, -1}>
{ r = Resize <mode = "nearest"> (x, , scales)  s = Shape (r)  o = ConstantOfShape (s)
  a = Add (r, o)  y = Reshape (a, to) }"""),
    "a pooled image": ((1, 1, 2, 2), """
g (float[N,C,H,W] x) => (float[?,?] y)
{ p = MaxPool <kernel_shape = [1, 1], strides = [2, 2], ceil_mode = 1> (x)  s = Shape (p)
  c = Expand (p, s)  j = Concat <axis = -1> (c, c)  y = Flatten (j) }"""),
    "a signal": ((1, 2000, 1), """
g (float[N,T,C] x) => (float[?,?] y) <int64 step = {160}, int64 size = {400}>
{ t = STFT (x, step, , size)  s = Mul (t, t)  y = Flatten (s) }"""),
    "a product of several axes": ((2, 3, 2, 3), """
g (float[N,C,H,W] x) => (float[?,?] y)
{ e = Einsum <equation = "b...j,b...k->bj..."> (x, x)  y = Flatten (e) }"""),
    "a transposed convolution": ((1, 1, 4, 4), """
g (float[N,C,H,W] x) => (float[?,?] y) <float[1,1,2,2] w = {1, 2, 3, 4}>
{ c = ConvTranspose <auto_pad = "SAME_UPPER", strides = [3, 3]> (x, w)  y = Flatten (c) }"""),
    "sizes that the file has wrong": ((2, 3), """
g (float[N,M] x) => (float[9,9] y) <float[3,3] stale> { stale = Neg (x)  y = Abs (stale) }"""),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKEN)
def test_shapes_that_onnx_has_wrong_are_those_of_a_run(case):
    shape, text = MISTAKEN[case]
    model, shapes = computed(text, shape)
    model.proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert shapes == of_a_run(model, np.zeros(shape, np.float32))


def test_onnx_alone_leaves_these_shapes_open():
    """Else the tests above would show nothing."""
    from tracer.graph import shape_inference

    open_ones = []
    for idiom, text in IDIOMS.items():
        model = loading.from_proto(onnx.parser.parse_model(HEAD + text))
        types = shape_inference.infer(model, {"x": (2, 3, 8, 10)})
        kind = types.of("y", model.nodes[0].scope)
        if kind is None or kind.concrete is None:
            open_ones.append(idiom)
    assert set(open_ones) >= {"pad", "resize", "expand", "ones", "split", "tile"}


def test_a_shape_behind_data_stays_open():
    _, shapes = computed(
        """g (float[4,6] x) => (float[?,?] y)
        { z = NonZero (x)  to = Shape (z)  y = ConstantOfShape (to) }""",
        (4, 6),
    )
    assert shapes["z"] is shapes["y"] is None


def test_nothing_large_is_computed():
    text = """g (float[1] x) => (float y) <int64[2] size = {100000, 100000}>
    { big = ConstantOfShape (size)  more = Add (big, x)  y = ReduceSum <keepdims = 0> (more) }"""
    model = loading.from_proto(onnx.parser.parse_model(HEAD + text))
    types = infer(model, {"x": (1,)})
    assert types.of("more", model.nodes[0].scope).concrete == (100_000, 100_000)
    assert types.value("big", model.nodes[0].scope) is None


def test_a_long_chain_of_arithmetic_needs_no_recursion():
    nodes = [onnx.helper.make_node("Shape", ["x"], ["s0"])]
    for before, after in pairwise(f"s{i}" for i in range(5_001)):
        nodes.append(onnx.helper.make_node("Add", [before, "one"], [after]))
    nodes.append(onnx.helper.make_node("ConstantOfShape", ["s5000"], ["y"]))
    one = onnx.helper.make_tensor("one", 7, [1], [1])
    model = loading.from_proto(graph_of(nodes, [2], [one]))
    assert infer(model, {"x": (2,)}).of("y", model.nodes[0].scope).concrete == (5_002,)


@pytest.mark.parametrize("scale", ["1e30", "3.4e38"])
def test_a_size_that_onnx_cannot_write_down_stays_open(scale):
    text = f"""g (float[1,3,8,8] x) => (float[?,?,?,?] y) <float[4] scales = {{1, 1, {scale}, 2}}>
    {{ big = Resize <mode = "nearest"> (x, , scales)  y = Relu (big) }}"""
    assert computed(text, (1, 3, 8, 8))[1]["y"] is None


def test_a_node_that_would_fail_leaves_its_shape_open():
    text = """g (float[2,3] x) => (float[?,?] y)
      <int64 axis = {7}, int64[1] at = {0}, int64[1] n = {-1}>
    { s = Shape (x)  bad = Gather (s, axis)  bad1 = Unsqueeze (bad, at)
      to = Concat <axis = 0> (n, bad1)  y = Reshape (x, to) }"""
    assert computed(text, (2, 3))[1]["y"] is None


@pytest.mark.parametrize("op_type", ["DynamicQuantizeMatMul", "FastGelu"])
def test_operators_of_onnxruntime_have_the_shapes_of_a_run(op_type):
    is_product = op_type == "DynamicQuantizeMatMul"
    stored = {"w": np.ones((4, 5), np.uint8), "scale": np.ones(1, np.float32)} if is_product else {}
    nodes = [onnx.helper.make_node(op_type, ["x", *stored], ["h"], domain="com.microsoft"),
             onnx.helper.make_node("Neg", ["h"], ["y"])]  # fmt: skip
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()]
    model = loading.from_proto(graph_of(nodes, [3, 4], weights))
    types = infer(model, {"x": (3, 4)})
    shapes = {name: types.of(name, model.nodes[0].scope).concrete for name in ("h", "y")}
    assert shapes == of_a_run(model, np.zeros((3, 4), np.float32))


def graph_of(nodes, shape, weights):
    """Returns a model of `nodes` from x, of `shape`, to y."""
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, "g", [value("x", 1, shape)], [value("y", 1, None)], weights
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
