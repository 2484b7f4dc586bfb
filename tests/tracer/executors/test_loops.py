"""Loops and branches by hand: how often bodies run, and what of the time is the parent's own."""

import numpy as np
import onnx.parser
import pytest

import tracer
from tracer.executors.onnxruntime import calibration, feeding
from tracer.executors.settings import OrtSettings
from tracer.graph.loading import from_proto

TRIPS = 7

LOOP = """
<ir_version: 8, opset_import: ["": 16]>
g (int64 trips, bool go, float[200000] x) => (float[200000] y) {
    doubled = Add (x, x)
    y = Loop (trips, go, doubled) <body = step (int64 i, bool c, float[200000] s)
        => (bool c_out, float[200000] s_out) {
        c_out = Identity (c)
        t = Tanh (s)
        s_out = Mul (t, t)
    }>
}
"""


def parsed(text):
    return from_proto(onnx.parser.parse_model(text))


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    feeds = tmp_path_factory.mktemp("loop") / "feeds.npz"
    x = np.linspace(-1, 1, 200_000, dtype=np.float32)
    np.savez(feeds, trips=np.array(TRIPS), go=np.array(True), x=x)
    proto = onnx.parser.parse_model(LOOP)
    return tracer.profile(proto, inputs=feeds, runs=8, threads=1, optimization="none")


def test_nodes_of_a_body_are_called_once_an_iteration(trace):
    calls = trace.nodes.set_index("node")["calls"]
    assert calls["Add_0"] == calls["Loop_1"] == 1
    assert {calls[key] for key in calls.index if ".body/" in key} == {TRIPS}


def test_a_loop_tells_its_own_time_and_the_body_its_own(trace):
    raw = trace.nodes.set_index("node")["time_us_raw"]
    body = raw[[key for key in raw.index if ".body/" in key]]
    tanh = body[[key for key in body.index if "Tanh" in key]].sum()
    # 1.4 million hyperbolic tangents take longer than handing 7 tensors from turn to turn
    assert raw["Loop_1"] < tanh < body.sum()
    run = trace.runs[0]
    assert (run.samples.sum(axis=1) <= run.instrumented_us).all()


def test_each_run_of_a_body_adds_overhead_to_the_loop_and_uncertainty(trace):
    run = trace.runs[0]
    places = {kernel.op_type: place for place, kernel in enumerate(run.kernels)}
    calibrated = calibration.measure(1)
    own = calibrated.of(run.kernels[places["Loop"]])
    assert run.bias_us[places["Loop"]] == pytest.approx(own + TRIPS * calibrated.per_body)
    assert calibrated.per_body > 0
    ticks = TRIPS / np.sqrt(12)  # each body loses the same part of a microsecond
    errors = run.bias_error_us[[places["Loop"], places["Tanh"]]]
    assert errors == pytest.approx([np.hypot(calibrated.error, ticks), calibrated.error])
    assert (trace.nodes["time_us"].dropna() >= 0).all()


def test_a_run_without_nodes_copies_no_outputs_and_returning_them_is_measured(trace):
    """The model returns 800 kB; what is stored instead of them has one element."""
    executed = parsed(LOOP)
    results = [np.zeros(200_000, np.float32)]
    feeds = {"trips": np.array(TRIPS), "go": np.array(True), "x": results[0]}
    empty = feeding.empty_runner(executed, feeds, results, OrtSettings(threads=1))
    (output,) = empty.run()
    assert output.shape == (1,) and output.dtype == np.float32
    assert trace.runs[0].returning_us >= 0
    assert trace.runs[0].empty_us is not None


def test_the_body_of_a_sequence_map_runs_once_a_tensor():
    """onnxruntime makes it the body of a Loop, and gives its nodes other names."""
    text = """<ir_version: 8, opset_import: ["": 18]>
    g (float[2,3] x, float[2,3] x2, float[3,4] w) => (float[2,8] y) {
        s = SequenceConstruct (x, x2)
        t = SequenceMap (s) <body = each (float[2,3] e) => (float[2,4] o) {
            p = MatMul (e, w)
            o = Relu (p)
        }>
        y = ConcatFromSequence <axis = 1> (t)
    }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.node[1].attribute[0].g.node[0].name = "a/b"
    nodes = tracer.profile(proto, runs=3, threads=1).nodes
    rows = nodes.set_index("node").loc[["SequenceMap_1.body/a/b", "SequenceMap_1.body/Relu_1"]]
    assert rows["calls"].tolist() == [2, 2]
    assert rows["time_us_raw"].gt(0).all()
    assert rows["macs"].tolist() == [2 * 2 * 3 * 4, 0]
