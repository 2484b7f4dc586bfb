"""Open dimensions of inputs: what is open, what sets it, what is chosen, against onnxruntime."""

import ast
import shlex

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import tracer
from tests.examples import examples
from tests.graphs import parse
from tracer.errors import InputError, UsageError
from tracer.graph import loading
from tracer.inputs.feedset import check_feeds
from tracer.inputs.request import make_feeds
from tracer.inputs.sizes import choose, sizes_of

HEAD = '<ir_version: 8, opset_import: ["": 17]> '


def relu(*dims, dtype=TensorProto.FLOAT):
    """A Relu of an input with these dimensions: sizes, symbols, or None without either."""
    x = helper.make_tensor_value_info("x", dtype, [None for _ in dims])
    for dim, value in zip(x.type.tensor_type.shape.dim, dims, strict=True):
        if isinstance(value, int):
            dim.dim_value = value
        elif value is not None:
            dim.dim_param = value
    y = helper.make_tensor_value_info("y", dtype, None)
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def runs(proto, feeds):
    """Whether onnxruntime takes the feeds."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
        session.run(None, dict(feeds))
    except Exception:
        return False
    return True


DIMS = st.sampled_from([-1, 2, 3, "?", "unk__", "unk", "None", "unknown", "N", "batch", None])


@examples(30)
@given(st.lists(DIMS, min_size=2, max_size=4).flatmap(
    lambda dims: st.tuples(st.just(dims), st.tuples(*[st.sampled_from([1, 2, 3]) for _ in dims]))
))  # fmt: skip
def test_feeds_are_accepted_where_onnxruntime_accepts_them(case):
    dims, shape = case
    proto = relu(*dims)
    feeds = {"x": np.ones(shape, np.float32)}
    try:
        check_feeds(loading.from_proto(proto), feeds)
    except InputError:
        assert not runs(proto, feeds)
    else:
        assert runs(proto, feeds)


def test_a_size_of_0_is_open_in_an_input_and_runs():
    trace = tracer.profile(relu(0, 3), runs=2, dims={"x:0": 5})
    assert trace.runs[0].inputs["x"] == "float32[5,3]"
    assert "input 'x' declares size 0 on axis 0, taken as an open size" in trace.notes[0]
    check_feeds(loading.from_proto(relu(0, 3)), {"x": np.ones((0, 3), np.float32)})


def test_a_size_of_0_stays_where_a_matrix_of_weights_has_it():
    proto = parse(HEAD + "g (float[4, 0] x) => (float[4, 8] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros((0, 8), np.float32), "w"))
    feeds = {"x": np.zeros((4, 0), np.float32)}
    assert runs(proto, feeds) and not runs(proto, {"x": np.zeros((4, 16), np.float32)})
    (row,) = tracer.count(proto).nodes.to_dict("records")
    assert row["macs"] == 0
    assert tracer.profile(proto, runs=2).runs[0].inputs["x"] == "float32[4,0]"


def test_the_same_word_for_unknown_twice_is_two_sizes():
    model = loading.from_proto(relu(-1, 3, "?", "?"))
    assert choose(model, None, {"x:2": 48, "x:3": 192}).shapes == {"x": (1, 3, 48, 192)}
    assert choose(model, 2, {}).shapes == {"x": (2, 3, 224, 224)}


def test_a_place_sets_a_symbol_and_contradictions_are_named():
    model = loading.from_proto(relu("N", "C", 8))
    assert choose(model, None, {"x:1": 5}).shapes == {"x": (1, 5, 8)}
    with pytest.raises(UsageError, match="'C' is set to both 5 and 6"):
        choose(model, None, {"x:1": 5, "C": 6})
    for wrong in ("x:2", "x:3", "x:one", "z:0", "D"):
        with pytest.raises(InputError, match=rf"no open dimension '{wrong}'.*N \(x:0\), C \(x:1\)"):
            choose(model, None, {wrong: 5})


def test_an_input_without_a_shape_is_sized_by_its_axes_or_its_weight():
    proto = relu(1)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    model = loading.from_proto(proto)
    assert choose(model, None, {"x:0": 2, "x:1": 7}).shapes == {"x": (2, 7)}
    with pytest.raises(InputError, match=r"'x' .* declares no shape.*--dim x:0=1 --dim x:1=16"):
        choose(model, None, {})
    feeds = {"x": np.ones((2, 3, 4), np.float32)}
    check_feeds(model, feeds)
    convolved = net("float[N,1] x", "y = Conv (x, w)", w=(4, 6, 3, 3))
    convolved.graph.input[0].type.tensor_type.ClearField("shape")
    assert choose(loading.from_proto(convolved), None, {}).shapes == {"x": (1, 6, 224, 224)}


def net(inputs, body, **weights):
    """A graph with an output `y` of any shape, and weights of these shapes."""
    arrays = {
        name: shape if isinstance(shape, np.ndarray) else np.ones(shape, np.float32)
        for name, shape in weights.items()
    }
    proto = parse(f"{HEAD} g ({inputs}) => (float y) {{ {body} }}", **arrays)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    return proto


FLATTENED = "c = Conv <strides = [2, 2]> (x, w)  f = Flatten (c)  y = Gemm (f, k)"
SHAPES = {
    # what the graph tells: inputs, nodes, weights, and the sizes that are to be chosen
    "image": ("float[N,3,A,B] x", "y = Conv (x, w)", {"w": (4, 3, 3, 3)}, (1, 3, 224, 224)),
    "channels": ("float[N,C,A,B] x", "y = Conv <group = 2> (x, w)", {"w": (4, 3, 3, 3)},
                 (1, 6, 224, 224)),
    "channels last": ("float[N,A,B,3] x", "y = Transpose <perm = [0, 3, 1, 2]> (x)", {},
                      (1, 224, 224, 3)),
    "larger": ("float[N,3,A,B] x", FLATTENED, {"w": (4, 3, 2, 2), "k": (4 * 144 * 144, 2)},
               (1, 3, 288, 288)),
    "smaller": ("float[N,1,A,B] x", FLATTENED, {"w": (4, 1, 2, 2), "k": (4 * 14 * 14, 2)},
                (1, 1, 28, 28)),
    "one side": ("float[N,1,A,B] x", "c = Conv (x, w)  y = Squeeze (c, two)",
                 {"w": (4, 1, 32, 3), "two": np.array([2])}, (1, 1, 32, 224)),
    "features": ("float[N,F] x", "y = Gemm <transB = 1> (x, w)", {"w": (4, 99)}, (1, 99)),
    "sound": ("float[N,T] x", "u = Unsqueeze (x, one)  y = Conv (u, w)",
              {"w": (4, 1, 400), "one": np.array([1])}, (1, 16000)),
    "frames": ("float[N,80,T] x", "y = Conv (x, w)", {"w": (4, 80, 3)}, (1, 80, 128)),
    "tokens": ("int64[N,T] x", "y = Gather (w, x)", {"w": (999, 4)}, (1, 128)),
    "positions": ("int64[N,T] x", "e = Gather (w, x)  y = Add (e, p)",
                  {"w": (999, 4), "p": (77, 4)}, (1, 77)),
}  # fmt: skip


@pytest.mark.parametrize(("inputs", "body", "weights", "shape"), SHAPES.values(), ids=SHAPES)
def test_sizes_suit_the_graph_and_run(inputs, body, weights, shape):
    proto = net(inputs, body, **weights)
    model = loading.from_proto(proto)
    feedset = make_feeds(model)
    assert feedset.feeds["x"].shape == shape
    assert runs(proto, feedset.feeds)


def test_a_recurrent_state_has_the_batch_and_its_weights_sizes():
    body = "y, h, c = LSTM <hidden_size = 5> (x, w, r, , , s, s)"
    proto = net("float[T,B,F] x, float[1,?,H] s", body, w=(1, 20, 7), r=(1, 20, 5))
    model = loading.from_proto(proto)
    assert choose(model, 3, {}).shapes["s"] == (1, 3, 5)


STEPS_FIRST = [
    # a layer, its weights, and the open input: its axis 0 counts steps
    ("y, h = LSTM <hidden_size = 5> (x, w, r)", {"w": (1, 20, 7), "r": (1, 20, 5)}, "T,3,7"),
    ("y, h = GRU <hidden_size = 5> (x, w, r)", {"w": (1, 15, 7), "r": (1, 15, 5)}, "T,3,7"),
    ("y, h = GRU <hidden_size = 5> (x, w, r)", {"w": (1, 15, 7), "r": (1, 15, 5)}, "?,3,7"),
    ("y = Scan <num_scan_inputs = 1, body = b (float[3,7] e) => (float[3,7] f) { f = Tanh (e) }>"
     "(x)", {}, "T,3,7"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "weights", "dims"), STEPS_FIRST)
def test_steps_of_a_recurrent_layer_are_no_batch(body, weights, dims):
    proto = net(f"float[{dims}] x", body, **weights)
    feedset = make_feeds(loading.from_proto(proto))
    assert feedset.batch == 3
    assert feedset.feeds["x"].shape == (128, 3, 7)
    assert runs(proto, feedset.feeds)
    with pytest.raises(InputError, match="the batch is 3, not 4"):
        choose(loading.from_proto(proto), 4, {})


def test_the_batch_of_a_recurrent_layer_is_behind_its_steps():
    proto = net("float[T,S,7] x", *STEPS_FIRST[0][:1], **STEPS_FIRST[0][1])
    assert choose(loading.from_proto(proto), 4, {}).shapes["x"] == (128, 4, 7)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_random_lengths_let_a_recurrent_layer_take_all_the_steps_that_are_counted(kind):
    """onnxruntime leaves zeros behind the length of a sequence."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    proto = net(
        "float[6,2,7] x, int64[2] n",
        f"m = Cast <to = 6> (n)  y, h = {kind} <hidden_size = 5> (x, w, r, , m)",
        w=(1, gates * 5, 7), r=(1, gates * 5, 5),
    )  # fmt: skip
    feeds = make_feeds(loading.from_proto(proto)).feeds
    (y,) = ort.InferenceSession(proto.SerializeToString()).run(["y"], dict(feeds))
    assert np.count_nonzero(y) == y.size


