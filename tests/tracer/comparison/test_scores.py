"""`tracer compare --data`: accuracy and agreement of the sides, against onnxruntime and numpy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from scipy import stats
from scipy.special import log_softmax

import tracer.cli
from tests.graphs import parse
from tracer.api.compare import SideSettings, compare
from tracer.graph import loading
from tracer.graph.operators import rounded_node

LLAMA, INT4 = "models/llama/llama.onnx", "models/llama/llama.int4.onnx"
TEXT = Path("models/data/texts/kjv.test.txt")
QUICK = ("--by", "model", "--threads", "1", "--sessions", "2", "--precision", "100%")
SETTINGS = SideSettings(threads=1, sessions=2, precision=1.0)
WINDOWS, TOKENS = 5, 32


def run(capfd, *arguments):
    code = tracer.cli.main(["compare", *map(str, arguments)])
    out = capfd.readouterr()
    return code, out.out, out.err


def logits(path):
    """The logits of the first windows of the text, by onnxruntime, and the tokens that follow."""
    data = np.frombuffer(TEXT.read_bytes(), np.uint8)[: WINDOWS * TOKENS + 1].astype(np.int64)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    empty = {
        each.name: np.zeros((WINDOWS, each.shape[1], 0, each.shape[3]), np.float32)
        for each in session.get_inputs()[1:]
    }
    ids = data[:-1].reshape(WINDOWS, TOKENS)
    return session.run(["logits"], {"input_ids": ids, **empty})[0], data[1:].reshape(ids.shape)


def bits(path):
    values, labels = logits(path)
    chances = log_softmax(values.astype(np.float64), 2)
    return -np.take_along_axis(chances, labels[..., None], 2)[..., 0].mean(1) / np.log(2)


def test_perplexity_and_agreement_are_those_of_onnxruntime(capfd):
    code, out, err = run(
        capfd, LLAMA, INT4, *QUICK, "--data", f"text@{TOKENS}:{TEXT}", "--limit", WINDOWS, "--json"
    )
    assert code == 0, err
    perplexity, agreement = json.loads(out)["scores"]
    first, second = bits(LLAMA), bits(INT4)
    assert (perplexity["metric"], perplexity["side"]) == ("perplexity", "llama.int4.onnx")
    assert perplexity["samples"] == WINDOWS
    assert perplexity["first_value"] == pytest.approx(first.mean(), abs=1e-5)
    assert perplexity["value"] == pytest.approx(second.mean(), abs=1e-2)  # kernels round apart
    interval = stats.ttest_rel(second, first).confidence_interval(0.99)
    assert perplexity["low"] == pytest.approx(interval.low, abs=1e-2)
    assert perplexity["high"] == pytest.approx(interval.high, abs=1e-2)
    choices = [logits(path)[0].argmax(2) for path in (LLAMA, INT4)]
    assert agreement["metric"] == "agreement"
    assert agreement["value"] == pytest.approx(100 * (choices[0] == choices[1]).mean(), abs=2)
    assert agreement["first_value"] is agreement["change"] is None


@pytest.mark.nightly
def test_the_interpreter_is_scored_as_onnxruntime_is(capfd):
    code, out, err = run(
        capfd, LLAMA, f"{LLAMA}@interpreter", *QUICK, "--data", f"text@{TOKENS}:{TEXT}",
        "--limit", 2, "--metric", "bits-per-byte", "--metric", "agreement", "--json",
    )  # fmt: skip
    assert code == 0, err
    bits, agreement = json.loads(out)["scores"]
    assert bits["value"] == pytest.approx(bits["first_value"], abs=1e-3)
    assert bits["change"] == pytest.approx(0, abs=1e-4)
    assert (bits["samples"], agreement["value"]) == (2, 100)


@pytest.fixture
def classifiers(tmp_path):
    """Two classifiers of 3 numbers, the second with a batch of 2, and labels of 25 samples."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((3, 4)).astype(np.float32)
    for name, batch, noise in (("a", "N", 0), ("b", "2", 2)):
        noisy = (weights + noise * rng.standard_normal((3, 4))).astype(np.float32)
        model = parse(
            f"""<ir_version: 10, opset_import: ["": 20]> g (float[{batch}, 3] x)
            => (float[{batch}, 4] y) <float[3, 4] w> {{ y = MatMul (x, w) }}""",
            w=noisy,
        )
        onnx.save(model, tmp_path / f"{name}.onnx")
    x = rng.standard_normal((25, 3)).astype(np.float32)
    np.savez(tmp_path / "set.npz", x=x, labels=(x @ weights).argmax(1))
    return tmp_path


def test_a_fixed_batch_sets_the_batches_of_both_sides(classifiers):
    result = compare(
        [str(classifiers / "a.onnx"), str(classifiers / "b.onnx")], by="model",
        test=classifiers / "set.npz", settings=SETTINGS, in_process=True,
    )  # fmt: skip
    top1, agreement = result.scores
    assert (top1.metric, top1.first_value, top1.samples) == ("top1", 100, 25)
    assert top1.value == agreement.value < 100  # the labels are the choices of the first
    assert top1.change == top1.value - 100
    assert top1.low < top1.change < top1.high


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((LLAMA, INT4, "--metric", "top1"), "a limit or a metric without data"),
        ((LLAMA, INT4, "--batch", "1,2", "--data", f"text:{TEXT}"), "several batch sizes"),
        ((LLAMA, INT4, *QUICK, "--data", f"text:{TEXT}", "--metric", "f1"), "no metric 'f1'"),
        (("tests/fixtures/traces/profile.trace", LLAMA, "--data", f"text:{TEXT}", *QUICK),
         "--data scores ONNX models, and "),
    ],
)  # fmt: skip
def test_data_that_score_no_side_are_refused(capfd, arguments, message):
    code, _, err = run(capfd, *arguments)
    assert code == 2
    assert message in err


def test_packed_weights_are_told_from_floats_so_that_values_have_no_verdict():
    packed = rounded_node(loading.load(INT4))
    assert packed is not None and packed.op_type == "MatMulNBits"
    assert rounded_node(loading.load(LLAMA)) is None
