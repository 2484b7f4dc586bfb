"""`tracer quantize` as a user meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pandas as pd
import pytest

import tracer
import tracer.cli
from models import families
from tests.tracer.quantization.test_channels import detector
from tests.tracer.quantization.test_static import batches, net
from tracer.graph import loading
from tracer.inputs.datasets.opening import open_dataset
from tracer.quantization.options import QuantizationOptions
from tracer.records import environment

LENET = families.shipped("lenet", "torch")


def run(capfd, *args):
    code = tracer.cli.main(["quantize", *(str(arg) for arg in args)])
    out = capfd.readouterr()
    return code, out.out, out.err


@pytest.fixture
def small(tmp_path):
    """A model, and samples for it without labels."""
    onnx.save(net(), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.concatenate([b["x"] for b in batches(3)]))
    return tmp_path


def test_a_model_whose_output_is_a_scalar(tmp_path):
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[1,4] x) => (float y) <float[4,2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
      h = MatMul (x, w)
      y = ReduceMean <keepdims = 0> (h)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    x = np.array([[0.31, -0.2, 0.77, 0.4]], np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    options = QuantizationOptions(reduce_range=True)  # onnxruntime saturates no sums of them
    quantized = tracer.quantize(tmp_path / "m.onnx", tmp_path / "x.npz", options=options)
    before, after = (
        ort.InferenceSession(each.SerializeToString()).run(None, {"x": x})[0].astype(np.float64)
        for each in (onnx.load(tmp_path / "m.onnx"), quantized.proto)
    )
    noise = (after - before) ** 2 / before**2
    assert noise > 0
    assert quantized.accuracy.metric == "noise"
    assert quantized.accuracy.after == pytest.approx(100 * noise, rel=1e-3)  # in %


def test_accuracy_before_and_after_and_the_layers_that_lose_most(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    target = tmp_path / "q.onnx"
    code, out, err = run(
        capfd, LENET, "--calibrate", "digits", "--limit", 64, "-o", target, "--top", 3
    )
    assert code == 0, err
    assert err.startswith(f"wrote {target}")
    data = open_dataset("digits", loading.load(LENET))
    (batch,) = data.batches(1000)

    def accuracy(path):
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(str(path), options)
        return 100 * (session.run(None, dict(batch.inputs))[0].argmax(1) == batch.labels).mean()

    before, after = accuracy(LENET), accuracy(target)
    assert f"top1: {before:.2f} % before, {after:.2f} % after (360 samples of digits)" in out
    saturates = environment.saturates(environment.cpu_flags())
    assert ("in onnxruntime on this processor" in out) == saturates
    assert "node_Conv_23" in out
    assert "conv2" in out
    assert "5 more; --top 0 shows all" in out


def test_a_model_whose_data_are_replaced_with_it_is_scored_all_the_same(tmp_path, capfd):
    path, data = tmp_path / "m.onnx", tmp_path / "m.onnx.data"
    proto = onnx.load(LENET)
    onnx.save(proto, path, save_as_external_data=True, location=data.name, size_threshold=100)
    code, out, err = run(capfd, path, "--calibrate", "digits", "--limit", 8, "-o", path, "--force")
    assert code == 0, err
    assert "top1: " in out
    assert not data.exists()
    ort.InferenceSession(str(path))


def test_json_is_one_object_and_layers_are_in_the_order_of_the_graph(small, capfd):
    code, out, err = run(
        capfd, small / "m.onnx", "--calibrate", small / "x.npz", "-o", small / "q.onnx", "--json",
        "--format", "qoperator", "--per-tensor", "--method", "percentile", "--reduce-range",
    )  # fmt: skip
    assert code == 0, err
    document = json.loads(out)
    assert document["settings"]["format"] == "qoperator"
    assert document["settings"]["per_channel"] is False
    assert [layer["node"] for layer in document["layers"]] == list("cpaklgfy")
    assert document["accuracy"]["metric"] == "agreement"
    assert document["accuracy"]["before"] == 100
    assert document["accuracy"]["after"] >= 80
    assert document["accuracy"]["samples"] == 24


def test_the_python_door_says_the_same(small, capfd):
    _, out, _ = run(
        capfd, small / "m.onnx", "--calibrate", small / "x.npz", "-o", small / "q.onnx", "--json"
    )
    quantized = tracer.quantize(small / "m.onnx", small / "x.npz")
    assert quantized.proto == onnx.load(small / "q.onnx")
    assert [layer.sqnr_db for layer in quantized.layers] == [
        layer["sqnr_db"] for layer in json.loads(out)["layers"]
    ]


def test_a_result_is_saved_by_extension_and_shown_in_a_notebook(small):
    quantized = tracer.quantize(small / "m.onnx", small / "x.npz")
    assert repr(quantized) == (
        f"Quantized(m.onnx, 8 layers, agreement 100 -> {quantized.accuracy.after:.4g})"
    )
    rows = pd.read_csv(quantized.save(small / "layers.csv"))
    assert rows["node"].tolist() == list("cpaklgfy")
    assert rows["added_noise"].tolist() == [layer.added_noise for layer in quantized.layers]
    document = json.loads(quantized.save(small / "q.json").read_text())
    assert [layer["node"] for layer in document["layers"]] == list("cpaklgfy")
    assert "agreement: 100.00 % before" in quantized._repr_html_()


def _ort(path, data):
    """What onnxruntime computes without optimisation, which is no matter of the processor."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(np.load(data)))[0].astype(np.float64)