def test_random_boxes_are_of_images_that_there_are():
    body = "y = RoiAlign <output_height = 2, output_width = 2> (x, boxes, images)"
    proto = net("float[1,3,8,8] x, float[5,4] boxes, int64[5] images", body)
    assert runs(proto, make_feeds(loading.from_proto(proto)).feeds)


BATCHES = [
    # inputs, and the shapes of a batch of 4: of programs that torch exports, each has own symbols
    ("int64[s10,s12] ids, int64[s86,s12] mask", {"ids": (4, 128), "mask": (4, 128)}),
    ("int64[s10,s11] ids, float[s86,3,32,32] pixels", {"ids": (4, 128), "pixels": (4, 3, 32, 32)}),
    ("float[unk__6,5] a, float[unk__7,3] b", {"a": (4, 5), "b": (4, 3)}),
    ("int64[a_dynamic_axes_1,2] a, float[b_dynamic_axes_1,3] b", {"a": (4, 2), "b": (4, 3)}),
    ("int64[batch,2] a, float[decoder_batch,3] b", {"a": (4, 2), "b": (4, 3)}),
    # no batches: the tokens of another input, a size alone, and names
    ("int64[s10,s11] ids, float[s11,s11] mask", {"ids": (4, 128), "mask": (128, 128)}),
    ("float[s10,3] a, float[s11] b", {"a": (4, 3), "b": (16,)}),
    ("float[N,3] a, float[M,3] b", {"a": (4, 3), "b": (16, 3)}),
]


