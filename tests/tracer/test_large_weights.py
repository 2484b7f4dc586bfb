"""Weights in files beside the model: read in place, and held once."""

import gc
import json
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import tracer
from tests.graphs import parse
from tracer.analyzers.compare import numbers
from tracer.containment.activity import silent
from tracer.errors import UsageError
from tracer.executors.onnxruntime import all_outputs, calibration, fusion_check, replay, sessions
from tracer.executors.onnxruntime.executor import executor
from tracer.executors.settings import OrtSettings
from tracer.exporters import writing
from tracer.graph import loading, stored_weights
from tracer.inputs.feedset import FeedSet
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.operators import MemoryBudget, once
from tracer.limits import Limits
from tracer.quantization.options import QuantizationOptions
from tracer.quantization.quantizer import quantize


def chain(folder, size, layers=2, shift=0):
    """Writes a chain of matrix products, whose weights begin `shift` bytes into their file."""
    random, stored = np.random.default_rng(0), []
    with (folder / "w.bin").open("wb") as stream:
        stream.write(bytes(shift))
        for place in range(layers):
            tensor = onnx.TensorProto(name=f"w{place}", data_type=1, dims=[size, size])
            tensor.data_location = onnx.TensorProto.EXTERNAL
            entries = {"location": "w.bin", "offset": stream.tell(), "length": 4 * size**2}
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=str(value))
            stream.write((random.standard_normal((size, size)) / size**0.5).astype("f4").tobytes())
            stored.append(tensor)
    nodes = [
        helper.make_node("MatMul", [f"x{place}", f"w{place}"], [f"x{place + 1}"], f"mm{place}")
        for place in range(layers)
    ]
    ends = [helper.make_tensor_value_info(f"x{n}", 1, [1, size]) for n in (0, layers)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], stored)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "m.onnx")
    return folder / "m.onnx", {"x0": random.standard_normal((1, size)).astype("f4")}


