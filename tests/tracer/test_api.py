import json

import numpy as np
import onnx
import onnx.parser
import pandas as pd
import pytest
from onnx import numpy_helper

import tracer
from tests.graphs import BRANCHES, DATA_DEPENDENT, parse, residual
from tracer.analyzers.views import formats, render
from tracer.errors import InputError, UsageError
from tracer.records.columns import COLUMNS
from tracer.records.trace import Trace


@pytest.fixture(scope="module")
def trace():
    return tracer.profile(residual(), batch=[1, 4], runs=12, warmup=1, threads=1)


def test_the_table_has_the_columns_other_programs_rely_on(trace):
    assert tuple(trace.nodes.columns) == COLUMNS
    assert trace.nodes["batch"].unique().tolist() == [1, 4]
    assert (trace.nodes["executor"] == "onnxruntime").all()


def test_what_was_not_measured_is_missing_and_work_is_counted(trace):
    first = trace.nodes[trace.nodes["batch"] == 1].set_index("node")
    assert first.loc["c2", "macs"] == 16 * 16 * 16 * 16 * 9
    assert trace.nodes[trace.nodes["batch"] == 4]["macs"].sum() == 4 * first["macs"].sum()
    assert first["module"].isna().all()


def test_a_trace_survives_the_file(trace, tmp_path):
    (tmp_path / "run.trace").write_bytes(render(trace, "trace"))
    again = tracer.load(tmp_path / "run.trace")
    pd.testing.assert_frame_equal(again.nodes, trace.nodes)
    assert (again.model, again.environment, again.notes) == (
        trace.model, trace.environment, trace.notes,
    )  # fmt: skip
    for ours, theirs in zip(again.runs, trace.runs, strict=True):
        assert ours.kernels == theirs.kernels
        assert np.array_equal(ours.samples, theirs.samples)
        assert np.allclose(ours.wall_us, theirs.wall_us)


NEED_MORE = "sums.", "headroom.", "annotated."
"""Formats of sums of integers, and of the file of the model."""
FORMATS = [each for each in formats(Trace) if each != "trace" and not each.startswith(NEED_MORE)]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("extension", [each for each in FORMATS if not each.endswith("png")])
def test_a_trace_of_a_file_is_shown_as_before(trace, tmp_path, extension):
    again = tracer.load(trace.save(tmp_path / "run.trace"))
    assert render(again, extension) == render(trace, extension)


@pytest.mark.parametrize("keep", [0, 1, 500, 5000])
def test_a_damaged_trace_is_refused(trace, tmp_path, keep):
    data = render(trace, "trace")
    (tmp_path / "run.trace").write_bytes(data[:keep])
    with pytest.raises(InputError, match="not a trace, or a damaged one"):
        tracer.load(tmp_path / "run.trace")


def test_the_work_of_a_body_is_multiplied_by_its_trips():
    feeds = {"x": np.ones(4, np.float32), "flag": np.array(True), "trips": np.array(5)}
    trace = tracer.profile(onnx.parser.parse_model(BRANCHES), inputs=_saved(feeds), runs=2)
    flops = trace.nodes.set_index("node")["flops"]
    assert flops["Loop_1.body/Add_1"] == 5 * 4
    assert flops["If_0.then_branch/Tanh_0"] == 4
    assert flops["If_0.else_branch/Neg_0"] == 0


def test_sizes_that_depend_on_data_come_from_the_run():
    trace = tracer.profile(onnx.parser.parse_model(DATA_DEPENDENT), runs=2)
    shapes = trace.nodes.set_index("node")["output_shapes"]
    assert shapes["NonZero_1"] == "int64[2,8]"
    assert not any("unknown" in note for note in trace.notes)


@pytest.mark.nightly
def test_a_folder_with_test_data_runs_on_them(tmp_path):
    onnx.save(residual(), tmp_path / "model.onnx")
    (tmp_path / "test_data_set_0").mkdir()
    x = numpy_helper.from_array(np.ones((3, 3, 16, 16), np.float32))
    (tmp_path / "test_data_set_0" / "input_0.pb").write_bytes(x.SerializeToString())
    trace = tracer.profile(tmp_path, runs=2)
    assert trace.runs[0].batch == 3
    assert any("test_data_set_0" in note for note in trace.notes)
    assert tracer.profile(tmp_path, batch=2, runs=2).runs[0].batch == 2


def test_count_does_not_run_and_has_no_times():
    trace = tracer.count(residual(), batch=2)
    assert trace.runs == ()
    assert trace.nodes["time_us"].isna().all()
    assert trace.nodes["macs"].sum() == 2 * (16 * 256 * 27 + 16 * 256 * 144 + 160)
    assert trace.model.params == 16 * 27 + 16 * 144 + 170


