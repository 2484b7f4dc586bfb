"""Bytes alive at each node: by hand, by simulation, and as onnxruntime allocates them."""

import json
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import tracer
from tests.examples import examples
from tests.graphs import BRANCHES, DATA_DEPENDENT, parse, residual
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.analyzers.memory import memory
from tracer.graph import loading, shape_inference

MODELS = Path(__file__).parents[2] / "models"
ROUNDED_TO = 256
"""onnxruntime's arena hands out multiples of it."""


def live(proto, **feeds):
    model = loading.from_proto(proto)
    return memory(TypedModel(model, shape_inference.infer(model, feeds)))


def test_a_residual_keeps_what_is_added_later_alive():
    found = live(residual(), x=(1, 3, 16, 16))
    features, image = 4 * 16 * 16 * 16, 4 * 3 * 16 * 16
    small = 4 * 16
    assert found["peak_bytes"].to_dict() == {
        "c1": image + features,
        "r1": 2 * features,
        "c2": 2 * features,  # r1 and c2
        "sum": 3 * features,
        "r2": 2 * features,
        "pool": features + small,
        "flat": small,  # shows what pool made
        "y": small + 40,
    }
    assert found["output_bytes"].to_dict()["flat"] == small


def test_weights_and_what_is_made_of_them_are_not_counted():
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[2,4] x) => (float[2,4] y) {
      c = Constant <value = float[4] {1, 2, 3, 4}> ()
      t = Transpose <perm = [1, 0]> (w)
      b = Add (c, c)
      m = MatMul (x, t)
      y = Add (m, b)
    }
    """
    found = live(parse(text, w=np.ones((4, 4), np.float32)))
    assert found["peak_bytes"].iloc[:3].tolist() == [32, 32, 32]  # x alone
    assert found["peak_bytes"].iloc[3:].tolist() == [64, 64]


def test_an_input_lives_from_the_start_and_a_result_to_the_end():
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[8] x, float[16] late) => (float[8] a, float[16] c) {
      a = Neg (x)
      b = Neg (late)
      c = Neg (b)
    }
    """
    assert live(parse(text))["peak_bytes"].tolist() == [32 + 64 + 32, 64 + 32 + 64, 32 + 64 + 64]


def test_a_body_runs_beside_what_is_alive_around_it():
    proto = parse(BRANCHES)
    found = live(proto)["peak_bytes"]
    model = loading.from_proto(proto)
    by_output = {node.outputs[0]: found[node.key] for node in model.nodes}
    flag, trips, four = 1, 8, 16
    around = four + flag + trips  # x, flag and trips while the If runs
    assert by_output["y"] == around + four
    assert by_output["t"] == around + four
    assert by_output["a"] == around + 2 * four
    assert by_output["z"] == trips + 2 * four  # y is a result, and z
    # beside y and trips: go, which is handed out as on, s, and d; i is read by nobody
    assert by_output["d"] == trips + four + 1 + 2 * four


def test_a_size_that_depends_on_data_makes_what_lives_with_it_unknown():
    found = live(parse(DATA_DEPENDENT), x=(2, 8))["peak_bytes"]
    assert found.iloc[0] == 128
    assert found.iloc[1:].isna().all()


@st.composite
def networks(draw):
    """Products and sums over tensors [1, 64k] of sizes that no two share, in any order."""
    sizes = draw(st.permutations(range(1, 9)))
    count = draw(st.integers(2, 7))
    made = [("x", 64 * sizes[0])]
    nodes, weights = [], []
    for index in range(count):
        source, width = made[draw(st.integers(0, len(made) - 1))]
        out = 64 * sizes[index + 1]
        weight = np.full((width, out), 0.01, np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{index}"))
        nodes.append(helper.make_node("MatMul", [source, f"w{index}"], [f"t{index}"], f"n{index}"))
        made.append((f"t{index}", out))
    value = helper.make_tensor_value_info
    read = {node.input[0] for node in nodes}
    unread = {index for index in range(count) if f"t{index}" not in read}
    results = draw(st.sets(st.integers(0, count - 1))) | unread  # what nobody needs is not run
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, [1, 64 * sizes[0]])],
        [value(f"t{i}", TensorProto.FLOAT, [1, 64 * sizes[i + 1]]) for i in sorted(results)],
        weights,
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


