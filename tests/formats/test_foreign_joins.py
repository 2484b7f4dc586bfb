"""Kernels in profiles of other programs and the nodes they are: by index, operator and order."""

import json

import numpy as np
import pytest

from tests.formats.foreign_profiles import (
    BODIES,
    FEEDS,
    LEVELS,
    NAMINGS,
    Own,
    named,
    of_kernels,
    profiled,
    written,
)
from tests.graphs import parse, residual
from tracer.api.results import load_result

CPU, DML = "CPUExecutionProvider", "DmlExecutionProvider"

IN_BODIES = {
    ("Relu", 0): 2, ("Mul", 3): 16, ("Relu", 4): 17, ("Loop", 1): 3, ("Loop", 2): 13,
    ("Loop", 1, "Relu", 0): 4, ("Loop", 1, "Identity", 1): 5, ("Loop", 1, "Mul", 2): 7,
    ("Loop", 1, "If", 3): 8, ("Loop", 1, "If", 3, "Relu", 0): 9,
    ("Loop", 1, "If", 3, "Tanh", 1): 10,
    ("Loop", 2, "Relu", 0): 14, ("Loop", 2, "Identity", 1): 15,
}  # fmt: skip
"""Operators and indices as onnxruntime counts them, in each graph and without Constants; places in
the file."""
CHAIN = """<ir_version: 8, opset_import: ["" : 17]>
chain (float[1,4,8,8] x, float[4,4,1,1] w) => (float[1,4,8,8] y) {
  [Conv_6] a = Conv (x, w)
  [Relu_7] b = Relu (a)
  [Conv_8] c = Conv (b, w)
  [Relu_9] d = Relu (c)
  [Conv_15] e = Conv (d, w)
  [Add_16] y = Add (e, x)
}"""
REST = [("Conv_15", "Conv", DML, 40, 4), ("Add_16", "Add", DML, 5, 5)]
FIRST = ("fused op (#0 'Conv_6') + (#1 'Relu_7')", "DmlFusedConv", DML, 20, 6)
SECOND = ("fused op (#2 'Conv_8') + (#3 'Relu_9')", "DmlFusedConv", DML, 30, 7)


def saved(proto, folder):
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    return folder / "model.onnx"


def times_of_nodes(trace):
    """Place in the file, or name of a kernel of the runtime -> µs in each run."""
    (run,) = trace.runs
    of_kernel = dict(zip([k.name for k in run.kernels], run.samples.T, strict=True))
    rows = trace.nodes[trace.nodes["time_us"].notna()]
    places = rows["index"].astype(object).where(rows["index"].notna(), rows["node"])
    return {
        place: sum(of_kernel[name] for name in kernels.split("; "))
        for place, kernels in zip(places, rows["kernels"], strict=True)
    }


def hosts(trace):
    """The node, by its place, that has the time of each node in a kernel."""
    nodes = trace.nodes[trace.nodes["index"].notna() & trace.nodes["kernels"].notna()]
    place = dict(zip(nodes["node"], nodes["index"], strict=True))
    timed_in = nodes["timed_in"].fillna(nodes["node"])
    return {place[node]: place[host] for node, host in zip(nodes["node"], timed_in, strict=True)}


@pytest.mark.parametrize("naming", NAMINGS)
def test_nodes_of_bodies_have_the_times_of_their_events(naming, tmp_path):
    """A Relu is the first node of four graphs, each of which counts from 0."""
    proto = named(parse(BODIES), naming)
    path = profiled(proto, FEEDS, tmp_path, "none")
    times = times_of_nodes(load_result(path, saved(proto, tmp_path)))
    own = {IN_BODIES[sum(key, ())]: each for key, each in Own(path).times.items()}
    assert sorted(times) == sorted(own)
    for place, each in own.items():
        assert times[place] == pytest.approx(each, abs=3)  # µs are rounded in each of 3 rounds


