"""Limits hold before anything is allocated, and say which of them was hit."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.interpreter.models import parsed, single
from tracer.errors import LimitError
from tracer.interpreter.interpreter import Interpreter
from tracer.limits import Limits

HUGE = 1 << 20
FLOAT = np.zeros(1, np.float32)


def shape(*sizes):
    return np.array(sizes, np.int64)


BOMBS = {
    "ConstantOfShape": ({"s": shape(HUGE, HUGE)}, {}),
    "Expand": ({"x": FLOAT, "s": shape(HUGE, HUGE)}, {}),
    "Tile": ({"x": FLOAT, "s": shape(HUGE * HUGE)}, {}),
    "Pad": ({"x": FLOAT, "p": shape(0, HUGE * HUGE)}, {}),
    "Range": ({"a": shape(0)[0], "b": shape(HUGE * HUGE)[0], "c": shape(1)[0]}, {}),
    "OneHot": ({"i": shape(*range(1000)), "d": shape(HUGE * HUGE), "v": np.zeros(2)}, {}),
    "Resize": ({"x": np.zeros((1, 1, 2, 2), np.float32), "roi": None, "sc": None,
                "sz": shape(1, 1, HUGE, HUGE)}, {}),
    "Add": ({"a": np.zeros((HUGE, 1), np.float32), "b": np.zeros((1, HUGE), np.float32)}, {}),
    "MatMul": ({"a": np.zeros((HUGE, 1), np.float32), "b": np.zeros((1, HUGE), np.float32)}, {}),
    "Conv": ({"x": np.zeros((1, 1, 4, 4), np.float32), "w": np.zeros((1, 1, 1, 1), np.float32)},
             {"pads": [HUGE] * 4}),
    "MaxPool": ({"x": np.zeros((1, 1, 4, 4), np.float32)},
                {"kernel_shape": [1, 1], "pads": [0, 0, HUGE, HUGE]}),
    "ConvTranspose": ({"x": np.zeros((1, 1, 2, 2), np.float32),
                       "w": np.zeros((1, 1, 1, 1), np.float32)}, {"strides": [HUGE, HUGE]}),
    "Gather": ({"x": np.zeros((1, HUGE)), "i": np.zeros(HUGE, np.int64)}, {}),
    "Einsum": ({"a": np.zeros(HUGE, np.float32), "b": np.zeros(HUGE, np.float32)},
               {"equation": "i,j->ij"}),
}  # fmt: skip


@pytest.mark.parametrize("op_type", BOMBS)
def test_terabytes_are_refused_before_they_are_asked_for(op_type):
    inputs, attributes = BOMBS[op_type]
    names = [name if value is not None else "" for name, value in inputs.items()]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    feeds = {name: np.asarray(value) for name, value in inputs.items() if value is not None}
    graph = helper.make_graph(
        [node],
        "bomb",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in feeds.items()
        ],
        [onnx.ValueInfoProto(name="y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    model = _typed(model)
    with pytest.raises(LimitError, match=r"a tensor of .*[TP]iB.*exceeds.* [MG]iB a tensor") as hit:
        Interpreter(model).run(None, feeds)
    assert f"({op_type}, opset 18)" in str(hit.value)
    assert hit.value.exit_code == 4


def _typed(model):
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None]))
    if model.graph.node[0].op_type in ("Range",):
        model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    if model.graph.node[0].op_type in ("OneHot", "Gather"):
        model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.graph.output[0].type.tensor_type.shape.dim.add()
    return model


ENDLESS = """
<ir_version: 9, opset_import: ["" : 18]>
main (bool go, float[2] x) => (float[2] y) {
  y = Loop (, go, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
    d = Identity (c)
    t = Add (s, s)
  }>
}
"""
GO = {"go": np.array(True), "x": np.ones(2, np.float32)}


def test_an_endless_loop_ends():
    with pytest.raises(LimitError, match=r"101 trips of a loop exceeds the limit of 100"):
        Interpreter(parsed(ENDLESS), limits=Limits(loop_trips=100)).run(None, GO)


def test_the_time_is_limited():
    with pytest.raises(LimitError, match=r"exceeds the limit of 0\.05 s"):
        Interpreter(parsed(ENDLESS), limits=Limits(seconds=0.05)).run(None, GO)


def test_a_loop_that_doubles_its_state_meets_the_limit_of_live_bytes():
    text = ENDLESS.replace("t = Add (s, s)", "t = Concat <axis = 0> (s, s)").replace("[2]", "[N]")
    with pytest.raises(LimitError, match=r"live values of .*exceeds the limit of 1\.0 MiB"):
        Interpreter(parsed(text), limits=Limits(live_bytes=1 << 20)).run(None, GO)


def test_what_a_loop_carries_grows_to_a_quarter_of_a_tensor():
    text = ENDLESS.replace("t = Add (s, s)", "t = Concat <axis = 0> (s, s)").replace("[2]", "[N]")
    limits = Limits(tensor_bytes=1 << 20)
    with pytest.raises(LimitError, match=r"512\.0 KiB .*exceeds the limit of 256\.0 KiB.*quarter"):
        Interpreter(parsed(text), limits=limits).run(None, GO)
    large = {**GO, "x": np.ones(1 << 17, np.float32)}  # as large as it was is no growth
    with pytest.raises(LimitError, match="10 trips"):
        same = replace(limits, loop_trips=9)
        Interpreter(parsed(ENDLESS.replace("[2]", "[N]")), limits=same).run(None, large)


def test_what_a_loop_gathers_counts_as_live():
    text = """
    <ir_version: 9, opset_import: ["" : 18]>
    main (bool go, float[1000] x) => (float[N, 1000] y) {
      y = Loop (, go) <body = b (int64 i, bool c) => (bool d, float[1000] t) {
        d = Identity (c)
        t = Neg (x)
      }>
    }
    """
    feeds = {"go": np.array(True), "x": np.ones(1000, np.float32)}
    with pytest.raises(LimitError, match="live values"):
        Interpreter(parsed(text), limits=Limits(live_bytes=1 << 20)).run(None, feeds)


def test_nesting_is_limited():
    inner = "q = Identity (x)"
    for _ in range(4):
        inner = (
            f"q = If (c) <then_branch = t () => (float[1] q) {{ {inner} }}, "
            "else_branch = e () => (float[1] r) { r = Neg (x) }>"
        )
    text = (
        '<ir_version: 9, opset_import: ["" : 18]> '
        f"main (float[1] x, bool c) => (float[1] q) {{ {inner} }}"
    )
    feeds = {"x": np.ones(1, np.float32), "c": np.array(True)}
    model = parsed(text)
    assert Interpreter(model, limits=Limits(depth=5)).run(None, feeds)[0] == 1
    with pytest.raises(LimitError, match="nesting 4 deep exceeds the limit of 3"):
        Interpreter(model, limits=Limits(depth=3)).run(None, feeds)


def test_a_scan_beyond_the_trips_is_refused_before_it_begins():
    text = """
    <ir_version: 9, opset_import: ["" : 18]>
    main (float[N] x) => (float[N] y) {
      y = Scan <num_scan_inputs = 1, body = b (float a) => (float o) { o = Neg (a) }> (x)
    }
    """
    x = np.arange(50, dtype=np.float32)
    np.testing.assert_array_equal(Interpreter(parsed(text)).run(None, {"x": x})[0], -x)
    with pytest.raises(LimitError, match="50 trips"):
        Interpreter(parsed(text), limits=Limits(loop_trips=49)).run(None, {"x": x})


def test_a_limit_within_reach_is_not_hit():
    x = np.ones(1000, np.float32)
    model = single("Neg", {"x": x})
    assert Interpreter(model, limits=Limits(tensor_bytes=4000)).run(None, {"x": x})[0].sum() < 0
    with pytest.raises(LimitError, match=r"3\.9 KiB, float32\[1000\]"):
        Interpreter(model, limits=Limits(tensor_bytes=3999)).run(None, {"x": x})


def test_a_loop_ends_after_ten_minutes_unless_a_time_is_set(monkeypatch):
    monkeypatch.setattr("tracer.limits._PATIENCE", 0.05)
    with pytest.raises(LimitError, match=r"a loop exceeds the limit of .* minutes.*--max-seconds"):
        Interpreter(parsed(ENDLESS)).run(None, GO)
    with pytest.raises(LimitError, match="301 trips"):
        Interpreter(parsed(ENDLESS), limits=Limits(seconds=60, loop_trips=300)).run(None, GO)


def test_live_values_leave_room_for_no_more_than_the_limit():
    text = """
    <ir_version: 9, opset_import: ["" : 18]>
    main (float[1000] x) => (float[N] y) { t = Neg (x) y = Concat <axis = 0> (t, x) }
    """
    x = np.ones(1000, np.float32)
    model = parsed(text)
    assert len(Interpreter(model, limits=Limits(live_bytes=16000)).run(None, {"x": x})[0]) == 2000
    with pytest.raises(LimitError, match=r"Concat.*live values of 15.6 KiB.*--max-live"):
        Interpreter(model, limits=Limits(live_bytes=15999)).run(None, {"x": x})


def test_texts_count_with_their_characters():
    text = """
    <ir_version: 9, opset_import: ["" : 20]>
    main (string[1] x) => (string[1] y) {
      n = Constant <value_int = 60> ()
      y = Loop (n, , x) <body = b (int64 i, bool c, string[1] s) => (bool d, string[1] t) {
        d = Identity (c)
        t = StringConcat (s, s)
      }>
    }
    """
    feeds = {"x": np.array(["ab"], object)}
    with pytest.raises(LimitError, match=r"live values of .*1.0 MiB"):
        Interpreter(parsed(text), limits=Limits(live_bytes=1 << 20)).run(None, feeds)