@given(networks())
def test_liveness_is_what_a_simulation_with_reference_counts_finds(proto):
    graph = proto.graph
    width = {v.name: v.type.tensor_type.shape.dim[1].dim_value for v in graph.input}
    weights = {w.name: w for w in graph.initializer}
    expected = []
    results = {v.name for v in graph.output}
    held = dict(width)
    for place, node in enumerate(graph.node):
        held[node.output[0]] = weights[node.input[1]].dims[1]
        later = {name for n in graph.node[place:] for name in n.input}
        held = {k: v for k, v in held.items() if k in later | results or k == node.output[0]}
        expected.append(4 * sum(held.values()))
    assert live(proto)["peak_bytes"].tolist() == expected


def requested(proto):
    """(node, bytes that the session has asked its arena for and not returned), as nodes ran."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = f"{folder}/p"
        session = ort.InferenceSession(proto.SerializeToString(), options)
        (fed,) = session.get_inputs()
        session.run(None, {fed.name: np.ones(fed.shape, np.float32)})
        events = json.loads(Path(session.end_profiling()).read_text())
    nodes = sorted((e for e in events if e["cat"] == "Node"), key=lambda event: event["ts"])
    if "mem_bytes_requested_in_use" not in nodes[0]["args"]:
        pytest.skip("this onnxruntime does not tell memory")
    return [
        (e["name"].removesuffix("_kernel_time"), int(e["args"]["mem_bytes_requested_in_use"]))
        for e in nodes
    ]


@examples(25)
@given(networks())
def test_onnxruntime_asks_for_what_liveness_says(proto):
    """In a first run without optimisation: all but the feeds, which are the caller's.

    It has an order of its own. What loading the model has asked for is the base.
    """
    asked = requested(proto)
    model = loading.from_proto(proto)
    found = memory(
        TypedModel(model, shape_inference.infer(model, {})), [(name,) for name, _ in asked]
    )["peak_bytes"]
    reads = {node.name: node.input[0] for node in proto.graph.node}
    last = max(place for place, (name, _) in enumerate(asked) if reads[name] == "x")
    fed = 4 * proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    own = [found[name] - (fed if place <= last else 0) for place, (name, _) in enumerate(asked)]
    assert len({size - mine for (_, size), mine in zip(asked, own, strict=True)}) == 1


def test_lenet_in_the_arena_differs_by_rounding_and_by_what_is_done_in_place():
    """Every figure of the arena follows from the liveness: Relu overwrites what it reads."""
    trace = tracer.profile(
        MODELS / "lenet" / "lenet.onnx", runs=1, warmup=0, threads=1, optimization="none"
    )
    nodes = trace.nodes
    sizes = nodes["output_bytes"].tolist()
    rounded = [-(-size // ROUNDED_TO) * ROUNDED_TO for size in sizes]
    base = nodes["arena_bytes"].iloc[0] - rounded[0]
    for place in range(1, len(nodes)):
        one_buffer = nodes["op_type"].iloc[place] in ("Relu", "Reshape")
        expected = rounded[place] + (0 if one_buffer else rounded[place - 1])
        assert nodes["arena_bytes"].iloc[place] - base == expected
        shared = sizes[place - 1] if nodes["op_type"].iloc[place] == "Reshape" else 0
        assert nodes["peak_bytes"].iloc[place] == sizes[place - 1] + sizes[place] - shared


def test_the_arena_tells_the_first_run_not_the_later_ones():
    once = tracer.profile(residual(), runs=1, warmup=0, threads=1, optimization="none")
    often = tracer.profile(residual(), runs=30, warmup=5, threads=1, optimization="none")
    assert once.nodes["arena_bytes"].notna().any()
    assert once.nodes["arena_bytes"].equals(often.nodes["arena_bytes"])
    most = [k.arena_peak_bytes for k in often.runs[0].kernels]
    assert most == sorted(most)
    assert max(most) >= often.nodes["arena_bytes"].max()


@pytest.mark.parametrize("by", ["op", "module"])
def test_a_group_needs_what_its_hungriest_node_needs(by):
    from tracer.analyzers.grouping import grouped

    nodes = tracer.count(residual()).nodes
    assert grouped(nodes, by)["peak_bytes"].max() == nodes["peak_bytes"].max()


def test_what_onnx_cannot_tell_is_missing():
    graph = helper.make_graph(
        [helper.make_node("Identity", ["s"], ["t"])],
        "g",
        [helper.make_tensor_value_info("s", TensorProto.STRING, [2])],
        [helper.make_tensor_value_info("t", TensorProto.STRING, [2])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(proto)
    assert live(proto)["peak_bytes"].isna().all()