@pytest.mark.parametrize(("inputs", "expected"), BATCHES)
def test_inputs_with_symbols_of_their_own_have_one_batch(inputs, expected):
    body = "".join(f"o{i} = Identity ({name})  " for i, name in enumerate(expected))
    model = loading.from_proto(net(inputs, f"{body} y = Cast <to = 1> (o0)"))
    assert choose(model, 4, {}).shapes == expected
    assert choose(model, None, {}).shapes == {
        name: (1, *shape[1:]) if shape[0] == 4 else shape for name, shape in expected.items()
    }


def test_a_mask_of_all_tokens_is_as_long_as_the_past_and_the_new_ones():
    inputs = "int64[s1,s2] input_ids, int64[s3,s4] attention_mask, float[s1,2,s5,4] past"
    body = "y = Cast <to = 1> (input_ids)  a = Identity (attention_mask)  b = Identity (past)"
    model = loading.from_proto(net(inputs, body))
    shapes = {"input_ids": (1, 128), "attention_mask": (1, 256), "past": (1, 2, 128, 4)}
    assert choose(model, None, {}).shapes == shapes
    sized = choose(model, 2, {"s2": 1, "s5": 9}).shapes
    assert sized == {"input_ids": (2, 1), "attention_mask": (2, 10), "past": (2, 2, 9, 4)}


