"""A BERT and networks of transformers after onnxruntime's own optimiser fused them."""

import math

import numpy as np
import onnx
import pytest

import tracer
from tests.wild.test_exports import bert, gpt2

torch = pytest.importorskip("torch")
optimizer = pytest.importorskip("onnxruntime.transformers.optimizer")

pytestmark = pytest.mark.nightly
nn = torch.nn

WIDTH, HEADS, TOKENS = 32, 4, 8


class Attention(nn.Module):
    """Self-attention as BERT wrote it first, which the optimiser looks for."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def heads(self, x):
        return x.view(-1, TOKENS, HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        query, key = self.heads(self.query(x)), self.heads(self.key(x))
        scores = query @ key.transpose(-1, -2) / math.sqrt(WIDTH // HEADS) + mask
        mixed = scores.softmax(-1) @ self.heads(self.value(x))
        return mixed.permute(0, 2, 1, 3).contiguous().view(-1, TOKENS, WIDTH)


class Layer(nn.Module):
    """Attention and two linear layers, each added to its input and normalised."""

    def __init__(self):
        super().__init__()
        self.attention, self.output = Attention(), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x, mask):
        x = self.first(self.output(self.attention(x, mask)) + x)
        return self.second(self.narrow(nn.functional.gelu(self.wide(x))) + x)


class Bert(nn.Module):
    """Three embeddings and two layers."""

    def __init__(self):
        super().__init__()
        self.words, self.segments = nn.Embedding(50, WIDTH), nn.Embedding(2, WIDTH)
        self.positions, self.norm = nn.Embedding(TOKENS, WIDTH), nn.LayerNorm(WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.register_buffer("places", torch.arange(TOKENS)[None])

    def forward(self, input_ids, attention_mask, token_type_ids):
        mask = (1.0 - attention_mask[:, None, None].to(torch.float32)) * -10000.0
        x = self.words(input_ids) + self.positions(self.places)
        x = self.norm(x + self.segments(token_type_ids))
        for layer in self.layers:
            x = layer(x, mask)
        return x


def optimised(path, tmp_path):
    fused = tmp_path / "fused.onnx"
    optimizer.optimize_model(
        str(path), "bert", num_heads=HEADS, hidden_size=WIDTH, opt_level=0
    ).save_model_to_file(str(fused))
    return fused, {node.op_type for node in onnx.load(fused).graph.node}


def agrees(path, macs, sizes, **given):
    """Whether counting, profiling and interpreting the fused model say what they should."""
    counted = tracer.count(path, **sizes).nodes
    assert counted["macs"].sum() == macs
    assert not counted[["macs", "flops", "bytes_read"]].isna().any(axis=None)
    timed = tracer.profile(path, runs=2, warmup=0, min_time=0, **given)
    assert timed.nodes["macs"].sum() == macs
    run = tracer.interpret(path, runs=1, warmup=0, against="ort", **given).runs[0]
    assert run.values
    assert not [each.node for each in run.values if each.difference.fault or each.own.fault]


@pytest.mark.filterwarnings("ignore")
def test_a_bert_whose_attention_is_one_node(tmp_path):
    torch.manual_seed(0)
    plain = tmp_path / "plain.onnx"
    ids = torch.randint(0, 50, (2, TOKENS))
    mask = torch.tensor([[1] * TOKENS, [1] * 5 + [0] * 3])
    names = ["input_ids", "attention_mask", "token_type_ids"]
    feeds = (ids, mask, torch.zeros_like(ids))
    torch.onnx.export(
        Bert().eval(), feeds, plain, input_names=names, dynamo=False, do_constant_folding=False
    )
    fused, operators = optimised(plain, tmp_path)
    wanted = {"Attention", "EmbedLayerNormalization", "SkipLayerNormalization", "BiasGelu"}
    assert operators >= wanted
    np.savez(tmp_path / "feeds.npz", **dict(zip(names, map(np.asarray, feeds), strict=True)))
    agrees(fused, tracer.count(plain).nodes["macs"].sum(), {}, inputs=tmp_path / "feeds.npz")


def llama():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48, max_position_embeddings=32, use_cache=False,
        attn_implementation="eager",
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


@pytest.mark.parametrize(("make", "wanted"), [
    (bert, {"SkipLayerNormalization", "BiasGelu"}),
    (gpt2, {"SkipLayerNormalization", "FastGelu"}),
    (llama, {"SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization"}),
], ids=["bert", "gpt2", "llama"])  # fmt: skip
def test_a_network_of_transformers(make, wanted, tmp_path):
    torch.manual_seed(0)
    plain = tmp_path / "plain.onnx"
    options = {"input_shape": (2, TOKENS), "input_dtype": "int64", "in_process": True}
    tracer.export(make().eval(), plain, **options)
    fused, operators = optimised(plain, tmp_path)
    assert operators >= wanted
    agrees(fused, tracer.count(plain, batch=2).nodes["macs"].sum(), {"batch": 2}, batch=2)
