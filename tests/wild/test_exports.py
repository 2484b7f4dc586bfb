"""Networks of torch and transformers, exported: work as torch counts it, values, kernels."""

import pytest

import tracer
from tracer.analyzers.fusions import GROUP
from tracer.analyzers.fusions.confirmation import CONFIRMED, CONTRADICTED

torch = pytest.importorskip("torch")
flop_counter = pytest.importorskip("torch.utils.flop_counter")

pytestmark = pytest.mark.nightly
nn = torch.nn


class Residual(nn.Module):
    """A bottleneck of ResNet."""

    def __init__(self, channels):
        super().__init__()
        width = channels // 4
        self.path = nn.Sequential(
            *_normed(channels, width, 1), nn.ReLU(), *_normed(width, width, 3), nn.ReLU(),
            *_normed(width, channels, 1),
        )  # fmt: skip

    def forward(self, x):
        return torch.relu(x + self.path(x))


class Inverted(nn.Module):
    """An inverted residual of MobileNetV3: depthwise, squeeze and excitation, hard swish."""

    def __init__(self, channels, wide):
        super().__init__()
        self.widen = nn.Sequential(*_normed(channels, wide, 1), nn.Hardswish())
        self.depthwise = nn.Sequential(*_normed(wide, wide, 5, groups=wide), nn.Hardswish())
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, wide // 4, 1), nn.ReLU(),
            nn.Conv2d(wide // 4, wide, 1), nn.Hardsigmoid(),
        )  # fmt: skip
        self.narrow = nn.Sequential(*_normed(wide, channels, 1))

    def forward(self, x):
        h = self.depthwise(self.widen(x))
        return x + self.narrow(h * self.squeeze(h))


class Classifier(nn.Module):
    """A stem, both kinds of blocks, pooling and a linear layer."""

    input_shape = (3, 32, 32)

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(*_normed(3, 16, 3, stride=2), nn.ReLU(), nn.MaxPool2d(2))
        self.blocks = nn.Sequential(Residual(16), Inverted(16, 48))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


class UNet(nn.Module):
    """Two levels: pooling down, a transposed convolution up, channels joined."""

    input_shape = (3, 24, 24)

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(*_normed(3, 8, 3), nn.ReLU())
        self.middle = nn.Sequential(nn.MaxPool2d(2), *_normed(8, 16, 3), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Sequential(*_normed(16, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 1))

    def forward(self, x):
        skip = self.down(x)
        return self.out(torch.cat([skip, self.up(self.middle(skip))], 1))


def _normed(channels, filters, kernel, **options):
    convolution = nn.Conv2d(channels, filters, kernel, padding=kernel // 2, bias=False, **options)
    return convolution, nn.BatchNorm2d(filters)


def bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=32, attn_implementation="eager",
    )  # fmt: skip
    return transformers.BertModel(config)


def gpt2():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=0,
        eos_token_id=0, use_cache=False, attn_implementation="eager",
    )  # fmt: skip
    return transformers.GPT2Model(config)


def llama():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=80, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32, use_cache=False,
        attn_implementation="eager",
    )  # fmt: skip
    return transformers.LlamaModel(config)


def vit():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, attn_implementation="eager",
    )  # fmt: skip
    return transformers.ViTModel(config)


NETWORKS = {
    "classifier": (Classifier, (2, 3, 32, 32), "float32"),
    "unet": (UNet, (2, 3, 24, 24), "float32"),
    "bert": (bert, (2, 16), "int64"),
    "gpt2": (gpt2, (2, 16), "int64"),
    "llama": (llama, (2, 16), "int64"),
    "vit": (vit, (2, 3, 32, 32), "float32"),
}
"""Each with the shape and the type of its input. torch's own encoder is in tests/exporters."""


@pytest.mark.parametrize("name", NETWORKS)
def test_an_exported_network(name, tmp_path):
    make, shape, dtype = NETWORKS[name]
    torch.manual_seed(0)
    network = make().eval()
    path = tmp_path / "m.onnx"
    tracer.export(network, path, input_shape=shape, input_dtype=dtype, in_process=True)
    x = torch.zeros(shape, dtype=getattr(torch, dtype))
    with flop_counter.FlopCounterMode(display=False) as counter:
        network(x)

    counted = tracer.count(path, batch=shape[0]).nodes
    assert 2 * counted["macs"].sum() == counter.get_total_flops()
    timed = tracer.profile(path, batch=shape[0], runs=2, warmup=0, min_time=0)
    assert 2 * timed.nodes["macs"].sum() == counter.get_total_flops()
    kernels = tracer.fusions(path, batch=shape[0]).kernels
    assert {row.verdict for row in kernels if row.role == GROUP} == {CONFIRMED}
    assert CONTRADICTED not in {row.verdict for row in kernels}
    values = tracer.interpret(path, batch=shape[0], runs=1, warmup=0, against="ort").runs[0].values
    assert not [each.node for each in values if each.difference.fault or each.own.fault]