@pytest.mark.parametrize("batch", [1, 2])
def test_a_size_that_broadcasting_left_open_is_compared_in_every_batch(batch):
    """onnx takes the open size of a Slice for one that fits, where the batch is not 1."""
    body = """
      n = Shape <start = 1, end = 2> (ids)  k = Identity (n)
      zero = Constant <value_ints = [0]> ()  one = Constant <value_ints = [1]> ()
      places = Slice (numbers, zero, k, one)  p = Gather (w, places)
      e = Gather (w, ids)  y = Add (e, p)
    """
    weights = {"w": (16, 8)}
    proto = net("int64[N,tokens] ids", body, **weights)
    numbers = np.arange(16).reshape(1, 16)
    proto.graph.initializer.append(numpy_helper.from_array(numbers, "numbers"))
    model = loading.from_proto(proto)
    assert choose(model, batch, {}).shapes == {"ids": (batch, 16)}
    assert runs(proto, make_feeds(model, batch=batch).feeds)


@pytest.mark.parametrize("names", [("past_k", "past_v"), ("layers.0.key", "layers.0.value")])
def test_the_open_size_of_a_cache_is_a_number_of_tokens(names):
    """Of past keys and values [batch, heads, tokens, size], under any symbol."""
    first, second = names
    inputs = "float[N,4,s57,16] k, float[N,4,s14,16] v"
    proto = net(inputs, "y = MatMul (k, t)  z = Identity (v)", t=(16, 2))
    for value, name in zip(proto.graph.input, names, strict=True):
        value.name = name
    proto.graph.node[0].input[0], proto.graph.node[1].input[0] = first, second
    chosen = choose(loading.from_proto(proto), None, {})
    assert chosen.shapes == {first: (1, 4, 128, 16), second: (1, 4, 128, 16)}
    assert "(image)" not in chosen.notes[0]


@pytest.mark.parametrize("axis", [2, -2])
def test_what_new_tokens_are_joined_to_is_a_cache_under_any_name(axis):
    inputs, weights = "int64[1,T] ids, float[1,2,P,4] pk", {"w": np.ones((9, 8), np.float32)}
    body = f"""e = Gather (w, ids)  s = Constant <value_ints = [0, -1, 2, 4]> ()
        h = Reshape (e, s)  k = Transpose <perm = [0, 2, 1, 3]> (h)
        y = Concat <axis = {axis}> (pk, k)"""
    proto = net(inputs, body, **weights)
    shapes = choose(loading.from_proto(proto), None, {}).shapes
    assert shapes == {"ids": (1, 128), "pk": (1, 2, 128, 4)}
    assert runs(
        proto, {n: np.zeros(of, [np.float32, np.int64][n == "ids"]) for n, of in shapes.items()}
    )
    image = net("float[1,3,H2,4] picture", "y = Concat <axis = 1> (picture, picture)")
    assert choose(loading.from_proto(image), None, {}).shapes == {"picture": (1, 3, 224, 4)}


def test_an_image_of_two_open_sizes_is_no_cache():
    proto = net("float[N,3,A,B] x", "y = Identity (x)")
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "pixel_values"
    assert choose(loading.from_proto(proto), None, {}).shapes["pixel_values"] == (1, 3, 224, 224)


def test_a_dimension_called_a_sum_has_the_size_of_its_terms():
    inputs = "int64[batch,sequence] ids, float[batch,2,past,4] cache, int64[batch,M] mask"
    proto = net(inputs, "y = Gather (w, ids)", w=(9, 4))
    proto.graph.input[2].type.tensor_type.shape.dim[1].dim_param = "past + sequence"
    shapes = choose(loading.from_proto(proto), None, {}).shapes
    assert shapes == {"ids": (1, 128), "cache": (1, 2, 0, 4), "mask": (1, 128)}


