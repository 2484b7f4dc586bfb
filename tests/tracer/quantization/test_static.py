"""Quantised models against onnxruntime's own quantizer, run by onnxruntime and by us."""

from __future__ import annotations

import io
import logging
from contextlib import redirect_stdout
from itertools import count

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import tracer
from models import families
from tests.graphs import parse
from tracer.errors import InputError, ModelError, UsageError
from tracer.graph import loading
from tracer.inputs.datasets.opening import open_dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.quantization import calibration
from tracer.quantization.layers import losses
from tracer.quantization.options import QuantizationOptions as Options
from tracer.quantization.quantizer import quantize

RANDOM = np.random.default_rng(3)
NET = """(float[N,2,8,8] x) => (float[N,4] y) {
  [c] c = Conv <pads = [1,1,1,1]> (x, w)
  [n] n = BatchNormalization (c, gamma, beta, mean, variance)
  [r] r = Relu (n)
  [p] p = AveragePool <kernel_shape = [2,2], strides = [2,2]> (r)
  [a] a = Add (p, p)
  [k] k = Concat <axis = 1> (a, p)
  [l] l = LeakyRelu <alpha = 0.1> (k)
  [g] g = GlobalAveragePool (l)
  [f] f = Flatten (g)
  [y] y = Gemm (f, m, b)
}"""


def net(opset: int = 17) -> onnx.ModelProto:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {NET}')
    shapes = {"w": (3, 2, 3, 3), "gamma": 3, "beta": 3, "mean": 3, "m": (6, 4), "b": 4}
    random = np.random.default_rng(3)
    weights = {name: random.normal(0, 0.5, shape) for name, shape in shapes.items()}
    weights["variance"] = random.uniform(0.5, 2, 3)
    for name, value in weights.items():
        proto.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    for node, name in zip(proto.graph.node, "cnrpaklgfy", strict=True):
        node.name = name
        node.metadata_props.add(key="io.github.tracer-onnx.module", value=f"module.{name}")
    proto.metadata_props.add(key="who", value="me")
    return proto


def batches(count: int = 4, shape: tuple[int, ...] = (8, 2, 8, 8)) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(4)
    return [{"x": random.normal(0, 1, shape).astype(np.float32)} for _ in range(count)]


def by_onnxruntime(proto: onnx.ModelProto, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options).run(None, feeds)[0]