LIMITED = """
import sys
import numpy as np
from tracer.interpreter.interpreter import Interpreter
from tracer.containment import memory
Interpreter(sys.argv[2]).run(None, {"x0": np.ones((1, 512), np.float32)})
memory.limit(1 << 40)
memory.limit((1 << 40) - memory.room_bytes() + (96 << 20))
outputs = Interpreter(sys.argv[1]).run(None, {"x0": np.ones((1, 4096), np.float32)})
print(outputs[0].sum())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux alone limits its memory")
def test_weights_take_no_memory_of_the_interpreters_own(tmp_path):
    for name in ("large", "small"):
        (tmp_path / name).mkdir()
    large, _ = chain(tmp_path / "large", 4096, 3)  # 192 MiB, of which 96 may be allocated
    small, _ = chain(tmp_path / "small", 512)
    command = [sys.executable, "-c", LIMITED, str(large), str(small)]
    ended = subprocess.run(command, capture_output=True, text=True)
    feeds = {"x0": np.ones((1, 4096), np.float32)}
    (theirs,) = ort.InferenceSession(large).run(None, feeds)
    assert not ended.returncode, ended.stderr
    assert float(ended.stdout) == pytest.approx(theirs.sum(), rel=1e-3)


@pytest.mark.parametrize("shift", [0, 4, 2, 1])
def test_weights_are_read_wherever_they_begin(shift, tmp_path):
    path, feeds = chain(tmp_path, 160, shift=shift)
    (theirs,) = ort.InferenceSession(path).run(None, feeds)
    np.testing.assert_allclose(Interpreter(path).run(None, feeds)[0], theirs, rtol=1e-4, atol=1e-6)
    tensor = loading.load(path).graph.initializer[0]
    read = stored_weights.read_external(tensor, tmp_path)
    np.testing.assert_array_equal(read, onnx.numpy_helper.to_array(tensor, str(tmp_path)))
    assert not read.flags.writeable


@pytest.fixture
def side_by_side(monkeypatch):
    """The largest number of sessions on a model with weights that were open at a time."""
    calibration.measure(0)  # once a process, with sessions of its own
    opened, most = [], [0]
    open_ = sessions.Factory.open

    def counting(factory, *args, **kwargs):
        session = open_(factory, *args, **kwargs)
        numbers = factory.model.nodes and factory.model.graph.initializer  # of no empty run
        if numbers and not factory.stored:
            opened.append(weakref.ref(session))
            gc.collect()
            most[0] = max(most[0], alive())
        return session

    def alive():
        return sum(reference() is not None for reference in opened)

    monkeypatch.setattr(sessions.Factory, "open", counting)
    return lambda: (most[0], alive(), len(opened))


@pytest.mark.nightly
@pytest.mark.parametrize(("large", "most"), [(1, 1), (1 << 20, 2)])
def test_sessions_on_a_large_model_are_open_one_at_a_time(
    large, most, side_by_side, tmp_path, monkeypatch
):
    monkeypatch.setattr(stored_weights, "_LARGE", large)
    path, feeds = chain(tmp_path, 64)
    settings = OrtSettings(runs=6, warmup=1)
    run = executor.profile(loading.load(path), FeedSet(feeds, 1), settings).run
    assert side_by_side()[0] == most
    assert side_by_side()[1] == 0
    assert len(run.instrumented_us) == 6
    assert len(run.wall_us) >= 6
    assert [kernel.op_type for kernel in run.kernels] == ["MatMul", "MatMul"]


@pytest.mark.nightly
@pytest.mark.parametrize(("large", "most"), [(1, 0), (1 << 20, 1)])
def test_the_session_of_a_large_model_is_closed_while_kernels_run_alone(
    large, most, side_by_side, tmp_path, monkeypatch
):
    monkeypatch.setattr(stored_weights, "_LARGE", large)
    monkeypatch.setattr(replay, "_SECONDS", 0.0)
    path, feeds = chain(tmp_path, 64)
    feedset, run_alone, alive = FeedSet(feeds, 1), replay.runner, []
    graph = executor.optimize(loading.load(path), feedset, OrtSettings())

    def runner(*args):
        alive.append(side_by_side()[1])
        return run_alone(*args)

    monkeypatch.setattr(replay, "runner", runner)
    shares = graph.replay(feedset, graph.kernels, silent)
    assert max(alive) == most
    assert np.isfinite(shares).all()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("large", "most"), [(1, 0), (1 << 20, 1)])
def test_the_session_of_a_large_model_is_closed_before_the_interpreter_reads_the_weights(
    large, most, side_by_side, tmp_path, monkeypatch
):
    monkeypatch.setattr(stored_weights, "_LARGE", large)
    path, feeds = chain(tmp_path, 64)
    model = loading.load(path)
    graph = executor.optimize(model, FeedSet(feeds, 1), OrtSettings())
    read, other = [], {"x0": -feeds["x0"]}

    def interpreter(*args, **kwargs):
        read.append(side_by_side())
        return Interpreter(*args, **kwargs)

    monkeypatch.setattr(fusion_check, "Interpreter", interpreter)
    found = fusion_check.evidence(
        model, graph.folder.graph, [feeds, other], OrtSettings(threads=1), Limits(), silent
    )
    ((_, alive, opened),) = read
    assert (alive, opened) == (most, 2)
    assert {name: set(equal) for name, equal in found.equal.items()}["x2"] == {"x2"}


@pytest.mark.parametrize(
    "options",
    [
        QuantizationOptions(),
        QuantizationOptions(format="qoperator"),
        QuantizationOptions(method="percentile", per_channel=False, symmetric=True),
        QuantizationOptions(method="entropy", weight_type="uint8", reduce_range=True),
    ],
)
def test_weights_that_stay_in_a_file_are_quantised_alike(options, tmp_path, monkeypatch):
    path, feeds = chain(tmp_path, 64)
    whole = quantize(loading.load(path), [feeds, feeds], options)
    monkeypatch.setattr(stored_weights, "_LARGE", 1)
    apart = quantize(loading.load(path), [feeds, feeds], options)
    assert apart.layers == whole.layers
    assert all(
        weight.external_data for weight in apart.proto.graph.initializer if len(weight.dims) > 1
    )
    graphs = (
        stored_weights.with_inline_weights(each.proto, each.folder).SerializeToString()
        for each in (apart, whole)
    )
    values = [ort.InferenceSession(graph).run(None, feeds)[0] for graph in graphs]
    np.testing.assert_array_equal(*values)


def test_a_large_quantised_model_is_two_files(tmp_path, monkeypatch):
    path, feeds = chain(tmp_path, 64)
    np.savez(tmp_path / "x.npz", **feeds)
    kept = tracer.quantize(path, tmp_path / "x.npz", in_process=True)
    monkeypatch.setattr(stored_weights, "_LARGE", 1)
    monkeypatch.setattr(writing, "_MOST_INSIDE", 1)
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "q.onnx"
    for force in (False, True):
        result = tracer.quantize(
            path, tmp_path / "x.npz", output=output, force=force, in_process=True
        )
    assert (result.layers, result.accuracy) == (kept.layers, kept.accuracy)
    names = sorted(file.name for file in output.parent.iterdir())
    assert names == ["q.onnx", "q.onnx.2.data"]
    assert any("q.onnx.2.data, which must stay" in note for note in result.notes)
    values = [
        ort.InferenceSession(model).run(None, feeds)[0]
        for model in (output, kept.proto.SerializeToString())
    ]
    np.testing.assert_array_equal(*values)
    with pytest.raises(UsageError, match="in a file of their own"):
        result.save(tmp_path / "copy.onnx")


def test_no_weights_are_loaded_to_be_quantised(tmp_path, monkeypatch):
    path, feeds = chain(tmp_path, 64)
    monkeypatch.setattr(stored_weights, "_LARGE", 1)
    loaded, load = [], onnx.external_data_helper.load_external_data_for_tensor

    def counting(tensor, folder):
        loaded.append(tensor.name)
        load(tensor, folder)

    for module in (onnx.external_data_helper, onnx):
        monkeypatch.setattr(module, "load_external_data_for_tensor", counting, raising=False)
    quantize(loading.load(path), [feeds], QuantizationOptions())
    assert not {"w0", "w1"} & set(loaded)


def test_the_opset_of_weights_in_a_file_is_raised(tmp_path, monkeypatch):
    path, feeds = chain(tmp_path, 64)
    old = onnx.load(path, load_external_data=False)
    old.opset_import[0].version = 12
    onnx.save(old, path)
    monkeypatch.setattr(stored_weights, "_LARGE", 1)
    quantized = quantize(loading.load(path), [feeds])
    assert quantized.model.opsets[""] == 13
    assert quantized.layers == quantize(loading.load(chain(tmp_path, 64)[0]), [feeds]).layers


def test_the_floats_of_integer_weights_are_not_alive_together(tmp_path):
    path, feeds = chain(tmp_path, 64, 8)
    options = QuantizationOptions(reduce_range=True)  # onnxruntime saturates none of their sums
    quantized = quantize(loading.load(path), [feeds], options).model
    first = [node.op_type for node in quantized.graph.node[:8]]
    interpreter = Interpreter(quantized)
    outputs = interpreter.run(None, feeds)
    assert first == ["DequantizeLinear"] * 8
    assert interpreter.peak_bytes < 2 * 4 * 64**2
    theirs = ort.InferenceSession(quantized.proto.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(outputs, theirs, rtol=0.02, atol=0.02)


def test_pages_of_mapped_weights_leave_the_process_and_come_back(tmp_path):
    path, _ = chain(tmp_path, 512)
    tensor = loading.load(path).graph.initializer[0]
    read = stored_weights.read_external(tensor, tmp_path)
    before = read.copy()
    stored_weights.unmap(read)
    stored_weights.unmap(before)  # has no file
    np.testing.assert_array_equal(read, before)


@pytest.mark.parametrize(("room", "times", "left"), [(1 << 20, 1, (1 << 20) - 400), (399, 2, 399)])
def test_constants_beyond_the_room_of_a_model_are_computed_in_each_run(room, times, left):
    calls, space = [], MemoryBudget(room)

    def kernel(inputs, bodies):
        calls.append(inputs)
        return [np.ones(100, np.float32)]

    kept = once(kernel, space)
    inputs = [np.ones(100, np.float32)]
    assert [kept(inputs, {})[0].sum() for _ in range(2)] == [100, 100]
    assert len(calls) == times
    assert space.nbytes == left


def test_fingerprints_do_not_depend_on_how_much_is_summed_at_once(tmp_path, monkeypatch):
    model = loading.load(chain(tmp_path, 64)[0])
    before = numbers._weights(model)
    monkeypatch.setattr(numbers, "_AT_ONCE", 1000)
    assert numbers._weights(model) == before
    arrays = [stored_weights.read_external(tensor, tmp_path) for tensor in model.graph.initializer]
    by_hand = [sum(int(bits) ** 2 for bits in a.view("u4").flat) % (1 << 64) for a in arrays]
    assert sorted(squares for _, _, squares in before) == sorted(by_hand)


def test_the_floats_of_integer_weights_are_no_tensors_to_compare(monkeypatch):
    model = loading.load("models/lenet/lenet.int8.onnx")
    (value,) = model.inputs
    shape = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
    feeds = {value.name: np.random.default_rng(0).normal(0, 1, shape).astype("f4")}
    whole = all_outputs.tensors(model, feeds)
    monkeypatch.setattr(stored_weights, "_LARGE", 1)
    kept = all_outputs.tensors(model, feeds)
    stored = {weight.name for weight in model.graph.initializer}
    constant = {
        name
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in stored
        for name in node.output
    }
    assert constant and set(kept) == set(whole) - constant
    for name, value in kept.items():
        np.testing.assert_array_equal(value, whole[name])


def test_onnxruntime_computes_the_floats_of_a_weight_right_before_they_are_read(tmp_path):
    layers = range(4)
    nodes = "".join(
        f"q{n} = QuantizeLinear (x{n}, s, z)  a{n} = DequantizeLinear (q{n}, s, z) "
        f"[b{n}] b{n} = DequantizeLinear (w{n}, s, z)  [m{n}] x{n + 1} = MatMul (a{n}, b{n}) "
        for n in layers
    )
    ends = "(float[1,3] x0) => (float[1,3] x4)"
    text = f'<ir_version: 8, opset_import: ["": 17]> g {ends} {{ {nodes} }}'
    stored = {f"w{n}": np.eye(3, dtype=np.int8) for n in layers}
    proto = parse(text, s=np.float32(0.1), z=np.int8(0), **stored)

    def weights_and_products(model):
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "p")
        session = ort.InferenceSession(model.SerializeToString(), options)
        session.run(None, {"x0": np.ones((1, 3), np.float32)})
        events = json.loads(Path(session.end_profiling()).read_text())
        names = [event["name"] for event in events if event["name"].endswith("_kernel_time")]
        return [name[:2] for name in names if name[0] in "bm"]

    assert weights_and_products(proto)[:4] == ["b3", "b2", "b1", "b0"]
    found = all_outputs._constant_first(loading.from_proto(proto), proto.graph)
    assert found == {f"b{place}" for place in layers}
    assert weights_and_products(proto) == [f"{kind}{n}" for n in layers for kind in "bm"]
