"""Names of anybody in every format: they survive, or are escaped, and run nothing."""

import importlib.util
import json
from dataclasses import replace

import onnx
import pytest

import tracer
from tests.formats.readers import READERS
from tests.graphs import residual
from tracer.analyzers import views
from tracer.records.trace import Trace
from tracer.text import escaped, printable

NAMES = (
    "'\"`", "a\nb\r\n", "nul\x00", "</script><img src=x onerror=alert(1)>", "m" * 100_000,
    "\U0001f600 pair", "=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\u202eback",
    "\x1b[31m", "a;b;c", "../../etc", "%s{0}", "a,b\t",
)  # fmt: skip


def hostile(trace):
    """The trace with these names for its nodes, kernels, modules and source lines."""
    timed = trace.nodes[trace.nodes["time_us"].notna()]
    known = list(dict.fromkeys(timed.sort_values("bits")["node"]))
    names = dict(zip(known, NAMES, strict=False))
    nodes = trace.nodes.copy()
    for column in ("node", "timed_in"):
        nodes[column] = nodes[column].map(lambda name: names.get(name, name), na_action="ignore")
    hosted = nodes["node"].where(nodes["node"].isin(NAMES))
    nodes["module"] = hosted.map(lambda name: f"m.{name}", na_action="ignore").astype(object)
    nodes["source"] = hosted.map(lambda name: f"{name}.py:7", na_action="ignore").astype(object)
    topology = trace.model.topology
    if topology is not None:
        keys = tuple(names.get(key, key) for key in topology.nodes)
        topology = replace(topology, nodes=keys)
    runs = tuple(
        replace(run, sums=tuple(replace(s, node=names.get(s.node, s.node)) for s in run.sums))
        for run in trace.runs
    )
    return replace(trace, nodes=nodes, runs=runs, model=replace(trace.model, topology=topology))


@pytest.mark.parametrize("extension", READERS)
def test_a_hostile_name_survives_or_is_escaped(extension, sums):
    needed = views.formats(Trace)[extension].needs
    if needed is not None and importlib.util.find_spec(needed.package) is None:
        pytest.skip(f"no {needed.package}")
    trace = hostile(sums)
    texts = READERS[extension](views.render(trace, extension))
    column = "bits" if extension in OF_ACCUMULATORS else "time_us"
    shown = set(trace.nodes["node"][trace.nodes[column].notna()]) & set(NAMES)
    assert shown == set(NAMES) or column == "bits"
    for name in shown:
        first = name.partition("\n")[0]  # Netron compares no more
        cut = printable(name, 32_767)  # a cell of a spreadsheet holds no more
        assert texts & {name, escaped(name), printable(name), first, cut}, name[:40]


def test_every_format_is_read():
    assert set(views.formats(Trace)) - set(READERS) <= EXISTING | {"annotated.onnx"}


def test_a_model_with_hostile_names_is_annotated(tmp_path):
    proto = residual()
    for node, name in zip(proto.graph.node, NAMES, strict=False):
        node.name = name[:10_000]
        node.metadata_props.add(key="io.github.tracer-onnx.module", value=name[:10_000])
    onnx.save(proto, tmp_path / "m.onnx")
    content = onnx.load(tracer.count(tmp_path / "m.onnx").save(tmp_path / "m.annotated.onnx"))
    assert [node.name for node in content.graph.node] == [node.name for node in proto.graph.node]
    assert all(len(node.metadata_props) > 3 for node in content.graph.node)


OF_ACCUMULATORS = ("headroom.model-explorer.json", "tfevents")
"""Formats with names of nodes that have an accumulator alone."""

EXISTING = {
    "csv", "html", "json", "md", "parquet", "png", "svg", "trace",
    "roofline.png", "roofline.svg", "sums.png", "sums.svg",
}  # fmt: skip
"""Formats whose names other tests read."""


def test_json_of_other_programs_is_ascii(sums):
    for extension in (name for name in READERS if name.endswith(".json")):
        content = views.render(hostile(sums), extension)
        assert content.isascii() and json.loads(content)
