"""`tracer interpret --as onnxruntime` as a user meets it."""

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tracer
import tracer.cli

LENET = Path(__file__).parents[3] / "models/lenet/lenet.int8.onnx"
BODY = """<ir_version: 8, opset_import: ["" : 17]>
    net (bool c, float[3] x) => (float[3] y) {
        y = If (c) <
            then_branch = yes () => (float[3] a) { a = RandomUniformLike <seed = 1.0> (x) },
            else_branch = no () => (float[3] b) { b = RandomUniformLike <seed = 2.0> (x) }> }"""


def run(capfd, *args):
    code = tracer.cli.main(["interpret", *(str(arg) for arg in args), "--as", "onnxruntime"])
    out = capfd.readouterr()
    return code, out.out, out.err


def test_the_table_fits_a_terminal(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capfd, LENET, "--threads", 1, "--top", 0, "-q")
    assert code == 0
    lines = [line.rstrip() for line in out.splitlines() if line.strip()]
    assert max(map(len, lines)) <= 80
    version, digest = ort.__version__, lines[2][-17:]
    assert lines[:6] == [
        f"lenet.int8.onnx · onnxruntime {version}, level all, 1 thread",
        "equal bits: 12 of 12 kernels",
        f"linear_2: the replay has onnxruntime's SHA-256, {digest}",
        " node                       kernel            equal bits  rule",
        f" {'─' * 77}",
        " x_QuantizeLinear           QuantizeLinear           all  moved, or computed …",
    ]


@pytest.mark.nightly
def test_the_digest_is_that_of_a_session_on_all_inputs(capfd, tmp_path):
    inputs = np.random.default_rng(0).random((6, 3, 32, 32), np.float32)
    np.savez(tmp_path / "x.npz", x=inputs)
    session = ort.InferenceSession(str(LENET), providers=["CPUExecutionProvider"])
    each = [session.run(None, {"x": inputs[at : at + 2]})[0].tobytes() for at in (0, 2, 4)]
    expected = hashlib.sha256(b"".join(each)).hexdigest()
    args = ("--inputs", tmp_path / "x.npz", "--batch", 2, "--json")
    code, out, _ = run(capfd, LENET, *args)
    result = json.loads(out)
    assert (code, result["inputs"]) == (0, 3)
    assert [(o["sha256"], o["replayed"]) for o in result["outputs"]] == [(expected, expected)]


def test_what_is_not_known_is_named(capfd, tmp_path):
    onnx.save(onnx.parser.parse_model(BODY), tmp_path / "body.onnx")
    code, out, _ = run(capfd, tmp_path / "body.onnx", "--notes", "--optimization", "none")
    assert code == 0
    assert "equal bits: 0 of 1 kernel" in out
    assert "(If): in its graphs, RandomUniformLike: " in " ".join(out.split())


def test_the_row_of_a_kernel_says_why_its_rule_is_not_known(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "120")
    onnx.save(onnx.parser.parse_model(BODY), tmp_path / "body.onnx")
    _, out, _ = run(capfd, tmp_path / "body.onnx", "--optimization", "none")
    assert "not known: in its graphs, RandomUniformLike: " in out


@pytest.mark.parametrize("others", [("--against", "ort"), ("--by", "op"), ("--accumulator", "16")])
def test_options_of_numpys_arithmetic_are_refused(capfd, others):
    code, out, err = run(capfd, LENET, *others)
    assert (code, out) == (2, "")
    assert "--as onnxruntime compares bits" in err


def test_revealing_without_a_runtime_is_refused(capfd):
    assert tracer.cli.main(["interpret", str(LENET), "--anew"]) == 2
    assert "Give --as onnxruntime" in capfd.readouterr().err


def test_the_order_of_a_small_sum_of_a_node_is_drawn(capfd, tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 17]>
        net (float[1, 8] x, float[8, 16] w) => (float[1, 16] y) { y = MatMul(x, w) }"""
    model = onnx.parser.parse_model(text)
    model.graph.node[0].name = "product"
    onnx.save(model, tmp_path / "m.onnx")
    words = ["reveal", str(tmp_path / "m.onnx"), "--threads", "1"]
    assert tracer.cli.main([*words, "--node", "product", "--json"]) == 0
    (kernel,) = json.loads(capfd.readouterr().out)["kernels"]
    assert kernel["nodes"] == ["product"]
    assert kernel["equal"] == kernel["size"] == 16
    assert {*"01234567"} <= {*kernel["tree"]}
    assert tracer.cli.main([*words, "--node", "produkt"]) == 2
    assert "'product'" in capfd.readouterr().err
    assert tracer.cli.main(words) == 2
    assert "--node" in capfd.readouterr().err