@pytest.mark.parametrize(
    ("inputs", "body", "shapes"),
    [
        ("float[N,8] x", "y = Add (x, w)", {"x": (3, 8)}),
        ("float[N,K] x", "y = MatMul (x, w)", {"x": (3, 5)}),
        ("float[N,8] x, float[M,8] z", "y = Concat <axis = 1> (x, z)", {"x": (3, 8), "z": (2, 8)}),
    ],
)
def test_no_work_is_counted_at_sizes_that_no_runtime_takes(inputs, body, shapes):
    weight = np.ones((4, 8) if "Add" in body else (8, 8), np.float32)
    stored = {"w": weight} if "w)" in body else {}
    proto = parse(f"{HEAD} g ({inputs}) => (float[A,B] y) {{ {body} }}", **stored)
    assert not runs(proto, {name: np.ones(shape, np.float32) for name, shape in shapes.items()})
    sizes = sizes_of(loading.from_proto(proto), shapes)
    with pytest.raises(InputError, match=body.split()[2]) as raised:
        tracer.count(proto, dims=sizes, in_process=True)
    assert f"x[{','.join(map(str, shapes['x']))}]" in raised.value.what


ONES = {
    "square": (4, 3, 3, 3), "back": (3, 4, 3, 3), "matrix": (4, 3), "row": (4,), "w": (1, 6, 3),
    "r": (1, 6, 2), "state": (1, 1, 2),
}  # fmt: skip
"""Weights of the nodes below."""


@pytest.mark.parametrize(
    ("shape", "body", "fits"),
    [
        ((1, 5, 8, 8), "y = Conv (x, square)", (1, 3, 8, 8)),
        ((1, 5, 8, 8), "y = ConvTranspose (x, back)", (1, 3, 8, 8)),
        ((1, 5, 4, 4), 'y = com.microsoft.FusedConv <activation="Relu"> (x, square)', (1, 3, 4, 4)),
        ((1, 5), 'y = Einsum <equation = "ij,jk->ik"> (x, matrix)', (1, 4)),
        ((2, 5), "y = com.microsoft.FusedMatMul <transB = 1> (x, matrix)", (2, 3)),
        ((2, 5), "y = LayerNormalization (x, row)", (2, 4)),
        ((2, 5), "y = SimplifiedLayerNormalization (x, row)", (2, 4)),
        ((4, 1, 5), "y, h = GRU <hidden_size = 2> (x, w, r)", (4, 1, 3)),
        ((4, 2, 3), "y, h = GRU <hidden_size = 2> (x, w, r, , , state)", (4, 1, 3)),
    ],
)  # fmt: skip
def test_no_work_is_counted_of_operands_that_onnx_takes_and_no_runtime(shape, body, fits):
    """A Conv of 5 channels by weights for 3 counted 3,888 MACs."""
    weights = {name: np.ones(of, np.float32) for name, of in ONES.items() if name in body}
    axes = ",".join("ABCD"[: len(shape)])
    head = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> '
    proto = parse(f"{head} g (float[{axes}] x) => (float[] y) {{ {body} }}", **weights)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert runs(proto, {"x": np.ones(fits, np.float32)})
    assert tracer.count(proto, dims=dict(zip("ABCD", fits, strict=False)), in_process=True)
    assert not runs(proto, {"x": np.ones(shape, np.float32)})
    with pytest.raises(InputError, match=r"do not fit the operator or its attributes") as raised:
        tracer.count(proto, dims=dict(zip("ABCD", shape, strict=False)), in_process=True)
    assert f"x[{','.join(map(str, shape))}]" in raised.value.what
    assert proto.graph.node[0].op_type in raised.value.what


def test_commands_choose_alike_and_say_it_first():
    inputs, body, weights, _ = SHAPES["smaller"]
    proto = net(inputs, body, **weights)
    results = [
        tracer.count(proto, in_process=True),
        tracer.profile(proto, runs=2, in_process=True),
        tracer.interpret(proto, in_process=True),
        tracer.fusions(proto, in_process=True),
    ]
    said = "sizes chosen: x[1,1,28,28] (image); change them with dims={'A': 28, 'B': 28}"
    assert [result.notes[0] for result in results] == [said] * len(results)


def test_a_size_can_be_pasted_into_a_shell_or_into_python_whatever_its_name():
    proto = relu(1, 1, "my h", "w;rm")
    note = choose(loading.from_proto(proto), None, {}).notes[0]
    words = shlex.split(note[note.index("--dim") :], comments=False)
    assert words == ["--dim", "my h=224", "--dim", "w;rm=224"]
    (note,) = tracer.count(proto, in_process=True).notes
    assert ast.literal_eval(note.partition("dims=")[2]) == {"my h": 224, "w;rm": 224}


COMPUTED = """
  c = Conv <strides = [2, 2]> (x, w)
  n = Shape <start = 0, end = 1> (c)  h = Shape <start = 2, end = 3> (c)
  k = Constant <value_ints = [1568]> ()  width = Div (k, h)
  shape = Concat <axis = 0> (n, width, h)  r = Reshape (c, shape)  y = Add (r, eights)
"""


