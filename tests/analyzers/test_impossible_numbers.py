"""Whatever was measured, no view shows a number that cannot be: on runs drawn at random.

The runs have kernels of a real model with times of a random machine: quiet or stalled, with a
profiler that costs less or more than calibrated, undisturbed runs that fit or do not.
"""

import io
import json
import re
from dataclasses import replace
from functools import cache

import numpy as np
import onnx
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import tracer
from tracer.analyzers import views
from tracer.api._assembly import analyze, assembled
from tracer.graph.loading import open_model
from tracer.records.counted_runs import MachineUse, Usage
from tracer.records.environment import Peak, Peaks
from tracer.records.result import ViewOptions
from tracer.shapes import infer

MODEL = "models/lenet/lenet.onnx"
UNKNOWN = ["time_share", "time_us_p50", "gflops_per_s", "gbytes_per_s", "roof_fraction"]
"""What a row has not whose time is only a bound."""
COLUMNS = [
    "time_us",
    "time_us_ci95_low",
    "time_us_ci95_high",
    "time_us_min",
    "time_us_p95",
    *UNKNOWN,
]
PEAKS = Peaks(1, Peak(1e11, "told"), Peak(2e10, "told"), Peak(2e11, "told"))


@cache
def base(operators):
    """A model of these operators in a row (LeNet for none), a run of it, and its types."""
    proto = onnx.load(MODEL) if not operators else chain(operators)
    trace = tracer.profile(proto, runs=3, warmup=0, threads=1, in_process=True, confirm=False)
    model = open_model(proto)
    return model, trace.runs[0], infer(model, {})


def chain(operators):
    value = helper.make_tensor_value_info
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    nodes = [
        helper.make_node(name, [f"t{i}", "w"] if name == "MatMul" else [f"t{i}"], [f"t{i + 1}"])
        for i, name in enumerate(operators)
    ]
    ends = [value(f"t{i}", 1, [1, 4]) for i in (0, len(operators))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@st.composite
def machines(draw):
    """What a machine does to the runs: each a factor, a share or a number of runs."""
    return {
        "runs": draw(st.integers(1, 40)),
        "times": draw(st.sampled_from([0.0, 0.01, 1.0, 100.0])),
        "overhead": draw(st.floats(0, 6)),
        "stalls": draw(st.floats(0, 1)),
        "wall": draw(st.floats(0.01, 20)),
        "empty": draw(st.none() | st.floats(0, 2)),
        "others": draw(st.none() | st.floats(0, 1)),
        "seed": draw(st.integers(0, 2**16)),
    }


def run_on(run, machine):
    random = np.random.default_rng(machine["seed"])
    runs, kernels = machine["runs"], len(run.kernels)
    true = machine["times"] * random.exponential(5.0, kernels)
    samples = true + machine["overhead"] * run.bias_us + random.exponential(0.3, (runs, kernels))
    stalled = random.random((runs, kernels)) < machine["stalls"] / kernels
    samples = np.floor(samples + np.where(stalled, 4000.0, 0.0))
    wall = np.maximum(true.sum() * machine["wall"] * random.uniform(0.9, 1.3, runs), 0.1)
    empty = machine["empty"]
    hit = stalled.any(axis=1)
    use = MachineUse(
        Usage((random.random(runs) < machine["stalls"]).astype(float), 0.8 * wall),
        Usage(hit.astype(float), samples.sum(axis=1) - 4000.0 * stalled.sum(axis=1)),
        2,
        machine["others"],
    )
    return replace(
        run,
        wall_us=wall,
        instrumented_us=samples.sum(axis=1) + 1.0,
        samples=samples,
        empty_us=None if empty is None else np.full(runs, empty * wall.mean()),
        use=use,
    )


operators = st.lists(st.sampled_from(["MatMul", "Relu", "Neg"]), max_size=3).map(tuple)


@pytest.mark.nightly
@settings(max_examples=40)
@given(operators, machines())
def test_no_view_shows_what_cannot_be(operators, machine):
    model, run, types = base(operators)
    made = run_on(run, machine)
    trace = assembled(model, [analyze(model, made, types, None, "plain")], {}, [PEAKS])
    check_rows(trace.nodes)
    document = json.loads(views.render(trace, "json", ViewOptions()))
    wall = document["runs"][0]["wall_us"]
    ordered = [wall[name] for name in ("min", "p50", "p90", "p95", "p99", "max")]
    assert ordered == sorted(ordered)
    assert wall["min"] <= wall["mean"] <= wall["max"]
    check_rows(pd.DataFrame(document["runs"][0]["nodes"]))
    for by in ("node", "op", "module"):
        check_text(views.render(trace, "md", ViewOptions(by=by)).decode())
    check_text(repr(trace))
    rows = pd.read_csv(io.BytesIO(views.render(trace, "csv", ViewOptions())))
    check_rows(rows)


def check_rows(nodes):
    rows = nodes[COLUMNS].astype("float64").dropna(subset=["time_us"])
    time, low, high = (rows[f"time_us{end}"] for end in ("", "_ci95_low", "_ci95_high"))
    assert (time >= 0).all() and not (low > time + 1e-9).any() and not (high < time - 1e-9).any()
    points = [rows[f"time_us_{name}"] for name in ("min", "p50", "p95")]
    assert not (points[0] > points[1] + 1e-9).any() and not (points[1] > points[2] + 1e-9).any()
    assert not (points[0] > time + 1e-6).any()
    bound = low == 0
    for name in UNKNOWN:
        assert rows.loc[bound & (time < high), name].isna().all(), name
    assert rows["time_share"].fillna(0).between(0, 1).all()
    assert rows["time_share"].sum() <= 1 + 1e-9


def check_text(text):
    """Factors, counts and numbers in sentences and cells."""
    assert not re.search(r"\b(nan|inf)\b", text)
    assert not re.search(r"\b1 (runs|nodes|rows|threads|kernels)\b", text)
    same = [a for a, b in re.findall(r"\b([\d,]+) of ([\d,]+) (?:rows|kernels|nodes)\b", text)
            if a == b]  # fmt: skip
    assert not same
    factors = [float(f.replace(",", "")) for f in re.findall(r"([\d,]+\.?\d*) times\b", text)]
    assert all(factor <= 10 for factor in factors)
    assert not re.findall(r".*\de\+\d.*", text)