def test_json_has_the_shape_of_the_design_and_no_bare_nan(trace):
    def refuse(constant):
        raise AssertionError(constant)

    data = json.loads(render(trace, "json"), parse_constant=refuse)
    assert {"model", "environment", "settings", "runs"} <= set(data)
    assert [run["batch"] for run in data["runs"]] == [1, 4]
    for run in data["runs"]:
        assert set(run["wall_us"]) == {"mean", "p50", "p90", "p95", "p99", "min", "max", "std"}
        assert run["coverage"] == pytest.approx(
            sum(n["time_us"] or 0 for n in run["nodes"]) / run["wall_us"]["mean"]
        )
        assert set(run["nodes"][0]) == set(COLUMNS)


def _saved(feeds):
    import tempfile
    from pathlib import Path

    path = Path(tempfile.mkdtemp()) / "x.npz"
    np.savez(path, **feeds)
    return path


SHORT_TABLE = """
<ir_version: 8, opset_import: ["": 16]>
positions (int64[batch,sequence] ids) => (float[batch,sequence,8] y) {
  e = Gather <axis = 0> (tokens, ids)
  y = Add (e, table)
}
"""


def test_assumed_sizes_shrink_until_the_model_takes_them():
    zeros = np.zeros
    proto = parse(SHORT_TABLE, tokens=zeros((9, 8), np.float32), table=zeros((32, 8), np.float32))
    trace = tracer.profile(proto, runs=2)
    assert trace.runs[0].inputs["ids"] == "int64[1,32]"
    assert any(note.startswith("sizes chosen: ids[1,32] (tokens)") for note in trace.notes)


def test_a_size_that_no_assumption_meets_is_told_with_the_remedy():
    text = """
    <ir_version: 8, opset_import: ["": 16]>
    g (float[N,A] a) => (float[7] y) { s = Constant <value_ints = [7]> ()  y = Reshape (a, s) }
    """
    with pytest.raises(
        InputError,
        match=r"cannot run.*No usual sizes fit, among them A=16; set them: dims={'A': SIZE}",
    ):
        tracer.profile(onnx.parser.parse_model(text), runs=2)


GROWING = """
<ir_version: 8, opset_import: ["": 16]>
growing (float[1,4] x, int64 trips) => (float[M,4] y) {
  on = Constant <value = bool {1}> ()
  y = Loop (trips, on, x) <
    body = step (int64 i, bool go, float[R,4] s) => (bool more, float[Q,4] n) {
      more = Identity (go)
      p = MatMul (s, w)
      n = Concat <axis = 0> (p, x)
    }
  >
}
"""


def test_work_that_differs_between_the_trips_of_a_loop_is_that_of_all_trips():
    proto = parse(GROWING, w=np.eye(4, dtype=np.float32))
    feeds = _saved({"x": np.ones((1, 4), np.float32), "trips": np.array(6)})
    of_trips = [rows * 4 * 4 for rows in range(1, 7)]
    for trace in (
        tracer.count(proto, inputs=feeds),
        tracer.profile(proto, inputs=feeds, runs=2),
        tracer.profile(proto, inputs=feeds, runs=2, optimization="none"),
        tracer.interpret(proto, inputs=feeds, runs=1),
    ):
        product = trace.nodes.set_index("node").loc["Loop_1.body/MatMul_1"]
        assert product["macs"] == sum(of_trips)
        assert product["output_shapes"] == "float32[?,4]"
        assert not [note for note in trace.notes if "unknown" in note]


def test_the_same_batch_twice_is_measured_once_and_none_is_refused():
    trace = tracer.profile(residual(), batch=[2, 2], runs=2)
    assert [run.batch for run in trace.runs] == [2]
    with pytest.raises(UsageError, match=r"batch is \[\]"):
        tracer.profile(residual(), batch=[])


@pytest.mark.parametrize(
    "wrong", [{"optimization": "most"}, {"runs": 0}, {"warmup": -1}, {"threads": 99_999}]
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UsageError):
        tracer.profile(residual(), **wrong)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8e4m3fn", "int4", "uint4"])
def test_element_types_that_numpy_lacks_can_be_fed(dtype):
    text = f'<ir_version: 10, opset_import: ["": 21]> g ({dtype}[N,3] x) => (float[N,3] y)'
    trace = tracer.profile(onnx.parser.parse_model(text + " { y = Cast <to = 1> (x) }"), runs=2)
    assert trace.nodes["time_us_raw"].notna().all()


def test_a_profile_with_an_accumulator_has_times_and_overflow(tmp_path):
    onnx.save(residual(), tmp_path / "m.onnx")
    accumulator = {"accumulator": "fp16"}
    trace = tracer.profile(tmp_path / "m.onnx", runs=3, threads=1, **accumulator)
    sums = tracer.interpret(tmp_path / "m.onnx", **accumulator).nodes.set_index("node")
    rows = trace.nodes.set_index("node")
    assert (rows["time_us"] > 0).any()
    assert rows["accumulator"].dropna().to_dict() == sums["accumulator"].dropna().to_dict() != {}


def test_an_argument_that_there_is_none_of_is_named_before_one_that_is_missing():
    with pytest.raises(TypeError, match=r"'batch'. Did you mean 'batches'"):
        tracer.sweep("net.onnx", batch=[1, 2])