FORMATS = [
    Options(),
    Options(per_channel=False, symmetric=True, activation_type="int8"),
    Options(method="percentile", weight_type="uint8"),
    Options(method="entropy", reduce_range=True),
    Options(activation_type="uint16", weight_type="int16"),
    Options(format="qoperator", reduce_range=True),
    Options(format="qoperator", reduce_range=True, per_channel=False, activation_type="int8"),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("options", FORMATS, ids=str)
def test_the_interpreter_and_onnxruntime_agree_on_what_was_quantised(options):
    model, samples = loading.from_proto(net()), batches()
    quantized = quantize(model, samples, options)
    onnx.checker.check_model(quantized.proto, full_check=True)
    (ours,) = Interpreter(quantized.proto).run(None, samples[0])
    theirs = by_onnxruntime(quantized.proto, samples[0])
    whole = by_onnxruntime(model.proto, samples[0])
    step = np.ptp(whole) / 255
    assert np.abs(ours - theirs).max() <= 2.1 * step  # a tie in one layer is a step in the next
    assert np.abs(ours - whole).max() <= 0.1 * np.ptp(whole)


@pytest.mark.parametrize("format_", ["qdq", "qoperator"])
def test_nodes_keep_names_modules_and_the_model_its_metadata(format_):
    quantized = quantize(loading.from_proto(net()), batches(), Options(format=format_))
    loaded = loading.from_proto(quantized.proto)
    modules = {node.key: node.module for node in loaded.nodes}
    kept = {"c", "p", "a", "k", "g", "f", "y"} | ({"l"} if format_ == "qdq" else set())
    assert kept <= set(modules)
    assert all(modules[key] == f"module.{key}" for key in kept)
    assert None not in modules.values()
    assert {e.key: e.value for e in quantized.proto.metadata_props}["who"] == "me"
    assert set(loaded.opsets) == {"", *(["com.microsoft"] if format_ == "qoperator" else [])}


def test_long_metadata_are_kept_where_they_were_and_copied_nowhere():
    """Stack traces of torch on each new node made quantised models larger than the float ones."""
    proto, key = net(), "pkg.torch.onnx.stack_trace"
    for node in proto.graph.node:
        node.metadata_props.add(key=key, value='File "/a/net.py", line 3, in forward\n' * 100)
    quantized = quantize(loading.from_proto(proto), batches())
    names = {node.name for node in proto.graph.node}
    keys = {n.name: {e.key for e in n.metadata_props} for n in quantized.proto.graph.node}
    assert {name for name in keys if key in keys[name]} == names & set(keys)
    nodes = loading.from_proto(quantized.proto).nodes
    assert {(node.module is not None, node.source) for node in nodes} == {(True, "net.py:3")}


def test_layers_tell_how_much_noise_is_in_them():
    model, samples = loading.from_proto(net()), batches()
    quantized = quantize(model, samples)
    layers = {layer.node: layer for layer in quantized.layers}
    assert list(layers) == ["c", "p", "a", "k", "l", "g", "f", "y"]
    whole = np.concatenate([by_onnxruntime(model.proto, feeds) for feeds in samples])
    ours = np.concatenate([by_onnxruntime(quantized.proto, feeds) for feeds in samples])
    expected = 10 * np.log10((whole**2).sum() / ((whole - ours) ** 2).sum())
    assert layers["y"].sqnr_db == pytest.approx(expected, abs=0.5)
    assert layers["f"].added_noise == 0
    assert layers["c"].module == "module.c"
    fewer = quantize(model, samples, Options(activation_type="uint16", weight_type="int16"))
    assert all(
        a.sqnr_db > b.sqnr_db + 20 for a, b in zip(fewer.layers, quantized.layers, strict=True)
    )


def test_a_quantised_convolution_has_the_noise_of_its_activation():
    """In the qoperator format a Relu becomes part of the convolution before it."""
    model, samples = loading.from_proto(net()), batches()
    layers = {f: quantize(model, samples, Options(format=f)).layers for f in ("qdq", "qoperator")}
    first = {f: rows[0] for f, rows in layers.items()}
    assert first["qoperator"].node == first["qdq"].node == "c"
    assert first["qoperator"].sqnr_db == pytest.approx(first["qdq"].sqnr_db, abs=1)


def test_patterns_choose_nodes():
    def quantised(options):
        proto = quantize(loading.from_proto(net()), batches(2), options).proto
        producers = {name: node for node in proto.graph.node for name in node.output}
        wide = [n for n in proto.graph.node if n.op_type in ("Conv", "Gemm")]
        return {n.name for n in wide if producers.get(n.input[1], n).op_type == "DequantizeLinear"}

    assert quantised(Options()) == {"c", "y"}
    assert quantised(Options(exclude=("Gemm",))) == {"c"}
    assert quantised(Options(nodes=("module.y",))) == {"y"}
    with pytest.raises(UsageError, match=r"'fc\*' matches no node.*Conv"):
        quantised(Options(nodes=("fc*",)))
    with pytest.raises(UsageError, match="no node remains"):
        quantised(Options(exclude=("*",)))


def test_nothing_is_printed_logged_or_left_behind(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    onnx.save(net(), "net.onnx")
    handlers = list(logging.getLogger().handlers)
    reports = []
    with redirect_stdout(io.StringIO()) as printed, caplog.at_level(logging.DEBUG):
        quantize(
            loading.load("net.onnx"), batches(3), Options(method="entropy"),
            progress=lambda *report: reports.append(report),
        )  # fmt: skip
    assert not printed.getvalue()
    assert not caplog.records
    assert logging.getLogger().handlers == handlers
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
    steps = [(done, total) for done, total, what in reports if what == "calibrating"]
    assert steps == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy"])
def test_batches_are_read_one_at_a_time(method):
    class Counted:
        alive = 0

        def __len__(self):
            return 5

        def __iter__(self):
            for feeds in batches(5):
                self.alive += 1
                yield feeds

    counted, seen = Counted(), []
    quantize(
        loading.from_proto(net()), counted, Options(method=method),
        progress=lambda done, total, what: seen.append((what, counted.alive - done)),
    )  # fmt: skip
    assert {ahead for what, ahead in seen if what == "calibrating"} <= {-1, 0}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("family", ["lenet", "resnet_cifar", "transformer"])
def test_shipped_models_keep_their_predictions(family):
    model = loading.load(families.shipped(family, "torch"))
    data = open_dataset("digits", model, limit=64)
    samples = [batch.inputs for batch in data.batches(32)]
    quantized = quantize(model, samples)
    before = np.concatenate([Interpreter(model).run(None, feeds)[0] for feeds in samples])
    after = np.concatenate([Interpreter(quantized.proto).run(None, feeds)[0] for feeds in samples])
    assert (before.argmax(1) == after.argmax(1)).mean() >= 0.98


BAD = [
    ({"format": "qlinear"}, "no format 'qlinear'"),
    ({"method": "mse"}, "no method 'mse'"),
    ({"weight_type": "float8"}, "no weight type 'float8'"),
    ({"format": "qoperator", "weight_type": "int16"}, "integer operators take 8 bits"),
    ({"activation_type": "int8", "weight_type": "uint8"}, "Use int8 weights"),
    ({"weight_type": "int16", "reduce_range": True}, "8-bit weights"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_options_that_are_none(arguments, message):
    with pytest.raises(UsageError, match=message):
        Options(**arguments)


def test_a_model_that_is_quantised_already():
    quantized = quantize(loading.from_proto(net()), batches(1))
    with pytest.raises(ModelError, match=r"quantised already: node .* is a \w+Linear"):
        quantize(loading.from_proto(quantized.proto), batches(1))


def test_no_data():
    with pytest.raises(InputError, match="nothing to calibrate with"):
        quantize(loading.from_proto(net()), [])


def test_data_that_do_not_fit():
    with pytest.raises(InputError, match="dimension 2 is fixed at 8, not 9"):
        quantize(loading.from_proto(net()), batches(1, (1, 2, 9, 9)))


OLD = """(float[N,2,8,8] x) => (float[N,4] y) {
  [c] c = Conv <pads = [1,1,1,1]> (x, w)
  [s] s = Softmax (c)
  [u] u = Unsqueeze <axes = [1]> (s)
  [v] v = Squeeze <axes = [1]> (u)
  [d] d = ReduceSum <axes = [2, 3], keepdims = 0> (v)
  [g] y = MatMul (d, m)
}"""
"""Operators whose axes are attributes, or flatten the shape, up to opset 12."""


@pytest.mark.parametrize("opset", [8, 11, 12])
def test_an_old_opset_is_raised_for_scales_of_each_channel(opset):
    proto = onnx.parser.parse_model(f'<ir_version: 6, opset_import: ["": {opset}]> g {OLD}')
    random = np.random.default_rng(3)
    for name, shape in {"w": (3, 2, 3, 3), "m": (3, 4)}.items():
        value = random.normal(0, 0.5, shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(value, name))
    for node in proto.graph.node:
        node.metadata_props.add(key="io.github.tracer-onnx.module", value=f"module.{node.name}")
    quantized = quantize(loading.from_proto(proto), batches(2))
    assert quantized.notes[0].startswith(f"the opset was raised from {opset} to 13")
    nodes = {node.key: node for node in loading.from_proto(quantized.proto).nodes}
    assert all(nodes[name].module == f"module.{name}" for name in ("c", "s", "d", "g"))
    feeds = batches(1)[0]
    expected = by_onnxruntime(proto, feeds)
    error = np.abs(by_onnxruntime(quantized.proto, feeds) - expected).max()
    assert error < 0.05 * np.abs(expected).max()


LISTED = """<ir_version: 3, opset_import: ["": 9]>
g (float[N,2,8,8] x, int64[4] shape, float[3] b) => (float[N,3,6,6] y)
    <int64[4] shape = {3, 2, 3, 3}, float[3] b = {0.5, -0.5, 0.25}> {
  w = ConstantOfShape <value = float[1] {0.125}> (shape)
  y = Conv (x, w, b)
}"""
"""Before IR 4, weights are listed as inputs, and constants that are folded into them are not."""


@pytest.mark.parametrize("per_channel", [True, False])
def test_weights_that_are_computed_in_a_graph_of_ir_3_are_quantised(per_channel):
    proto = onnx.parser.parse_model(LISTED)
    options = Options(per_channel=per_channel)
    quantized = quantize(loading.from_proto(proto), batches(2), options)
    assert [value.name for value in quantized.proto.graph.input] == ["x"]
    feeds = batches(1)[0]
    expected = by_onnxruntime(proto, feeds)
    error = np.abs(by_onnxruntime(quantized.proto, feeds) - expected).max()
    assert error < 0.05 * np.abs(expected).max()


def test_an_opset_that_onnx_cannot_raise_is_refused(monkeypatch):
    def refuse(*_):
        raise RuntimeError("no adapter")

    monkeypatch.setattr("tracer.quantization.preparation.version_converter.convert_version", refuse)
    model = loading.from_proto(net(11))
    with pytest.raises(ModelError, match=r"opset 11 .* no adapter. Use --per-tensor"):
        quantize(model, batches(1))
    assert quantize(model, batches(1), Options(per_channel=False)).layers


def test_a_node_that_breaks_onnxruntime_s_quantizer_is_named():
    """The quantizer takes the only row of a normalisation's bias for its first channel."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[8,6] x) => (float[8,4] y) {
      [n] n = LayerNormalization (x, s, b)  [y] y = MatMul (n, w)
    }"""
    proto = onnx.parser.parse_model(text)
    for name, shape in {"s": (1, 6), "b": (1, 6), "w": (6, 4)}.items():
        value = RANDOM.uniform(0.5, 1, shape).astype(np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(value, name))
    model, feeds = loading.from_proto(proto), batches(1, (8, 6))
    left = r"at node 'n'\). Leave nodes out: tracer quantize --exclude 'n'"
    with pytest.raises(ModelError, match=left):
        quantize(model, feeds)
    assert quantize(model, feeds, Options(exclude=("n",))).layers


def test_names_that_the_quantizer_makes_twice_are_told():
    proto = net()
    taken = proto.graph.node[0].input[0] + "_DequantizeLinear_Output"
    for node in proto.graph.node:
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = taken if name == "r" else name
    with pytest.raises(ModelError, match=r"made a graph that onnxruntime refuses: .*Duplicate"):
        quantize(loading.from_proto(proto), batches(1))


def test_a_newer_opset_for_wide_types_is_told():
    quantized = quantize(loading.from_proto(net()), batches(1), Options(activation_type="int16"))
    assert quantized.notes[0].startswith("the opset was raised from 17 to 21")


def test_a_model_without_anything_to_quantise():
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Sin (x) }'
    with pytest.raises(ModelError, match="nothing in it was quantised"):
        quantize(loading.from_proto(onnx.parser.parse_model(text)), [{"x": np.ones(2, np.float32)}])


def test_a_model_whose_work_is_in_bodies_is_told_so():
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1,2] x, bool c) => (float[1,2] y) <float[2,2] w = {1, 2, 3, 4}> {
      y = If (c) <then_branch = t () => (float[1,2] a) { a = MatMul (x, w) },
                  else_branch = e () => (float[1,2] b) { b = Sin (x) }>
    }"""
    feeds = {"x": np.ones((1, 2), np.float32), "c": np.array(True)}
    with pytest.raises(ModelError, match="2 of its 3 nodes are in bodies of If, Loop or Scan"):
        quantize(loading.from_proto(onnx.parser.parse_model(text)), [feeds])


def test_weights_in_a_file_of_their_own(tmp_path):
    model = net()
    samples = batches(2)
    whole = quantize(loading.from_proto(model), samples).proto
    onnx.save(
        model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data",
        size_threshold=64,
    )  # fmt: skip
    quantized = quantize(loading.load(tmp_path / "m.onnx"), samples).proto
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.data", "m.onnx"]
    assert not any(weight.external_data for weight in quantized.graph.initializer)
    np.testing.assert_array_equal(
        by_onnxruntime(quantized, samples[0]), by_onnxruntime(whole, samples[0])
    )


@pytest.mark.parametrize("format_", ["qdq", "qoperator"])
def test_nodes_without_names_and_bodies_that_read_from_around_them(format_):
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[N,4] x, bool c) => (float[N,4] y) {
      g = MatMul (x, v)
      h = MatMul (g, w)
      r = Relu (h)
      y = If (c) <then_branch = t () => (float[N,4] a) { a = MatMul (r, w) },
                  else_branch = e () => (float[N,4] b) { b = Neg (r) }>
    }"""
    proto = onnx.parser.parse_model(text)
    w = RANDOM.normal(0, 1, (4, 4)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    proto.graph.initializer.append(numpy_helper.from_array(w.T.copy(), "v"))
    feeds = {"x": RANDOM.normal(0, 1, (6, 4)).astype(np.float32), "c": np.array(True)}
    quantized = quantize(loading.from_proto(proto), [feeds], Options(format_, reduce_range=True))
    whole = by_onnxruntime(proto, feeds)
    assert np.abs(by_onnxruntime(quantized.proto, feeds) - whole).max() <= 0.05 * np.ptp(whole)
    assert np.abs(Interpreter(quantized.proto).run(None, feeds)[0] - whole).max() <= 0.05 * np.ptp(
        whole
    )
    assert "MatMul_0" in {layer.node for layer in quantized.layers}


@pytest.mark.filterwarnings("error")
def test_infinite_values_have_no_error():
    text = "(float[N] x) => (float[N] y) { [z] z = Reciprocal (x)  [y] y = Neg (z) }"
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}')
    model = loading.from_proto(proto)
    layers = losses(model, model, [{"x": np.array([0, 1, 2], np.float32)}]).layers
    assert {layer.node: layer.sqnr_db for layer in layers} == {"z": np.inf, "y": np.inf}


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy"])
def test_data_that_are_not_numbers_are_an_error_without_a_warning(recwarn, method):
    nothing = [{"x": np.full((8, 2, 8, 8), np.nan, np.float32)}]
    with pytest.raises(InputError, match=r"'x' of the calibration data holds NaN .*Leave such"):
        quantize(loading.from_proto(net()), nothing, Options(method=method))
    assert not [str(each.message) for each in recwarn if "NaN" in str(each.message)]


def test_a_time_limit_ends_the_measurements_early_and_keeps_the_model(tmp_path, monkeypatch):
    """A second passes with each look at the clock, and 20 are left when a measurement begins."""
    clock = count()
    monkeypatch.setattr("tracer.quantization.layers.time.monotonic", lambda: next(clock))
    monkeypatch.setattr("tracer.containment.signals.seconds_left", lambda: 20.0)
    onnx.save(net(), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=RANDOM.standard_normal((40, 2, 8, 8)).astype(np.float32))
    result = tracer.quantize(
        tmp_path / "m.onnx", tmp_path / "x.npz", output=tmp_path / "q.onnx", batch=2,
        in_process=True,
    )  # fmt: skip
    assert any(
        "layers were measured on" in note and "of 20 batches" in note for note in result.notes
    )
    scored = result.accuracy.samples
    assert 2 < scored < 40
    assert f"out of time: the accuracy was measured on {scored} of 40 samples" in result.notes
    assert result.layers
    ort.InferenceSession(tmp_path / "q.onnx")


def test_few_samples_of_large_values_run_at_a_time(tmp_path, monkeypatch):
    model = """<ir_version: 8, opset_import: ["": 17]>
        g (float[N, 1, 64, 64] x) => (float[N, 256, 64, 64] y) { y = Conv <pads=[1,1,1,1]> (x, w) }
    """
    weights = np.random.default_rng(0).normal(size=(256, 1, 3, 3)).astype(np.float32)
    onnx.save(parse(model, w=weights), tmp_path / "m.onnx")  # 4 MiB of values for a sample
    data = {"x": np.random.default_rng(1).random((9, 1, 64, 64), np.float32)}
    usual = tracer.quantize(tmp_path / "m.onnx", data)
    assert not any("the batch is" in note for note in usual.notes)
    monkeypatch.setattr(calibration, "_MOST_BYTES", 20 << 20)
    few = tracer.quantize(tmp_path / "m.onnx", data, in_process=True)
    told = "the batch is 5, as the values of 32 samples would take 128.0 MiB"
    assert told in few.notes
    assert few.proto.SerializeToString() == usual.proto.SerializeToString()
    own = tracer.quantize(tmp_path / "m.onnx", data, batch=8, in_process=True)
    assert not any("the batch is" in note for note in own.notes)
