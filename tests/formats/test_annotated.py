"""The annotated model: the same results bit by bit, weights where they were."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tracer
from tests.graphs import BRANCHES, integers, parse, residual
from tracer.analyzers.options import ViewOptions
from tracer.errors import InputError, ModelError, UsageError

LENET = "models/lenet/lenet.onnx"


def metadata(proto):
    return {entry.key: entry.value for entry in proto.metadata_props}


def without_ours(proto):
    """The model without the entries that the format adds."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for each in (copy, *copy.graph.node):
        kept = [e for e in each.metadata_props if not e.key.startswith("tracer.")]
        del each.metadata_props[:]
        each.metadata_props.extend(kept)
    return copy


def outputs(path, feeds):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)


def test_results_are_the_same_bit_by_bit_and_the_checker_passes(tmp_path):
    trace = tracer.interpret(LENET)
    path = trace.save(tmp_path / "lenet.annotated.onnx")
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 32, 32), np.float32)}
    session = onnxruntime.InferenceSession(LENET, providers=["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: next(iter(feeds.values()))}
    for before, after in zip(outputs(LENET, feeds), outputs(path, feeds), strict=True):
        assert before.tobytes() == after.tobytes()
    onnx.checker.check_model(path, full_check=True)
    proto = onnx.load(path)
    assert without_ours(proto) == onnx.load(LENET)
    rows = trace.nodes.set_index("node")
    for node in proto.graph.node:
        told = metadata(node)
        assert int(told["tracer.macs"]) == rows["macs"][node.name]
        if rows["time_us"].notna()[node.name]:
            assert float(told["tracer.time_us"]) == rows["time_us"][node.name]
    assert float(metadata(proto)["tracer.wall_us"]) > 0


@pytest.mark.parametrize(
    ("proto", "column"), [(integers(), "bits_observed"), (parse(BRANCHES), "time_us")]
)
def test_widths_are_at_the_nodes_and_bodies_have_their_own(proto, column, tmp_path):
    onnx.save(proto, tmp_path / "m.onnx")
    accumulator = 16 if column == "bits_observed" else None
    trace = tracer.interpret(tmp_path / "m.onnx", accumulator=accumulator)
    content = onnx.load(trace.save(tmp_path / "m.annotated.onnx"))
    shown = [
        m[f"tracer.{column}"]
        for m in map(metadata, nodes_of(content.graph))
        if f"tracer.{column}" in m
    ]
    known = trace.nodes[trace.nodes["index"].notna()].sort_values("index")[column].dropna()
    assert list(map(float, shown)) == known.astype(float).tolist()


def nodes_of(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes_of(attribute.g)


def test_annotating_again_replaces_what_was_there(tmp_path):
    onnx.save(residual(), tmp_path / "a.onnx")
    path = tracer.count(tmp_path / "a.onnx").save(tmp_path / "b.annotated.onnx")
    again = tracer.count(path).save(tmp_path / "c.annotated.onnx")
    told = [metadata(node) for node in onnx.load(again).graph.node]
    assert told == [metadata(node) for node in onnx.load(path).graph.node]
    assert all(
        len(node.metadata_props) == len(metadata(node)) for node in onnx.load(again).graph.node
    )


def test_external_weights_stay_where_they_are(tmp_path):
    source, other = tmp_path / "m.onnx", tmp_path / "elsewhere"
    onnx.save(residual(), source, save_as_external_data=True, location="w.bin", size_threshold=0)
    before = {p.name: (p.stat().st_mtime_ns, p.stat().st_ino) for p in tmp_path.iterdir()}
    trace = tracer.count(source)
    path = trace.save(tmp_path / "x.annotated.onnx")
    after = {p.name: (p.stat().st_mtime_ns, p.stat().st_ino) for p in tmp_path.iterdir()}
    assert after.keys() - before.keys() == {"x.annotated.onnx"}
    assert {name: after[name] for name in before} == before
    feeds = {"x": np.ones((1, 3, 16, 16), np.float32)}
    assert outputs(source, feeds)[0].tobytes() == outputs(path, feeds)[0].tobytes()
    onnx.checker.check_model(path)
    other.mkdir()
    with pytest.raises(UsageError, match="weights lie in files beside it"):
        trace.save(other / "x.annotated.onnx")
    assert list(other.iterdir()) == []


def test_weights_of_three_gigabytes_are_not_read(tmp_path):
    size = 3 << 30
    with (tmp_path / "w.bin").open("wb") as data:
        data.truncate(size)  # without blocks on the disk
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size // 4])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="w.bin")
    weight.external_data.add(key="length", value=str(size))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [size // 4])
    node = helper.make_node("Add", ["x", "w"], ["y"], name="add")
    graph = helper.make_graph([node], "g", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10),
              tmp_path / "m.onnx")  # fmt: skip
    path = tracer.count(tmp_path / "m.onnx").save(tmp_path / "m.annotated.onnx")
    assert path.stat().st_size < 10_000
    (entry,) = onnx.load(path, load_external_data=False).graph.initializer
    assert entry == weight
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.annotated.onnx", "m.onnx", "w.bin"]
    assert (tmp_path / "w.bin").stat().st_blocks < 1000


def test_a_model_that_changed_or_is_gone_is_named(tmp_path):
    source = tmp_path / "m.onnx"
    onnx.save(residual(), source)
    trace = tracer.count(source)
    onnx.save(integers(), source)
    with pytest.raises(InputError, match=r"m\.onnx: not the model that was traced"):
        trace.save(tmp_path / "x.annotated.onnx")
    onnx.save(residual(), tmp_path / "moved.onnx")
    trace.save(tmp_path / "x.annotated.onnx", ViewOptions(model=tmp_path / "moved.onnx"))
    source.unlink()
    with pytest.raises(ModelError, match="no such file"):
        trace.save(tmp_path / "y.annotated.onnx")
    with pytest.raises(InputError, match="does not say where"):
        tracer.count(residual()).save(tmp_path / "y.annotated.onnx")
