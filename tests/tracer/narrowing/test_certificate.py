"""Certificates of narrowed models: they hold for any input, and notice what was changed."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tracer
from tests.nets import Builder
from tests.tracer.cli.narrow.command import run
from tracer.accumulators.statistics.certificates import Guarantee
from tracer.errors import InputError

BITS = 13


@pytest.fixture(scope="module")
def narrowed(tmp_path_factory):
    """The path of a narrowed model with two layers, its certificate, and the result."""
    folder = tmp_path_factory.mktemp("certified")
    net = Builder("net", x=("N", 3, 6, 6))
    net.node("Conv", "c", "x", net.weight("cw", 4, 3, 3, 3), net.weight("cb", 4), pads=[1] * 4)
    net.node("Relu", "r", "c")
    net.node("Flatten", "f", "r", axis=1)
    net.node("Gemm", "g", "f", net.weight("gw", 144, 5), net.weight("gb", 5))
    onnx.save(net.model("g"), folder / "net.onnx")
    x = np.random.default_rng(3).normal(0, 1, (64, 3, 6, 6)).astype(np.float32)
    np.savez(folder / "data.npz", x=x)
    path = folder / "acc.onnx"
    result = tracer.narrow(folder / "net.onnx", str(BITS), folder / "data.npz", output=path,
                           metric="noise")  # fmt: skip
    return path, folder / "acc.certificate.json", result


def copied(narrowed, tmp_path):
    path, proof, _ = narrowed
    model, certificate = tmp_path / path.name, tmp_path / proof.name
    model.write_bytes(path.read_bytes())
    certificate.write_bytes(proof.read_bytes())
    return model, certificate


def check(capfd, model, certificate, *options):
    return run(capfd, model, "--check-certificate", certificate, "--top", 1, *options)


def test_it_holds_without_data(narrowed, capfd):
    path, proof, result = narrowed
    stated = json.loads(proof.read_bytes())
    assert stated["holds_for"] == "any input"
    assert stated["model_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert {n.node for n in result.nodes} == set(stated["nodes"])
    assert all(n["bits_guaranteed"] <= BITS for n in stated["nodes"].values())
    assert Guarantee.from_json(proof.read_bytes()) == result.certificate
    code, _, err = check(capfd, path, proof)
    assert (code, "no input makes a sum overflow in 2 of 2 nodes that sum" in err) == (0, True)


def test_a_result_that_was_saved_later_has_one_too(narrowed, capfd, tmp_path):
    _, _, result = narrowed
    model = result.save(tmp_path / "later.onnx")
    proof = result.save(tmp_path / "later.certificate.json")
    assert check(capfd, model, proof)[0] == 0


def test_another_width_is_another_policy(narrowed, capfd):
    path, proof, _ = narrowed
    code, _, err = check(capfd, path, proof, "--accumulator", BITS - 1)
    assert (code, "for another policy" in err) == (1, True)


def tensor(proto, name):
    return next(w for w in proto.graph.initializer if w.name == name)


def operand(proto, node, place):
    """The names of the integers, scale and zero point that a node's input is dequantised from."""
    made = {name: each for each in proto.graph.node for name in each.output}
    (user,) = [each for each in proto.graph.node if each.name == node]
    return list(made[user.input[place]].input)


def replaced(proto, name, change):
    stored = tensor(proto, name)
    values = numpy_helper.to_array(stored).copy()
    stored.CopyFrom(numpy_helper.from_array(change(values).astype(values.dtype), name))


def one_more(values):
    """Adds one to the magnitude of a weight of each output channel, so that every sum grows."""
    rows = values.reshape(len(values), -1)
    rows[np.arange(len(rows)), np.abs(rows.astype(int)).argmax(1)] += 1
    return values


def weight(proto, node):
    replaced(proto, operand(proto, node, 1)[0], one_more)


def bias(proto, node):
    replaced(proto, operand(proto, node, 2)[0], lambda values: values + (1 << BITS))


def bias_scale(proto, node):
    replaced(proto, operand(proto, node, 2)[1], lambda values: values * 4096)


def clip_range(proto, node):
    """A wider range of the activations, in the clip and in the quantiser before it."""
    made = {name: each for each in proto.graph.node for name in each.output}
    clip = made[made[operand(proto, node, 0)[0]].input[0]]
    replaced(proto, clip.input[2], lambda values: values * 8)
    before = made[clip.input[0]].input[1]
    replaced(proto, before, lambda values: values * 8)


def step(proto, node):
    """A finer step of the activations: the clipped range then has more integers."""
    replaced(proto, operand(proto, node, 0)[1], lambda values: values / 8)


CHANGES = [weight, bias, bias_scale, clip_range, step]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_model_is_refused(narrowed, capfd, tmp_path, change):
    path, proof = copied(narrowed, tmp_path)
    proto = onnx.load(path)
    change(proto, _conv(proto))
    onnx.save(proto, path)
    code, out, err = check(capfd, path, proof)
    assert (code, out) == (1, "")
    assert "the certificate is for another model" in err


def _conv(proto):
    return next(node.name for node in proto.graph.node if node.op_type == "Conv")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("change", [bias, clip_range, step])
def test_a_change_is_refused_even_where_the_hash_was_changed_with_it(
    narrowed, capfd, tmp_path, change
):
    path, proof = copied(narrowed, tmp_path)
    proto = onnx.load(path)
    change(proto, _conv(proto))
    onnx.save(proto, path)
    forged = json.loads(proof.read_bytes())
    forged["model_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    proof.write_text(json.dumps(forged))
    code, _, err = check(capfd, path, proof)
    assert (code, "some inputs make node" in err) == (1, True)


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (lambda c, n: c["nodes"][n].update(bits_guaranteed=9), "has other bounds than"),
        (lambda c, n: c["nodes"][n]["accumulator"].update(bits=9), "some inputs make node"),
        (lambda c, n: c["nodes"].update(zz=c["nodes"][n]), "names node 'zz'"),
    ],
)
def test_a_certificate_that_was_changed_is_refused(narrowed, capfd, tmp_path, forge, reason):
    path, proof = copied(narrowed, tmp_path)
    content = json.loads(proof.read_bytes())
    forge(content, next(iter(content["nodes"])))
    proof.write_text(json.dumps(content))
    code, _, err = check(capfd, path, proof)
    assert (code, reason in err) == (1, True)


def test_an_old_certificate_is_not_overwritten_without_force(narrowed, tmp_path):
    path, _ = copied(narrowed, tmp_path)
    path.unlink()
    source = narrowed[0].parent
    with pytest.raises(InputError, match=r"acc\.certificate\.json: the file exists"):
        tracer.narrow(source / "net.onnx", "12", source / "data.npz", output=path, metric="noise")
    assert not path.exists()


def test_nothing_is_certified_where_no_node_fits(narrowed, tmp_path):
    net = Builder("square", x=("N", 2, 8))
    net.node("Transpose", "t", "x", perm=[0, 2, 1])
    net.node("MatMul", "a", "x", net.weight("w", 8, 8))
    net.node("MatMul", "s", "a", "t")
    onnx.save(net.model("s"), tmp_path / "square.onnx")
    x = np.random.default_rng(4).normal(0, 1, (32, 2, 8)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x)
    result = tracer.narrow(tmp_path / "square.onnx", "3", tmp_path / "data.npz", metric="noise")
    fits = {node.node for node in result.nodes if node.fits}
    assert len(fits) == 1 < len(result.nodes)
    assert set(result.certificate.nodes) == fits