@pytest.mark.one_in(3)
@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize("level", LEVELS)
def test_nodes_that_survive_an_optimisation_are_found_by_index(level, naming, tmp_path):
    """onnxruntime gives what it makes of several nodes a number above those of the file."""
    proto = named(residual(), naming)
    path = profiled(proto, {"x": np.ones((2, 3, 16, 16), np.float32)}, tmp_path, level)
    trace = load_result(path, saved(proto, tmp_path))
    times, own = times_of_nodes(trace), Own(path).times
    for ((op, index),), each in own.items():
        if index < len(proto.graph.node):
            assert proto.graph.node[index].op_type == op
            assert times[index].tolist() == each.tolist()
    assert sum(times.values()).tolist() == sum(own.values()).tolist()
    added = set(trace.nodes["node"][trace.nodes["index"].isna()])
    assert added <= {"runtime:ReorderOutput", "runtime:ReorderInput"}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("level", LEVELS)
def test_names_do_not_matter(level, tmp_path):
    feeds = {"x": np.ones((2, 3, 16, 16), np.float32)}
    found = []
    for naming in NAMINGS:
        proto = named(residual(), naming)
        path = profiled(proto, feeds, tmp_path, level, runs=2)
        found.append(hosts(load_result(path, saved(proto, tmp_path))))
    assert found == [found[0]] * len(NAMINGS) and found[0]


def without(*dropped, nameless=True):
    """Changes an event to what an older version wrote: no index, or one of another name."""

    def older(event):
        args = dict(event["args"])
        index = args.pop("node_index", None)
        if event["cat"] == "Node" and "index" not in dropped:
            args["graph_index"] = args["exec_plan_index"] = index
        if "all" in dropped and "op_name" in args:
            args = {"op_name": args["op_name"]}
        own = "_kernel_time" if event["cat"] == "Node" and nameless else event["name"]
        return {**event, "name": own, "args": args}

    return older


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "older",
    [without(), without(nameless=False), without("index"), without("index", nameless=False),
     without("index", "all")],
)  # fmt: skip
@pytest.mark.parametrize("text", ["residual", "bodies"])
def test_older_versions_wrote_other_indices_or_none(text, older, tmp_path):
    proto = residual() if text == "residual" else parse(BODIES)
    feeds = {"x": np.ones((2, 3, 16, 16), np.float32)} if text == "residual" else FEEDS
    path = profiled(named(proto, "none"), feeds, tmp_path, "none")
    model = saved(proto, tmp_path)
    other = written([older(each) for each in json.loads(path.read_text())], tmp_path / "older.json")
    modern, old = (times_of_nodes(load_result(each, model)) for each in (path, other))
    assert {place: each.tolist() for place, each in old.items()} == {
        place: each.tolist() for place, each in modern.items()
    }
    assert len(load_result(other).nodes) == len(modern)


