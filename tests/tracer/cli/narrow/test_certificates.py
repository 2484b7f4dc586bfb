"""`tracer interpret --certificate` and `--check-certificate` as a user meets them."""

import json

import numpy as np
import onnx
import pytest

from models import families
from tests.graphs import residual
from tests.tracer.cli.narrow.command import run
from tracer.accumulators.statistics.certificates import Certificate, DataHash
from tracer.graph.loading import open_model
from tracer.inputs.datasets.opening import open_dataset


def test_a_certificate_says_that_nothing_overflows(model, file, feeds, capfd, tmp_path):
    target = tmp_path / "c.json"
    args = (model, "--inputs", file, "--certificate", target)
    code, out, err = run(capfd, *args, "--accumulator", 15)
    assert (code, target.exists()) == (1, False)
    assert "bits suffice for this data" in out
    assert "node 'c' overflows 15 bits" in err
    code, _, err = run(capfd, *args, "--accumulator", 22)
    assert (code, "nothing overflows on these inputs" in err) == (0, True)
    assert set(Certificate.from_json(target.read_bytes()).nodes) == {"c", "m"}
    assert run(capfd, *args, "--accumulator", 22)[0] == 3  # it exists


@pytest.fixture
def proof(model, file, capfd, tmp_path):
    """A certificate that the sums of `model` on `file` do not overflow 22 bits."""
    path = tmp_path / "proof.json"
    options = ("--accumulator", 22, "--order", "lanes(4)", "--certificate", path)
    assert run(capfd, model, "--inputs", file, *options)[0] == 0
    return path


def check(capfd, proof, model, file, *options):
    return run(capfd, model, "--inputs", file, "--check-certificate", proof, *options)


def test_a_certificate_that_holds_is_confirmed(proof, model, file, capfd):
    code, out, err = check(capfd, proof, model, file)
    assert (code, "proof.json holds: no sum overflows on 1 set of inputs" in err) == (0, True)
    assert "22 bits" in out
    same = ("--accumulator", "c=22,*=22", "--order", "lanes(4)")
    assert check(capfd, proof, model, file, *same)[0] == 0


def other_model(model):
    proto = onnx.load(model)
    proto.graph.doc_string = "changed"
    onnx.save(proto, model)


def other_inputs(file):
    with np.load(file) as archive:
        arrays = dict(archive)
    arrays["x"][0, 0, 0, 0] ^= 1
    np.savez(file, **arrays)


def test_a_certificate_for_another_model_does_not_hold(proof, model, file, capfd):
    other_model(model)
    code, out, err = check(capfd, proof, model, file)
    assert (code, out) == (1, "")
    assert "the certificate is for another model" in err


@pytest.mark.nightly
def test_a_certificate_for_other_inputs_does_not_hold(proof, model, file, capfd):
    other_inputs(file)
    code, _, err = check(capfd, proof, model, file)
    assert (code, "the certificate is for other inputs" in err) == (1, True)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "options",
    [
        ("--accumulator", 22),
        ("--accumulator", 22, "--order", "lanes(4)", "--overflow", "wrap"),
        ("--accumulator", 23, "--order", "lanes(4)"),
        ("--accumulator", "c=22", "--order", "lanes(4)"),
    ],
)
def test_a_certificate_for_another_policy_does_not_hold(proof, model, file, capfd, options):
    code, out, err = check(capfd, proof, model, file, *options)
    assert (code, out) == (1, "")
    assert "the certificate is for another policy" in err


