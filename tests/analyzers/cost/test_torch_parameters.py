"""Parameters are those that torch lists, of both exporters of torch and of tracer's own."""

import logging

import numpy as np
import onnx
import pytest

import tracer
from tracer.exporters.records import ExportOptions
from tracer.graph import provenance
from tracer.quantization.options import QuantizationOptions

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from tests.analyzers.cost.torch_nets import NETWORKS  # noqa: E402 - it imports torch

FOLDED = ("t5", "swin", "norms", "mixer")
"""Exporters compute tensors of other sizes from parameters of these, if they may."""
UNMARKED = ("blurred",)
"""TorchScript's exporter does not tell a buffer that is a kernel from a parameter."""

FIRST = ("gru", "llama", "norms")
"""What the suite of each commit exports; the nightly one exports all."""


def few(names):
    """Networks as parameters: those of `FIRST`, and the others at night."""
    night = [pytest.mark.nightly]
    return [pytest.param(n, marks=night * (n not in FIRST), id=n) for n in sorted(names)]


@pytest.fixture
def network(request):
    """A module whose parameters differ: exporters drop those that repeat others, or add nothing."""
    build, inputs = NETWORKS[request.param]
    torch.manual_seed(0)
    model = build().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return request.param, model, inputs


class Generating(torch.nn.Module):
    """A model of transformers: tokens, or a sound and tokens, to scores."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, first, ids=None):
        if ids is None:
            return self.model(first, use_cache=False)[0]
        return self.model(first, decoder_input_ids=ids, use_cache=False)[0]


def transformer(name):
    """A tiny model of transformers, and its inputs."""
    hf = pytest.importorskip("transformers")
    ids = torch.zeros(1, 8, dtype=torch.int64)
    sizes = {"vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    if name == "gpt2":
        config = hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=8, **sizes)
        return hf.GPT2LMHeadModel(config), (ids,)
    if name == "llama":
        sizes |= {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
        sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
        return hf.LlamaForCausalLM(hf.LlamaConfig(**sizes)), (ids,)
    if name == "t5":
        config = hf.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, **sizes)
        return hf.T5ForConditionalGeneration(config), (ids, ids)
    heads = {f"{part}_attention_heads": 4 for part in ("encoder", "decoder")}
    widths = {f"{part}_ffn_dim": 64 for part in ("encoder", "decoder")}
    depths = {f"{part}_layers": 1 for part in ("encoder", "decoder")}
    lengths = {"num_mel_bins": 16, "max_source_positions": 10, "max_target_positions": 8}
    config = hf.WhisperConfig(d_model=32, **heads, **widths, **depths, **lengths, **sizes)
    return hf.WhisperForConditionalGeneration(config), (torch.zeros(1, 16, 20), ids)


def trained(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.nightly
@pytest.mark.parametrize("network", few(NETWORKS), indirect=True)
def test_the_exporter_of_programs(network, tmp_path, caplog):
    name, model, inputs = network
    caplog.set_level(logging.ERROR)
    path = tmp_path / "model.onnx"
    torch.onnx.export(model, inputs, path, dynamo=True, verbose=False, optimize=name not in FOLDED)
    assert tracer.count(path).model.params == trained(model)


@pytest.mark.parametrize("network", few(set(NETWORKS) - set(UNMARKED)), indirect=True)
@pytest.mark.filterwarnings("ignore")  # the exporter is deprecated, and warns of constants
def test_the_exporter_of_torchscript(network, tmp_path):
    name, model, inputs = network
    path = tmp_path / "model.onnx"
    keep = torch.onnx.TrainingMode.PRESERVE if name in FOLDED else torch.onnx.TrainingMode.EVAL
    torch.onnx.export(
        *(model, inputs, path),
        dynamo=False,
        do_constant_folding=name not in FOLDED,
        training=keep,
    )
    assert tracer.count(path).model.params == trained(model)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "dynamo"), [("gpt2", True), ("llama", True), ("whisper", True), ("t5", False)]
)
@pytest.mark.filterwarnings("ignore")
def test_models_of_transformers(name, dynamo, tmp_path):
    torch.manual_seed(0)
    model, inputs = transformer(name)
    model = Generating(model.eval())
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_()
    torch.onnx.export(model, inputs, tmp_path / "model.onnx", dynamo=dynamo, verbose=False)
    assert tracer.count(tmp_path / "model.onnx").model.params == trained(model)


class Positions(torch.nn.Module):
    """Tokens with a trained table of positions or waves, of which a run reads its length."""

    def __init__(self, trained):
        super().__init__()
        place, step = torch.arange(20)[:, None], torch.arange(0, 16, 2)
        angle = place * torch.exp(step * (-np.log(10_000.0) / 16))
        waves = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[None]
        if trained:
            self.table = torch.nn.Parameter(torch.randn(1, 20, 16))
        else:
            self.register_buffer("table", waves)
        self.product = torch.nn.Linear(16, 16)

    def forward(self, x):
        return self.product(x + self.table[:, : x.shape[1]])


@pytest.mark.parametrize("is_trained", [True, False])
@pytest.mark.parametrize("axes", [None, {"x": {1: "length"}}])
@pytest.mark.filterwarnings("ignore")  # the exporter is deprecated, and warns of constants
def test_a_table_of_positions_is_cut_to_the_length_of_a_run(is_trained, axes, tmp_path):
    model, path = Positions(is_trained).eval(), tmp_path / "model.onnx"
    x, training = torch.zeros(1, 20, 16), torch.onnx.TrainingMode.EVAL
    names = {"input_names": ["x"], "dynamic_axes": axes}
    torch.onnx.export(model, (x,), path, dynamo=False, training=training, **names)
    assert tracer.count(path).model.params == trained(model)


@pytest.mark.parametrize("network", few(["gpt", "vit", "llama"]), indirect=True)
def test_the_exporter_of_tracer_leaves_marks(network, tmp_path):
    _, model, inputs = network
    path = tmp_path / "model.onnx"
    shapes = [tuple(each.shape) for each in inputs]
    dtypes = [str(each.dtype).removeprefix("torch.") for each in inputs]
    options = ExportOptions(dynamic_batch=False)
    tracer.export(model, path, input_shape=shapes, input_dtype=dtypes, options=options)
    weights = onnx.load(path).graph.initializer
    marks = {
        weight.name: {each.key: each.value for each in weight.metadata_props} for weight in weights
    }
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    marked = {
        part for mark in marks.values() for part in mark.get(provenance.PARAMETER_KEY, "").split()
    }
    assert marked <= names
    assert tracer.count(path).model.params == trained(model)


@pytest.mark.nightly
def test_what_torch_marks_wins_over_what_reads_it(tmp_path):
    build, inputs = NETWORKS["blurred"]
    path = tmp_path / "model.onnx"
    model = build().eval()
    torch.onnx.export(model, inputs, path, dynamo=True, verbose=False)
    assert tracer.count(path).model.params == trained(model)
    proto = onnx.load(path)
    del proto.graph.value_info[:], proto.graph.metadata_props[:]
    assert tracer.count(proto).model.params == trained(model) + model.kernel.numel()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("exporter", ["tracer", "programs", "torchscript"])
def test_quantised_weights_keep_their_marks(exporter, form, tmp_path):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.GroupNorm(4, 8), torch.nn.Conv2d(8, 2, 3)
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    paths = tmp_path / "floats.onnx", tmp_path / "quantised.onnx"
    if exporter == "tracer":
        tracer.export(model, paths[0], input_shape=(1, 3, 8, 8))
    else:
        inputs, dynamo = (torch.zeros(1, 3, 8, 8),), exporter == "programs"
        names = {"input_names": ["input"], "verbose": False}
        torch.onnx.export(model, inputs, paths[0], dynamo=dynamo, **names)
    data = {"input": np.random.default_rng(0).normal(0, 1, (1, 3, 8, 8)).astype(np.float32)}
    tracer.quantize(paths[0], data, output=paths[1], options=QuantizationOptions(format=form))
    for path in paths:  # the ones and zeros of an InstanceNormalization are no parameters
        assert tracer.count(path).model.params == sum(p.numel() for p in model.parameters())