def test_outputs_without_classes_or_labels_are_judged_by_their_noise(tmp_path, capfd):
    proto = net()
    proto.graph.output[0].name = "k"  # images of one channel: no classes to choose from
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    for size in ("N", 1, 4, 4):
        dim = proto.graph.output[0].type.tensor_type.shape.dim.add()
        dim.dim_param, dim.dim_value = (size, 0) if size == "N" else ("", size)
    del proto.graph.node[6:]
    proto.graph.node.insert(
        6, onnx.helper.make_node("ReduceMean", ["k0"], ["k"], name="mean", axes=[1])
    )
    proto.graph.node[5].output[0] = "k0"
    onnx.save(proto, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=batches(1)[0]["x"])
    code, out, err = run(
        capfd, tmp_path / "m.onnx", "--calibrate", tmp_path / "x.npz", "-o", tmp_path / "q.onnx"
    )
    assert code == 0, err
    (shown,) = re.findall(r"noise: 0.00 % before, ([\d.]+) % after", out)
    wide, narrow = (_ort(tmp_path / name, tmp_path / "x.npz") for name in ("m.onnx", "q.onnx"))
    share = ((wide - narrow) ** 2).sum((1, 2, 3)) / (wide**2).sum((1, 2, 3))
    assert float(shown) == pytest.approx(100 * share.mean(), rel=0.01)


def test_what_a_file_holds_is_kept_unless_forced(small, capfd):
    target = small / "q.onnx"
    target.write_bytes(b"mine")
    arguments = (small / "m.onnx", "--calibrate", small / "x.npz", "-o", target)
    code, _, err = run(capfd, *arguments)
    assert (code, target.read_bytes()) == (3, b"mine")
    assert "the file exists. Choose another name, or give --force." in err
    assert run(capfd, *arguments, "--force")[0] == 0
    loading.load(target)


