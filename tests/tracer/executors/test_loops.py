"""Loops and branches by hand: how often bodies run, and what of the time is the parent's own."""

import numpy as np
import onnx.parser
import pytest

import tracer
from analyzers.timing import wall

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


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    feeds = tmp_path_factory.mktemp("loop") / "feeds.npz"
    x = np.linspace(-1, 1, 200_000, dtype=np.float32)
    np.savez(feeds, trips=np.array(TRIPS), go=np.array(True), x=x)
    proto = onnx.parser.parse_model(LOOP)
    return tracer.profile(proto, feeds=feeds, runs=8, threads=1, optimization="none")


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


def test_the_nodes_of_a_loop_take_no_longer_than_the_run(trace):
    assert trace.nodes["time_us"].sum() <= wall(trace.runs[0])["mean"] + 1e-6
    assert (trace.nodes["time_us"].dropna() >= 0).all()
