"""Decoders of transformers, exported by `tracer export FILE.py:NAME`, in both phases."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import tracer
import tracer.cli
from tracer.graph.loading import open_model
from tracer.inputs.decoder import recognise
from tracer.inputs.request import Step
from tracer.interpreter.interpreter import Interpreter

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
decoders = pytest.importorskip("tests.wild.transformers_decoders")

pytestmark = pytest.mark.nightly

WORDS, WIDTH, FFN, LAYERS, HEADS, SIZE = 50, 32, 80, 2, 4, 8
FILE = Path(__file__).parent / "transformers_decoders.py"
DECODERS = {
    # heads of keys and values, matrices of the feed-forward part
    "llama": (2, 3),
    "gpt2": (4, 2),
}


@pytest.fixture(scope="module", params=DECODERS)
def exported(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param) / "decoder.onnx"
    assert tracer.cli.main(["export", f"{FILE}:{request.param}", "-o", str(path)]) == 0
    return path, *DECODERS[request.param]


def macs(new, past, groups, matrices):
    projections = new * WIDTH * SIZE * (2 * HEADS + 2 * groups) + matrices * new * WIDTH * FFN
    attention = 2 * HEADS * SIZE * new * (past + new)
    return LAYERS * (projections + attention) + new * WIDTH * WORDS


def test_a_count_has_the_work_of_the_formulas(exported):
    path, *sizes = exported
    assert recognise(open_model(path)).cache[0].heads_and_size == (sizes[0], SIZE)
    counted = tracer.count(path, prefill=6, decode=4, past=9, in_process=True).nodes
    products = counted[~counted["module"].fillna("").str.contains("rotary")]
    sums = products.groupby("phase")["macs"].sum()
    assert sums.to_dict() == {"prefill": macs(6, 0, *sizes), "decode": macs(1, 9, *sizes)}


def test_both_phases_are_profiled(exported):
    path, groups, _ = exported
    trace = tracer.profile(path, prefill=6, decode=2, runs=2, warmup=0, threads=1, in_process=True)
    assert (trace.nodes.groupby("phase")["time_us"].sum() > 0).all()
    expected = 2 * LAYERS * groups * SIZE * 4 * 8
    assert trace.generation.measured[0].allocated_bytes == expected


@pytest.mark.parametrize("step", [Step(1, 5, 0), Step(1, 1, 6)], ids=["prefill", "decode"])
def test_interpreter_and_onnxruntime_compute_what_torch_does(exported, step):
    path, name = exported[0], exported[0].parent.name
    decoder = recognise(open_model(path))
    feeds = decoder.feeds(step, 0)
    with torch.no_grad():
        expected = getattr(decoders, name[:-1])()(*map(torch.from_numpy, feeds.values()))
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    for runner in (session, Interpreter(path)):
        for ours, theirs in zip(runner.run(None, feeds), expected, strict=True):
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=2e-5)


def test_every_node_is_within_tolerance_of_onnxruntime(exported, tmp_path):
    decoder = recognise(open_model(exported[0]))
    np.savez(tmp_path / "feeds.npz", **decoder.feeds(Step(1, 3, 4), 1))
    trace = tracer.interpret(
        exported[0], inputs=tmp_path / "feeds.npz", against="ort", in_process=True
    )
    compared = [each for each in trace.runs[0].values if each.difference is not None]
    assert compared
    assert not [each.node for each in compared if each.difference.fault or each.own.fault]