def tamper(proof, change):
    content = json.loads(proof.read_bytes())
    change(content)
    proof.write_text(json.dumps(content))


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: c["nodes"]["c"]["accumulator"].update(bits=15), "'c' overflows 15 bits"),
        (lambda c: c["nodes"]["c"].update(bits_observed=9), "other sums than the certificate"),
        (lambda c: c["nodes"]["c"].update(outputs=9), "other sums than the certificate"),
        (lambda c: c["nodes"].pop("c"), "says nothing of node 'c', which sums"),
        (lambda c: c["nodes"].clear(), "says nothing of node 'c' and 1 more that sum"),
        (lambda c: c.update(nodes={}, left_out=["c", "m"]), "says nothing of any node"),
        (lambda c: c["nodes"].update(zz=c["nodes"]["c"]), "names node 'zz', which the model lacks"),
        (lambda c: c.update(inputs=2), "for other inputs"),
        (lambda c: c.update(data_sha256="0" * 64), "for other inputs"),
        (lambda c: c.update(model_sha256="0" * 64), "for another model"),
    ],
)
def test_a_certificate_that_was_changed_does_not_hold(proof, model, file, capfd, change, reason):
    tamper(proof, change)
    code, _, err = check(capfd, proof, model, file)
    assert (code, reason in err) == (1, True)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.pop("nodes"),
        lambda c: c["nodes"]["c"]["accumulator"].update(bits=99),
        lambda c: c["nodes"]["c"]["accumulator"].update(order="random"),
        lambda c: c["nodes"]["c"]["accumulator"].update(mood="good"),
    ],
)
def test_what_is_no_certificate_is_refused(proof, model, file, capfd, change):
    tamper(proof, change)
    code, out, err = check(capfd, proof, model, file)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "not a certificate" in err


def test_a_certificate_names_the_nodes_that_it_leaves_out(model, file, capfd, tmp_path):
    path, options = tmp_path / "part.json", ("--accumulator", "c=22")
    code, _, err = run(capfd, model, "--inputs", file, *options, "--certificate", path)
    assert (code, "in 1 of 2 nodes that sum; left out: m" in err) == (0, True)
    assert Certificate.from_json(path.read_bytes()).left_out == ("m",)
    code, _, err = check(capfd, path, model, file)
    assert (code, "1 set of inputs, in 1 of 2 nodes that sum; left out: m" in err) == (0, True)
    tamper(path, lambda c: c.pop("left_out"))
    code, _, err = check(capfd, path, model, file)
    assert (code, "says nothing of node 'm', which sums" in err) == (1, True)


@pytest.mark.nightly
def test_a_certificate_has_the_formats_of_a_float_graph(tmp_path, capfd):
    onnx.save(residual(), tmp_path / "f.onnx")
    proof, options = tmp_path / "p.json", ("--accumulator", "Conv=30", "--fixed", "8:5/8:4")
    assert run(capfd, tmp_path / "f.onnx", *options, "--certificate", proof)[0] == 0
    assert run(capfd, tmp_path / "f.onnx", "--check-certificate", proof)[0] == 0
    other = ("--accumulator", "Conv=30", "--fixed", "8:5/8:3")
    code, _, err = run(capfd, tmp_path / "f.onnx", "--check-certificate", proof, *other)
    assert (code, "for another policy" in err) == (1, True)


@pytest.mark.nightly
def test_a_certificate_over_a_data_set(capfd, tmp_path):
    pytest.importorskip("sklearn")
    lenet = families.shipped("lenet", "torch").with_suffix(".int8.onnx")
    path = tmp_path / "c.json"
    asked = (lenet, "--data", "digits", "--limit", 9, "--batch", 4, "--certificate", path)
    assert run(capfd, *asked, "--accumulator", 18)[0] == 1
    assert not path.exists()
    assert run(capfd, *asked, "--accumulator", 24)[0] == 0
    proof, data = Certificate.from_json(path.read_bytes()), DataHash()
    for batch in open_dataset("digits", open_model(lenet), limit=9).batches(4):
        data.add(batch.inputs)
    assert (proof.inputs, proof.data_sha256) == (3, data.sha256)
    check = (lenet, "--data", "digits", "--batch", 4, "--check-certificate", path)
    assert run(capfd, *check, "--limit", 9)[0] == 0
    code, _, err = run(capfd, *check, "--limit", 8)
    assert (code, "the certificate is for other inputs" in err) == (1, True)
