"""`tracer interpret --optimization`: the graph that onnxruntime makes of the model."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import tracer.cli
from tests.graphs import residual
from tracer.records import environment

MODELS = Path(__file__).parents[3] / "models"
LENET = MODELS / "lenet/lenet.int8.onnx"
SUMS = "x86-maddubs" if environment.saturates(environment.cpu_flags()) else "32"
"""How this processor adds products of bytes."""


def run(capfd, *args):
    code = tracer.cli.main(["interpret", *(str(arg) for arg in args)])
    out = capfd.readouterr()
    return code, out.out, out.err


@pytest.mark.parametrize("level", ["extended", "all"])
@pytest.mark.parametrize("name", ["lenet/lenet", "resnet_cifar/resnet20"])
def test_integers_have_the_bits_of_this_processor(name, level, capfd, tmp_path):
    model = MODELS / f"{name}.int8.onnx"
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    shape = (20, *given.shape[1:])
    values = np.random.default_rng(0).normal(0.5, 0.5, shape).astype(np.float32)
    np.savez(tmp_path / "x.npz", **{given.name: values})
    args = ("--inputs", tmp_path / "x.npz", "--optimization", level, "-o", tmp_path / "y.npz")
    code, *_ = run(capfd, model, "--accumulator", SUMS, *args)
    with np.load(tmp_path / "y.npz") as archive:
        (ours,) = archive.values()
    (expected,) = session.run(None, {given.name: values})
    assert code == 0
    assert ours.tobytes() == expected.tobytes()


def test_nodes_have_the_names_and_the_modules_of_the_model(capfd):
    code, out, _ = run(capfd, LENET, "--optimization", "extended", "--json")
    trace = json.loads(out)
    rows = trace["runs"][0]["nodes"]
    nodes = {row["node"]: (row["op_type"], row["module"]) for row in rows}
    own = {node.name: node for node in onnx.load(LENET).graph.node}
    assert code == 0
    assert nodes["node_Conv_22"] == ("QLinearConv", "conv1")
    assert nodes["node_linear"] == ("QGemm", "fc1")
    assert nodes.keys() <= own.keys()
    assert any(
        note.endswith(f"at the level extended: {len(nodes)} nodes of {len(own)}")
        for note in trace["notes"]
    )


def test_a_float_graph_is_fused_and_agrees_with_onnxruntime(capfd, tmp_path):
    onnx.save(residual(), tmp_path / "m.onnx")
    args = ("--optimization", "extended", "--against", "ort", "--json")
    code, out, _ = run(capfd, tmp_path / "m.onnx", *args)
    made = {node["op_type"] for node in json.loads(out)["runs"][0]["nodes"]}
    assert code == 0
    assert {"Conv", "FusedConv"} < made


def test_a_certificate_is_for_the_graph_of_the_file(capfd, tmp_path):
    path = tmp_path / "c.json"
    args = ("--accumulator", 24, "--optimization", "all", "--certificate", path)
    code, out, err = run(capfd, LENET, *args)
    assert (code, out, path.exists()) == (2, "", False)
    assert "a certificate is for the graph of the file" in err


def test_an_unknown_level_is_refused(capfd):
    code, out, err = run(capfd, LENET, "--optimization", "most")
    assert (code, out) == (2, "")
    assert "none, basic, extended, all" in " ".join(err.replace("'", "").split())
