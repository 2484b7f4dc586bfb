"""Kernels cut out of the optimised graph: equal values, and times where they can run alone."""

import numpy as np
import onnx.parser
import pytest

import tracer
from tests.graphs import BRANCHES, parse, residual
from tracer.executors.onnxruntime import feeding, replay
from tracer.executors.onnxruntime.all_outputs import tensors
from tracer.executors.onnxruntime.executor import executor
from tracer.executors.settings import OrtSettings
from tracer.graph import loading
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import make_feeds

GRAPHS = []
"""Their folders hold the weights of the pieces."""


def cut(proto, optimization):
    model = loading.from_proto(proto)
    feedset = make_feeds(model)
    graph = executor.optimize(model, feedset, OrtSettings(threads=1, optimization=optimization))
    pieces = replay.cut_kernels(model, graph.folder.graph, feedset.feeds, graph.kernels)
    GRAPHS.append(graph)
    return model, feedset, graph.kernels, pieces


@pytest.mark.parametrize("optimization", ["none", "basic", "extended", "all"])
def test_a_kernel_alone_makes_the_values_it_makes_in_the_model(optimization):
    model, feedset, kernels, pieces = cut(residual(), optimization)
    expected = tensors(model, feedset.feeds, OrtSettings(threads=1))
    compared = 0
    for kernel, piece in zip(kernels, pieces, strict=True):
        for count, distinct in ((1, 1), (4, 2)):
            (value,) = replay.runner(piece, count, distinct, OrtSettings(threads=1))()
            name = kernel.outputs[0]
            if name in expected and kernel.domain != "com.microsoft.nchwc":  # blocked by channels
                np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5)
                compared += 1
    assert compared >= 2 * (2 if optimization == "all" else 4)


def test_copies_share_their_inputs_and_take_turns_in_their_weights():
    _, _, kernels, pieces = cut(residual(), "none")
    conv = pieces[[kernel.op_type for kernel in kernels].index("Conv")]
    proto, _ = conv.copies(5, 2)
    read = [tuple(node.input) for node in proto.graph.node]
    assert len(proto.graph.node) == 5
    assert len({names[0] for names in read}) == 1
    assert [names[1].rpartition("#")[2] for names in read] == ["0", "1", "0", "1", "0"]