def test_shapes_that_the_graph_computes_are_looked_at_as_well():
    proto = net("float[N,1,A,B] x", COMPUTED, w=(2, 1, 2, 2), eights=(1, 56, 28))
    model = loading.from_proto(proto)
    (shape,) = choose(model, None, {}).shapes.values()
    assert shape == (1, 1, 56, 56)
    assert runs(proto, make_feeds(model).feeds)
    assert not runs(proto, make_feeds(model, dims={"A": 224, "B": 224}).feeds)


def test_a_branch_that_never_runs_does_not_decide():
    text = """
      on = Constant <value = bool {1}> ()
      y = If (on) <
        then_branch = t () => (float[1,1,P,Q] a) { a = Neg (x) },
        else_branch = e () => (float[8] b) {
          s = Constant <value_ints = [8]> ()
          b = Reshape (x, s)
        }
      >
    """
    model = loading.from_proto(net("float[N,1,A,B] x", text))
    assert choose(model, None, {}).shapes == {"x": (1, 1, 224, 224)}


def test_what_cannot_be_chosen_is_asked_for_in_one_message():
    body = "s = Constant <value_ints = [7777]> ()  y = Reshape (x, s)"
    proto = net("float[N,A] x, float[N,B] z", body)
    with pytest.raises(InputError, match=r"A=16, B=16; set them: dims={'A': SIZE, 'B': SIZE}$"):
        tracer.profile(proto, runs=2, in_process=True)


POSITIONS = (
    HEAD
    + """
positions (int64[batch,sequence] ids) => (float[batch,sequence,8] y) {
  shape = Shape <start = 1, end = 2> (ids)
  length = Squeeze (shape)
  places = Range (zero, length, one)
  known = Gather (table, places)
  e = Gather (tokens, ids)
  y = Add (e, known)
}
"""
)
"""A table of 32 positions, which no shape tells."""


def test_sizes_are_tried_in_one_session(monkeypatch):
    proto = parse(
        POSITIONS, zero=np.array(0), one=np.array(1), table=np.zeros((32, 8), np.float32),
        tokens=np.zeros((9, 8), np.float32),
    )  # fmt: skip
    opened, tried = list[None](), list[int]()
    session = ort.InferenceSession

    def opening(*arguments, **options):
        opened.append(None)
        return session(*arguments, **options)

    def report(done, total, task):
        tried.extend([done] if task == "trying sizes" else [])

    monkeypatch.setattr(ort, "InferenceSession", opening)
    tracer.fusions(proto, progress=report, in_process=True)
    counts = [len(opened)]
    tracer.fusions(proto, dims={"sequence": 32}, in_process=True)
    counts.append(len(opened) - counts[0])
    # one for the first sizes, one for all others
    assert (tried[:3], counts[0] - counts[1]) == ([1, 2, 3], 2)
    assert tracer.profile(proto, runs=2, in_process=True).runs[0].inputs["ids"] == "int64[1,32]"


SHORT_TABLE = f"""{HEAD} g (int64[1,T] ids, float[1,P,4] cache) => (float[1,A,4] y) {{
  n = Shape <start = 1, end = 2> (ids)  p = Shape <start = 1, end = 2> (cache)
  s = Add (n, p)  first = Squeeze (p)  last = Squeeze (s)  places = Range (first, last, one)
  e = Gather (tokens, ids)  w = Gather (table, places)  x = Add (e, w)
  y = Concat <axis = 1> (cache, x)
}}"""
"""A text and its past share a table of 128 positions; onnxruntime names the first one beyond it."""


def test_sizes_become_smaller_while_a_table_is_too_short():
    table = np.ones((128, 4), np.float32)
    proto = parse(SHORT_TABLE, one=np.array(1), tokens=table, table=table)
    names = {"ids": (1, 128), "cache": (1, 128, 4)}
    drawn = {"ids": np.zeros(names["ids"], np.int64), "cache": np.zeros(names["cache"], np.float32)}
    assert not runs(proto, drawn)
    assert not tracer.count(proto, run=True, in_process=True).nodes["macs"].isna().any()
    (same,) = tracer.compare_bits([proto, proto], in_process=True).sides
    assert all(output.equal == output.size > 0 for output in same.outputs)
