"""Graphs of onnxruntime-genai's builder: a tiny random Llama in floats and in 4 bits."""

import subprocess
import sys

import pytest

import tracer
import tracer.cli
from tracer.graph.loading import open_model
from tracer.inputs.decoder import recognise

for package in ("torch", "transformers", "onnxruntime_genai"):
    pytest.importorskip(package)

WORDS, WIDTH, FFN, LAYERS, HEADS, GROUPS, SIZE = 96, 64, 128, 2, 4, 2, 16
PHASES = {"prefill": 6, "decode": 4, "past": 9}


def pretrained(folder):
    """Saves a Llama and a tokenizer, as the builder reads them from a folder."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=FFN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=GROUPS, head_dim=SIZE,
        max_position_embeddings=128, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(config).eval().save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(WORDS)}, unk_token="t0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="t1", eos_token="t2")
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return pretrained(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module", params=["fp32", "int4"])
def built(request, llama, tmp_path_factory):
    """The model that the builder makes for the CPU, and the operator of its products."""
    folder = tmp_path_factory.mktemp(request.param)
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(llama)]
    options = ["-o", str(folder), "-p", request.param, "-e", "cpu", "-c", str(folder / "cache")]
    subprocess.run([*command, *options], check=True, capture_output=True)
    return folder / "model.onnx", {"fp32": "MatMul", "int4": "MatMulNBits"}[request.param]


def macs(new, past):
    projections = new * WIDTH * SIZE * (2 * HEADS + 2 * GROUPS) + 3 * new * WIDTH * FFN
    attention = 2 * HEADS * SIZE * new * (past + new)
    return LAYERS * (projections + attention) + new * WIDTH * WORDS


def test_its_work_is_that_of_the_formulas(built):
    path, operator = built
    model = open_model(path)
    assert operator in {node.op_type for node in model.nodes}
    assert recognise(model).cache[0].heads_and_size == (GROUPS, SIZE)
    counted = tracer.count(path, **PHASES, in_process=True).nodes
    sums = counted.groupby("phase")["macs"].sum()
    assert sums.to_dict() == {"prefill": macs(6, 0), "decode": macs(1, 9)}


def test_both_phases_are_profiled(built):
    path, operator = built
    trace = tracer.profile(path, **PHASES, runs=2, warmup=0, threads=1, in_process=True)
    timed = trace.nodes[trace.nodes["op_type"] == operator].groupby("phase")["time_us"].sum()
    assert (timed > 0).all()
    assert trace.generation.measured[0].allocated_bytes == 10 * trace.generation.cache.token_bytes


def test_the_interpreter_agrees_with_onnxruntime(built, capfd):
    path, _ = built
    arguments = ["interpret", str(path), "--against", "ort", "--dim", "sequence_length=5"]
    assert tracer.cli.main([*arguments, "--dim", "total_sequence_length=5"]) == 0
    assert "every node is within tolerance" in capfd.readouterr().err