def test_large_weights_stay_in_their_file_and_further_sets_are_copies():
    size = 256
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[1,{size}] x) => (float[1,{size}] y) {{ y = MatMul (x, w) }}"""
    proto = onnx.parser.parse_model(text)
    weight = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    _, feedset, _, (piece,) = cut(proto, "none")
    copies, weights = piece.copies(5, 2)
    assert copies.ByteSize() < 2000
    first, second = weights.values()
    assert isinstance(first, np.memmap) or isinstance(first.base, np.memmap)
    assert not np.shares_memory(first, second)
    for count, distinct in ((1, 1), (5, 2), (5, 3)):
        (value,) = replay.runner(piece, count, distinct, OrtSettings(threads=1))()
        np.testing.assert_allclose(value, feedset.feeds["x"] @ weight, rtol=1e-4, atol=1e-4)


def test_every_copy_runs():
    piece_model = loading.from_proto(onnx.parser.parse_model(CHAIN))
    feedset = make_feeds(piece_model)
    settings = OrtSettings(threads=1, optimization="none")
    kernels = executor.optimize(piece_model, feedset, settings).kernels
    assert [kernel.op_type for kernel in kernels].count("Tanh") == 3


CHAIN = """
<ir_version: 8, opset_import: ["": 16]>
g (float[4] x) => (float[4] c) { a = Tanh (x) b = Tanh (x) c = Tanh (x) }
"""


def test_kernels_in_bodies_and_with_bodies_are_left_out():
    proto = onnx.parser.parse_model(BRANCHES)
    model = loading.from_proto(proto)
    feeds = {
        "x": np.ones(4, np.float32), "flag": np.array(True), "trips": np.array(3, np.int64),
    }  # fmt: skip
    settings = OrtSettings(threads=1, optimization="none")
    graph = executor.optimize(model, FeedSet(feeds, None), settings)
    pieces = replay.cut_kernels(model, graph.folder.graph, feeds, graph.kernels)
    for kernel, piece in zip(graph.kernels, pieces, strict=True):
        assert (piece is None) == (bool(kernel.scope) or kernel.op_type in ("If", "Loop"))


def test_the_longest_rows_have_a_replayed_time_and_the_others_none(monkeypatch):
    monkeypatch.setattr(replay, "_SECONDS", 0.0)
    seen = []
    trace = tracer.profile(
        residual(),
        runs=5,
        threads=1,
        replay=2,
        progress=lambda done, total, what: seen.append(what),
    )
    replayed = trace.nodes["time_us_replayed"]
    assert replayed.notna().sum() == 2
    assert set(trace.nodes["time_us"].nlargest(2).index) == set(replayed.dropna().index)
    assert "replaying" in seen
    assert trace.settings["replay"] == 2


def test_an_empty_run_has_outputs_of_one_element_and_no_node():
    model = loading.from_proto(residual())
    feeds = make_feeds(model).feeds
    results = [np.full((1, 2), 7, np.float32) for _ in model.proto.graph.output]
    run = feeding.empty_runner(model, feeds, results, OrtSettings(threads=1))
    assert [(value.shape, value.dtype) for value in run()] == [
        ((1,) * result.ndim, result.dtype) for result in results
    ]
    assert len(run.model.nodes) == 0


def test_where_no_output_can_be_stored_there_is_no_empty_run():
    model = loading.from_proto(residual())
    sequences = [[np.ones(2)] for _ in model.proto.graph.output]
    assert feeding.empty_runner(model, make_feeds(model).feeds, sequences, OrtSettings()) is None


def test_a_node_alone_makes_the_values_it_makes_in_the_model_whatever_it_is_fused_with():
    model = loading.from_proto(residual())
    feeds = make_feeds(model).feeds
    expected = tensors(model, feeds, OrtSettings(threads=1))
    pieces = replay.cut_nodes(model, feeds, model.nodes)
    for node, piece in zip(model.nodes, pieces, strict=True):
        (value,) = replay.runner(piece, 3, 2, OrtSettings(threads=1))()
        np.testing.assert_allclose(value, expected[node.outputs[0]], rtol=1e-5, atol=1e-6)


def test_nodes_in_bodies_and_with_bodies_cannot_run_alone():
    model = loading.from_proto(onnx.parser.parse_model(BRANCHES))
    feeds = {
        "x": np.ones(4, np.float32), "flag": np.array(True), "trips": np.array(3, np.int64),
    }  # fmt: skip
    pieces = replay.cut_nodes(model, feeds, model.nodes)
    for node, piece in zip(model.nodes, pieces, strict=True):
        left_out = node.scope.owner is not None or node.op_type in ("If", "Loop")
        assert (piece is None) == left_out


WITH_CONSTANTS = """
<ir_version: 9, opset_import: ["": 19]>
g (float[1,8,16,16] x) => (float[1,8,16,16] y) {
  doubled = Add (w, w)
  c = Conv <pads = [1, 1, 1, 1]> (x, doubled)
  y = Relu (c)
}
"""


def test_the_parts_of_nodes_sum_to_the_time_of_their_kernel(monkeypatch):
    monkeypatch.setattr(replay, "_SECONDS", 0.0)
    weight = np.random.default_rng(0).normal(size=(8, 8, 3, 3)).astype(np.float32)
    trace = tracer.profile(parse(WITH_CONSTANTS, w=weight), runs=5, threads=1, split=1)
    rows = trace.nodes.set_index("op_type")
    (kernel,) = rows["kernels"].dropna().loc[["Relu"]]
    assert rows.at["Conv", "kernels"] == kernel
    assert np.isnan(rows.at["Relu", "time_us"])
    assert 0 < rows.at["Relu", "time_us_split"] < rows.at["Conv", "time_us_split"]
    assert rows["time_us_split"].sum() == pytest.approx(rows["time_us"].sum())
    assert any("1 of 1 fused kernels" in note for note in trace.notes)
