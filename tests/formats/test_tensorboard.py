"""Events: read by tensorboardX's messages, and by TensorBoard's loader where it is installed."""

import re

import pytest

import tracer
from tests.formats.readers import decoded, histograms, records
from tests.graphs import BRANCHES, integers, parse, residual
from tracer.analyzers import views

pytest.importorskip("tensorboardX")


@pytest.fixture(scope="module")
def trace():
    proto = residual()
    for node, module in zip(proto.graph.node, "aabb", strict=False):
        node.metadata_props.add(key="io.github.tracer-onnx.module", value=f"stage.{module}")
    return tracer.interpret(proto, batch=2)


@pytest.fixture(scope="module")
def narrow():
    return tracer.interpret(integers(), accumulator=14, batch=3)


def events(trace):
    from tensorboardX.proto.event_pb2 import Event

    return [Event.FromString(record) for record in records(views.render(trace, "tfevents"))]


def graph_of(trace):
    from tensorboardX.proto.graph_pb2 import GraphDef

    (content,) = (event.graph_def for event in events(trace) if event.graph_def)
    return GraphDef.FromString(content)


def test_checksums_are_those_of_the_record_format(trace):
    from tensorboardX.record_writer import masked_crc32c

    content, at = views.render(trace, "tfevents"), 0
    for record in records(content):
        header, sum_of_header = content[at : at + 8], content[at + 8 : at + 12]
        end = at + 12 + len(record)
        assert masked_crc32c(header).to_bytes(4, "little") == sum_of_header
        assert masked_crc32c(record).to_bytes(4, "little") == content[end : end + 4]
        at = end + 4
    assert at == len(content)


def test_the_graph_has_each_node_in_its_module(trace):
    graph, topology = graph_of(trace), trace.model.topology
    assert [node.op for node in graph.node] == list(topology.op_types)
    keys = [node.attr["tracer_node"].s.decode() for node in graph.node]
    assert keys == list(topology.nodes)
    names = [node.name for node in graph.node]
    for node, module, producers in zip(
        graph.node, topology.modules, topology.producers, strict=True
    ):
        assert list(node.input) == [names[position] for position in producers]
        assert node.name.rpartition("/")[0] == (module or "").replace(".", "/")


def test_times_of_nodes_are_whole_microseconds_that_add_up(trace):
    (event,) = (e for e in events(trace) if e.HasField("tagged_run_metadata"))
    stats = decoded(decoded(event.tagged_run_metadata.run_metadata)[1][0])[1]
    (device,) = map(decoded, stats)
    times = {}
    for each in map(decoded, device[2]):
        times[each[1][0].decode()] = each[5][0] if each[5] else 0
    assert sum(times.values()) == pytest.approx(trace.nodes["time_us"].sum(), abs=1)
    rows = trace.nodes.set_index("node")["time_us"]
    for node in graph_of(trace).node:
        assert times[node.name] == pytest.approx(rows[node.attr["tracer_node"].s.decode()], abs=1)


def test_scalars_have_the_batch_as_step(profile):
    shown = {
        (value.tag, event.step): value.simple_value
        for event in events(profile)
        for value in event.summary.value
        if value.HasField("simple_value")
    }
    for batch in (1, 4):
        rows = profile.nodes[profile.nodes["batch"] == batch]
        assert shown["time/nodes_us", batch] == pytest.approx(rows["time_us"].sum(), rel=1e-6)
        assert shown["total/macs", batch] == rows["macs"].sum()
        assert shown["greatest/peak_bytes", batch] == rows["peak_bytes"].max()


def test_histograms_hold_every_final_sum(narrow):
    from tensorboardX.proto.summary_pb2 import HistogramProto

    shown = histograms(views.render(narrow, "tfevents"))
    sums = {f"final sums/{each.node}": each.tally for each in narrow.runs[0].sums}
    assert shown.keys() == sums.keys() and shown
    for tag, content in shown.items():
        histogram = HistogramProto.FromString(content)
        assert sum(histogram.bucket) == histogram.num == sums[tag].outputs.sum()
        assert histogram.min == sums[tag].final_min.min()
        assert histogram.max == sums[tag].final_max.max() < histogram.bucket_limit[-1]
        assert list(histogram.bucket_limit) == sorted(histogram.bucket_limit)


HOSTILE = ("a/b", "a", "", "^x:0", "é\n", "</script>", "..", "a b")


def test_names_are_those_that_tensorflow_allows():
    proto = residual()
    for node, name in zip(proto.graph.node, HOSTILE, strict=True):
        node.name = name
        node.metadata_props.add(key="io.github.tracer-onnx.module", value="^m.x y.a")
    for each in (proto, parse(BRANCHES)):
        names = [node.name for node in graph_of(tracer.count(each)).node]
        assert len(set(names)) == len(names)
        groups = {n[:i] for n in names for i, char in enumerate(n) if char == "/"}
        assert groups.isdisjoint(names)
        allowed = r"^[A-Za-z0-9.][A-Za-z0-9_.\\/\-]*$"
        assert all(re.match(allowed, name) for name in names)


@pytest.mark.parametrize("name", ["trace", "narrow", "profile", "framework", "count"])
def test_tensorboard_loads_the_file(name, request, tmp_path):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    trace = request.getfixturevalue(name)
    trace.save(tmp_path / "events.out.tfevents")
    read = loader.EventAccumulator(str(tmp_path), {loader.HISTOGRAMS: 0, loader.TENSORS: 0})
    read.Reload()
    tags = read.Tags()
    assert tags["graph"] == (trace.model.topology is not None)
    if tags["graph"]:
        assert len(read.Graph().node) == len(trace.model.topology.nodes)
        for tag in tags["run_metadata"]:
            assert read.RunMetadata(tag).step_stats.dev_stats[0].node_stats
    assert len(tags["run_metadata"]) == (len(trace.runs) if tags["graph"] else 0)
    assert len(tags["scalars"]) + len(tags["tensors"]) > 0