def test_events_without_a_name_keep_their_operators(tmp_path):
    path = of_kernels([("", "Conv", CPU, 120), ("", "Relu", CPU, 15), ("", "Conv", CPU, 240)],
                      tmp_path / "nameless.json")  # fmt: skip
    nodes = load_result(path).nodes
    assert nodes["op_type"].tolist() == ["Conv", "Relu", "Conv"]
    assert nodes["time_us"].tolist() == [120, 15, 240] and nodes["calls"].tolist() == [1, 1, 1]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("kernels", "rows", "idle"),
    [
        ([FIRST, SECOND, *REST], {0: (0, 20), 1: (0, 20), 2: (2, 30), 3: (2, 30)}, 0),
        ([FIRST, ("else", "DmlFusedConv", DML, 30, 7), *REST], {0: (0, 20), 1: (0, 20)}, 2),
        ([("else", "Else", DML, 20, 6), *REST], {}, 4),
        (
            [("DmlFusedNode_0_0", "DmlFusedNode_0_0", DML, 20, 6), *REST],
            dict.fromkeys(range(4), (0, 20)), 0,
        ),
        (
            [("DmlFusedNode_0_0", "DmlFusedNode_0_0", DML, 20, 6), SECOND, *REST],
            {0: (0, 20), 1: (0, 20), 2: (2, 30), 3: (2, 30)}, 0,
        ),
        (
            [("DmlFusedNode_0_0", "DmlFusedNode_0_0", DML, 20, 6), ("else", "E", DML, 9, 7), *REST],
            {}, 4,
        ),
        ([("fused op (#0) + (#1)", "DmlFusedConv", DML, 20, 6), SECOND, *REST],
         {2: (2, 30), 3: (2, 30)}, 2),
        ([("Conv_6 + Relu_7", "Conv", DML, 20), *REST], {0: (0, 20), 1: (0, 20)}, 2),
        ([("Relu_7 + Conv_6", "Conv", DML, 20), *REST], {}, 4),
        ([("fused Conv_6", "FusedConv", CPU, 20, 6), ("fused Conv_8", "FusedConv", CPU, 30, 7),
          *REST], {0: (0, 20), 1: (0, 20), 2: (2, 30), 3: (2, 30)}, 0),
        ([("Conv_6", "GpuConv", DML, 20, 6), *REST], {0: (0, 20)}, 3),
    ],
)  # fmt: skip
def test_nodes_of_a_kernel_that_matched_nothing_are_no_others(kernels, rows, idle, tmp_path):
    """`fused op (…)` is what DirectML calls two nodes that it fused (onnxruntime #5617)."""
    proto = parse(CHAIN, w=np.ones((4, 4, 1, 1), np.float32))
    del proto.graph.input[1]
    trace = load_result(of_kernels(kernels, tmp_path / "p.json"), saved(proto, tmp_path))
    expected = {**rows, 4: (4, 40), 5: (5, 5)}
    assert hosts(trace) == {place: host for place, (host, _) in expected.items()}
    times = times_of_nodes(trace)
    assert {host: times[host].mean() for host, _ in expected.values()} == dict(expected.values())
    assert sum(each.mean() for each in times.values()) == sum(kernel[3] for kernel in kernels)
    assert any(f"{idle} nodes of the model are in no kernel" in n for n in trace.notes) == bool(
        idle
    )


def test_events_without_arguments_are_joined_by_name(tmp_path):
    """As in a profile of DirectML in onnxruntime #24306."""
    proto = parse(CHAIN, w=np.ones((4, 4, 1, 1), np.float32))
    del proto.graph.input[1]
    kernels = [("DmlFusedNode_0_41", "", "", 20), ("Conv_15", "", "", 40), ("Add_16", "", "", 5)]
    path = of_kernels(kernels, tmp_path / "p.json")
    events = [{**each, "args": {}} for each in json.loads(path.read_text())]
    trace = load_result(written(events, path), saved(proto, tmp_path))
    assert hosts(trace) == {**dict.fromkeys(range(4), 0), 4: 4, 5: 5}
    assert {n: each.mean() for n, each in times_of_nodes(trace).items()} == {0: 20, 4: 40, 5: 5}


def test_nameless_nodes_of_directml_are_listed_by_index(tmp_path):
    proto = named(parse(CHAIN, w=np.ones((4, 4, 1, 1), np.float32)), "none")
    del proto.graph.input[1]
    kernels = [("fused op (#0) + (#1)", "DmlFusedConv", DML, 20, 6),
               ("fused op (#2) + (#3)", "DmlFusedConv", DML, 30, 7),
               ("Conv_4", "Conv", DML, 40, 4), ("Add_5", "Add", DML, 5, 5)]  # fmt: skip
    trace = load_result(of_kernels(kernels, tmp_path / "p.json"), saved(proto, tmp_path))
    assert hosts(trace) == {0: 0, 1: 0, 2: 2, 3: 2, 4: 4, 5: 5}