BAD = [
    (["m.onnx", "-o", "q.onnx"], 2, "none are given"),
    (["m.onnx", "--calibrate", "x.npz"], 2, "Name it: -o FILE.onnx."),
    (["m.onnx", "--calibrate", "nothing", "-o", "q.onnx"], 2, "no data set 'nothing'"),
    (["m.onnx", "--calibrate", "gone.npz", "-o", "q.onnx"], 3, "gone.npz: no such file"),
    (["m.onnx", "--calibrate", "wide.npz", "-o", "q.onnx"], 3, "dimension 2 is fixed at 8, not 9"),
    (["m.onnx", "--calibrate", "x.npz", "-o", "q.bin"], 2, "The formats are csv, html, ipynb"),
    (["m.onnx", "--calibrate", "x.npz", "-o", "no/q.onnx"], 3, "does not exist. Make it first"),
    (["gone.onnx", "--calibrate", "x.npz", "-o", "q.onnx"], 3, "gone.onnx: no such file"),
    (["m.onnx", "--calibrate", "x.npz", "-o", "q.onnx", "--metric", "bleu"], 2, "no metric 'bleu'"),
    (["m.onnx", "--calibrate", "x.npz", "-o", "q.onnx", "--metric", "top1"], 3, "needs labels"),
    (["m.onnx", "--calibrate", "x.npz", "-o", "q.onnx", "--exclude", "Cnv"], 2, "'Cnv' matches no"),
    (
        ["m.onnx", "--calibrate", "x.npz", "-o", "q.onnx", "--format", "qoperator",
         "--activation-type", "uint16"], 2, "integer operators take 8 bits",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("args", "code", "message"), BAD)
def test_bad_input_is_one_clear_line(small, capfd, monkeypatch, args, code, message):
    monkeypatch.chdir(small)
    np.savez("wide.npz", x=batches(1, (3, 2, 9, 9))[0]["x"])
    exit_code, out, err = run(capfd, *args)
    assert (exit_code, out) == (code, "")
    assert message in err
    assert "Traceback" not in err


def test_a_model_that_is_quantised_already(small, capfd, monkeypatch):
    monkeypatch.chdir(small)
    run(capfd, "m.onnx", "--calibrate", "x.npz", "-o", "q.onnx")
    code, _, err = run(capfd, "q.onnx", "--calibrate", "x.npz", "-o", "qq.onnx")
    assert code == 3
    assert "q.onnx: it is quantised already" in err
    assert not (small / "qq.onnx").exists()


@pytest.mark.parametrize(
    ("metric", "code", "message"),
    [("agreement", 3, "does not tell which axis has the classes. Give agreement@1 for"),
     ("channel-noise", 3, "does not tell which axis has the channels. Give channel-noise@1 for"),
     ("agreement@1", 0, "agreement@1: 100.00 % before"),
     ("channel-noise@1", 0, "channel-noise@1: 0.00 % before, 100.00 % after")],
)  # fmt: skip
def test_a_metric_that_needs_an_axis_is_refused_before_the_work(
    tmp_path, capfd, metric, code, message
):
    onnx.save(detector(), tmp_path / "d.onnx")
    values = np.random.default_rng(1).random((8, 4, 8, 8), np.float32)
    np.savez(tmp_path / "x.npz", x=values)
    target = tmp_path / "q.onnx"
    exit_code, out, err = run(
        capfd, tmp_path / "d.onnx", "--calibrate", tmp_path / "x.npz", "-o", target,
        "--metric", metric,
    )  # fmt: skip
    assert exit_code == code
    assert message in out + err
    assert target.exists() == (code == 0)


def test_outputs_show_their_worst_channel_in_table_json_and_csv(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    onnx.save(detector(), tmp_path / "d.onnx")
    values = np.random.default_rng(1).random((24, 4, 8, 8), np.float32)
    np.savez(tmp_path / "x.npz", x=values)
    arguments = (tmp_path / "d.onnx", "--calibrate", tmp_path / "x.npz", "-o", tmp_path / "q.onnx")
    code, out, err = run(capfd, *arguments)
    assert code == 0, err
    assert re.search(
        r"output y: SQNR 4\d\.\d dB, 0\.0 dB in its worst channel \([45] of axis 1\)", out
    )
    assert "note: Concat 'join' joins values of unlike ranges" in out
    assert "note: output 'y' loses 2 of its 6 channels" in out
    (output,) = json.loads(run(capfd, *arguments, "--force", "--json")[1])["outputs"]
    assert output["worst_channel"]["lost"] == 2
    files = ("-o", tmp_path / "layers.csv", "-o", tmp_path / "q.html")
    code, out, err = run(capfd, *arguments, *files, "--force")
    assert code == 0, err
    assert "in its worst channel" in (tmp_path / "q.html").read_text()
    rows = pd.read_csv(tmp_path / "layers.csv").set_index("node")
    assert rows.loc["join", "worst_channel"] == output["worst_channel"]["index"]
    assert rows.loc["join", "worst_channel_db"] == output["worst_channel"]["sqnr_db"]
    assert rows.loc["join", "channel_axis"] == 1


@pytest.mark.nightly
def test_weights_alone_are_quantised_and_scored_on_text(tmp_path, capfd):
    text = tmp_path / "text.txt"
    text.write_bytes(Path("models/data/texts/kjv.test.txt").read_bytes()[:1025])
    target = tmp_path / "q.onnx"
    code, out, err = run(
        capfd, "models/llama/llama.onnx", "--weights", "8", "--test", f"text@64:{text}",
        "--limit", "2", "-o", target, "--notes",
    )  # fmt: skip
    assert code == 0, err
    before, after = map(
        float, re.findall(r"perplexity: ([\d.]+) bits before, ([\d.]+) bits after", out)[0]
    )
    assert 1 < before < 3
    assert after == pytest.approx(before, abs=0.02)
    assert "without calibration" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--weights", "4", "--format", "qoperator"), "weights alone"),
        (("--block", "64", "--calibrate", "x.npz"), "need --weights"),
        (("--weights", "4", "--calibrate", "x.npz"), "need no calibration"),
    ],
)
def test_options_of_two_kinds_are_refused(small, capfd, monkeypatch, options, message):
    monkeypatch.chdir(small)
    code, _, err = run(capfd, "m.onnx", *options, "-o", "q.onnx")
    assert code == 2
    assert message in err
