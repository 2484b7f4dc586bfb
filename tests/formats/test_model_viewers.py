"""Node data for Netron and Model Explorer, whose ids are those of its own ONNX adapter."""

import json

import onnx
import pytest

import tracer
from tests.graphs import BRANCHES, integers, parse, residual
from tracer.analyzers import views
from tracer.analyzers.views.trace.exchange import node_ids
from tracer.errors import UsageError

NESTED = """
<ir_version: 8, opset_import: ["": 16]>
nested (float[4] x, bool flag) => (float[4] y) {
  y = If (flag) <
    then_branch = yes () => (float[4] a) {
      t = Tanh (x)
      a = If (flag) <
        then_branch = in1 () => (float[4] c) { u = Exp (t) c = Exp (u) },
        else_branch = in2 () => (float[4] d) { d = Neg (t) }
      >
    },
    else_branch = no () => (float[4] b) { b = Neg (x) }
  >
}
"""


def renamed(proto, *names):
    for node, name in zip(proto.graph.node, names, strict=False):
        node.name = name
    return proto


MODELS = {
    "names": residual,
    "no names": lambda: renamed(residual(), *[""] * 8),
    "a name twice": lambda: renamed(residual(), "a", "a", "node", "", "a_1", "", "a/b", "node_1"),
    "bodies": lambda: parse(BRANCHES),
    "named bodies": lambda: renamed(parse(BRANCHES), "choice", "choice"),
    "bodies in bodies": lambda: parse(NESTED),
    "hostile": lambda: renamed(residual(), "</script>", "a\nb", "'\"", "😀", "x" * 5000, "=1", " "),
}


@pytest.mark.parametrize("name", MODELS)
def test_ids_are_those_of_model_explorers_adapter(name, tmp_path):
    adapter = pytest.importorskip("model_explorer_onnx.main").ONNXAdapter()
    proto = MODELS[name]()
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    graph = adapter.convert(str(path), {})["graphs"][0]
    own = {"Input", "Output", "Initializer", "(Phi)", "(Capture)"}
    shown = {node.id: node.label for node in graph.nodes if node.label not in own}
    topology = tracer.count(path).model.topology
    ids = node_ids(topology)
    kinds = dict(zip(topology.nodes, topology.op_types, strict=True))
    assert {ids[key]: kinds[key] for key in ids} == shown


@pytest.mark.parametrize("extension", ["model-explorer.json", "headroom.model-explorer.json"])
def test_model_explorer_reads_node_data(extension, sums):
    builder = pytest.importorskip("model_explorer.node_data_builder")
    document = json.loads(views.render(sums, extension))
    results = {
        key: builder.NodeDataResult(**result) for key, result in document.pop("results").items()
    }
    read = builder.GraphNodeData(results=results, **document)
    again = json.loads(read.to_json_string())
    assert again["results"] and all(result["bgColor"] for result in again["results"].values())


def colors(trace, extension):
    return json.loads(views.render(trace, extension))["results"]


def test_colors_are_those_of_times(profile):
    rows = profile.nodes[(profile.nodes["batch"] == 1) & profile.nodes["time_us"].notna()]
    shown = colors(profile, "model-explorer.json")
    times = dict(zip(rows["node"], rows["time_us"], strict=True))
    values = {node: each["value"] for node, each in shown.items()}
    assert values == pytest.approx(times, abs=0.0006)
    longest, shortest = max(times, key=times.get), min(times, key=times.get)
    assert shown[longest]["bgColor"] == "#fee838"
    assert shown[longest]["textColor"] == "#000000"
    assert shown[shortest]["textColor"] == "#ffffff"


def test_head_room_is_what_the_width_leaves(sums):
    rows = sums.nodes[sums.nodes["bits"].notna()].set_index("node")
    shown = colors(sums, "headroom.model-explorer.json")
    assert {node: each["value"] for node, each in shown.items()} == {
        node: rows["bits"][node] - rows["bits_observed"][node] for node in rows.index
    }
    for each in shown.values():
        red, blue = int(each["bgColor"][1:3], 16), int(each["bgColor"][5:7], 16)
        assert (red > blue) == (each["value"] < 0)


def test_what_has_no_times_or_accumulators_has_no_colors(count, profile):
    with pytest.raises(UsageError, match="needs times"):
        views.render(count, "model-explorer.json")
    with pytest.raises(UsageError, match="needs accumulators"):
        views.render(profile, "headroom.model-explorer.json")


def attachment(trace):
    """(kind, target) -> name -> value, as Netron's view.js reads the file."""
    document = json.loads(views.render(trace, "netron.json"))
    assert document["signature"] == "netron:attachment" and document["metadata"] == []
    entries = {}
    for item in document["metrics"]:
        assert item["kind"] in ("node", "model") and "target" in item
        entries.setdefault((item["kind"], item["target"]), {})[item["name"]] = item["value"]
    return entries


def test_netron_shows_times_and_widths_at_the_nodes():
    named = renamed(integers(), *(f"n{i}" for i in range(9)))
    trace = tracer.interpret(named, accumulator=14)
    shown = attachment(trace)
    rows = trace.nodes.set_index("node")
    for (kind, target), values in shown.items():
        if kind == "node":
            assert values["time µs"] and values["share"]
            if rows["bits_observed"].notna()[target]:
                assert values["observed"] == str(rows["bits_observed"][target])
                assert values["guaranteed"] == str(rows["bits_guaranteed"][target])
                assert values["bits"] == "14"
    assert shown["model", ""]["wall"].endswith(" µs")
    assert {target for kind, target in shown if kind == "node"} == {
        n.name for n in named.graph.node
    }


def test_netron_has_no_values_of_nodes_that_it_could_not_find():
    trace = tracer.count(renamed(residual(), "a", "a", "b", "", "c\nd", "e", "f", "g"))
    targets = {target for kind, target in attachment(trace) if kind == "node"}
    assert targets == {"b", "c", "e", "f", "g"}


def test_values_of_several_runs_say_of_which(profile):
    values = attachment(profile)["node", "node_Conv_22"]
    rows = profile.nodes[profile.nodes["node"] == "node_Conv_22"].set_index("batch")
    for batch in (1, 4):
        text = values[f"time µs (batch {batch})"]
        assert float(text) == pytest.approx(rows["time_us"][batch], abs=0.005)
        assert values[f"bound (batch {batch})"] == rows["bound"][batch]


def test_names_of_the_model_are_stored(tmp_path):
    trace = tracer.count(renamed(integers(), "a", "a"))
    assert trace.model.topology.names[:2] == ("a", "a")
    again = tracer.load(trace.save(tmp_path / "t.trace"))
    assert again.model.topology == trace.model.topology
