"""`tracer.count` with the shapes, branches and trip counts of a run."""

import numpy as np
import onnxruntime
import pytest

import tracer
from tests.graphs import parse
from tracer.errors import InputError

DETECTOR = """
<ir_version: 8, opset_import: ["": 17]>
detector (float[N,8] x) => (float[?,3] y) <int64[1] minus = {-1}>
{ [detect] at = NonZero (x)
  pairs = Transpose <perm = [1, 0]> (at)  found = Cast <to = 1> (pairs)
  [first] a = MatMul (found, w)  [second] y = Relu (a) }
"""

BRANCHES = """
<ir_version: 8, opset_import: ["": 16]>
branches (float[4] x, bool flag, int64 trips) => (float[4] z) {
  [choice] y = If (flag) <
    then_branch = yes () => (float[4] a) { [up] a = Mul (x, w) },
    else_branch = no () => (float[4] b) { [down] b = Add (x, v) }
  >
  [loop] z = Loop (trips, , y) <
    body = step (int64 i, bool go, float[4] s) => (bool on, float[4] n) {
      on = Identity (go)
      [each] n = Tanh (s)
    }
  >
}
"""


@pytest.fixture
def detector():
    return parse(DETECTOR, w=np.ones((2, 3), np.float32))


def test_nodes_behind_data_are_one_note_and_a_run_counts_them(detector, tmp_path):
    alone = tracer.count(detector)
    (cause,) = [note for note in alone.notes if note.startswith("work unknown")]
    assert cause.endswith("behind 'detect' (NonZero), whose shape depends on data")
    assert alone.notes[-1].startswith("count with the shapes of a run: inputs=FILE")
    x = np.zeros((2, 8), np.float32)
    x[0, 1] = x[1, 2:5] = 1
    np.savez(tmp_path / "x.npz", x=x)
    nodes = tracer.count(detector, inputs=tmp_path / "x.npz").nodes.set_index("node")
    assert nodes.loc["first", "macs"] == np.count_nonzero(x) * 2 * 3
    assert nodes.loc["first", "output_shapes"] == "float32[4,3]"
    assert nodes["macs"].notna().all()


def test_a_run_on_random_values_counts_as_well(detector):
    trace = tracer.count(detector, batch=3, run=True)
    first = trace.nodes.set_index("node").loc["first"]
    assert first["macs"] == 3 * 8 * 2 * 3  # random floats are hardly ever 0
    assert "inputs are random, floats from 0 to 1, seed 0" in trace.notes
    assert not [note for note in trace.notes if "unknown" in note]


@pytest.mark.parametrize(
    ("flag", "ran", "idle"),
    [(True, "then_branch/up", "else_branch/down"), (False, "else_branch/down", "then_branch/up")],
)
def test_a_branch_that_is_not_taken_has_no_calls_and_no_work(tmp_path, flag, ran, idle):
    weights = {name: np.full(4, 2, np.float32) for name in ("w", "v")}
    proto = parse(BRANCHES, **weights)
    np.savez(tmp_path / "x.npz", x=np.ones(4, np.float32), flag=flag, trips=np.array(5))
    counted = tracer.count(proto, inputs=tmp_path / "x.npz")
    profiled = tracer.profile(proto, inputs=tmp_path / "x.npz", runs=2)
    for trace in (counted, profiled):
        nodes = trace.nodes.set_index("node")
        assert nodes.loc[[f"choice.{ran}", f"choice.{idle}"], "calls"].to_list() == [1, 0]
        assert nodes.loc[[f"choice.{ran}", f"choice.{idle}"], "flops"].to_list() == [4, 0]
        assert nodes.loc[f"choice.{idle}", ["bytes_read", "peak_bytes"]].to_list() == [0, 0]
        assert nodes.loc["loop.body/each", "flops"] == 5 * 4
        assert trace.model.params == 8
        (note,) = [note for note in trace.notes if "parameters" in note]
        assert note.startswith("parameters are those of the whole model; 4 are of branches")


def test_inputs_and_sizes_contradict_each_other(detector, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((2, 7), np.float32))
    with pytest.raises(InputError, match="dimension 1 is fixed at 8, not 7"):
        tracer.count(detector, inputs=tmp_path / "x.npz")


DILATED = """
<ir_version: 8, opset_import: ["": 13]>
dilated (float[1,1,H,W] x) => (float[?,?] y)
{ [pool] p = MaxPool <kernel_shape = [2, 2], dilations = [3, 3], auto_pad = "SAME_UPPER"> (x)
  [flat] f = Flatten <axis = 3> (p)  [product] y = MatMul (f, w) }
"""


def test_shapes_of_a_run_count_where_inference_has_others():
    # onnxruntime pads for windows without gaps, so its output is smaller than ONNX says
    proto = parse(DILATED, w=np.ones((30, 5), np.float32))
    (out,) = onnxruntime.InferenceSession(
        parse(
            DILATED.split("[flat]")[0].replace("(float[?,?] y)", "(float[?,?,?,?] p)") + "}"
        ).SerializeToString()
    ).run(None, {"x": np.zeros((1, 1, 32, 32), np.float32)})
    assert out.shape[3] == 30
    told = (
        "'pool' (MaxPool): the run has float32[1,1,30,30], where inference has float32[1,1,32,32]"
    )
    sizes = {"H": 32, "W": 32}
    for trace in (
        tracer.count(proto, dims=sizes, run=True), tracer.profile(proto, dims=sizes, runs=2)
    ):  # fmt: skip
        nodes = trace.nodes.set_index("node")
        assert nodes.loc["pool", "output_shapes"] == "float32[1,1,30,30]"
        assert nodes.loc["product", "macs"] == out.size * 5
        (note,) = [note for note in trace.notes if "inference" in note and "behind" not in note]
        assert note == f"{told}; the run counts"


STATE = """
<ir_version: 8, opset_import: ["": 17]>
state (float[N,4] x, int64 trips) => (float[?,4] z) {
  [loop] z = Loop (trips, , x) <
    body = step (int64 i, bool go, float[R,4] s) => (bool on, float[S,4] n)
      <float[4,4] v = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}> {
      on = Identity (go)
      [inner] a = MatMul (s, v)
      [outer] b = MatMul (s, w)
      n = Add (a, b)
    }
  >
}
"""


def test_products_of_a_state_of_one_shape_are_counted(tmp_path):
    proto = parse(STATE, w=np.ones((4, 4), np.float32))
    np.savez(tmp_path / "x.npz", x=np.ones((3, 4), np.float32), trips=np.array(5))
    nodes = tracer.count(proto, inputs=tmp_path / "x.npz").nodes.set_index("node")
    products = nodes.loc[["loop.body/inner", "loop.body/outer"]]
    assert products["macs"].to_list() == [5 * 3 * 4 * 4] * 2
    assert products["input_shapes"].to_list() == ["float32[3,4], float32[4,4]"] * 2
    assert nodes.loc["loop.body/inner", "peak_bytes"] > 0
