"""Small networks of torch with what is easily taken for a parameter: masks, caches, states, scales.

`NETWORKS` has, by name, a module and its inputs.
"""

import torch
from torch import nn
from torch.nn import functional

WORDS, WIDTH, LENGTH, HEADS = 50, 32, 9, 4


def split(x):
    """[batch, token, channel] to [batch, head, token, channel of the head]."""
    return x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def linear(*sizes):
    return nn.Linear(*sizes, bias=False)


class Normal(nn.Module):
    """The root mean square normalisation of Llama and T5."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Gpt(nn.Module):
    """A causal mask in a buffer; the output layer is the embedding."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.attention, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.head = linear(WIDTH, WORDS)
        self.head.weight = self.wte.weight
        self.register_buffer("mask", torch.tril(torch.ones(1, 1, LENGTH, LENGTH)))

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        q, k, v = (split(part) for part in self.attention(self.norms[0](x)).chunk(3, -1))
        scores = (q @ k.transpose(-2, -1)) * (WIDTH // HEADS) ** -0.5
        scores = scores.masked_fill(self.mask == 0, float("-inf")).softmax(-1)
        x = x + self.project(joined(scores @ v))
        x = x + self.down(functional.gelu(self.up(self.norms[1](x)), approximate="tanh"))
        return self.head(self.norms[2](x))


class Llama(nn.Module):
    """Angles of the rotary embedding in buffers; a causal mask that torch makes; a tied head."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, WIDTH), linear(WIDTH, WORDS)
        self.head.weight = self.embedding.weight
        self.norms = nn.ModuleList(Normal() for _ in range(3))
        self.qkvo = nn.ModuleList(linear(WIDTH, WIDTH) for _ in range(4))
        self.gate, self.up, self.down = linear(WIDTH, 64), linear(WIDTH, 64), linear(64, WIDTH)
        size = WIDTH // HEADS
        frequency = 1e4 ** -(torch.arange(0, size, 2) / size)
        angle = torch.outer(torch.arange(LENGTH).float(), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def rotated(self, x):
        left, right = x.chunk(2, -1)
        return x * self.cos + torch.cat((-right, left), -1) * self.sin

    def forward(self, ids):
        x = self.embedding(ids)
        y = self.norms[0](x)
        q, k, v = (split(layer(y)) for layer in self.qkvo[:3])
        attended = functional.scaled_dot_product_attention(
            self.rotated(q), self.rotated(k), v, is_causal=True
        )
        x = x + self.qkvo[3](joined(attended))
        y = self.norms[1](x)
        return self.head(self.norms[2](x + self.down(functional.silu(self.gate(y)) * self.up(y))))


class Bert(nn.Module):
    """Position ids in a buffer, a padding mask as an input."""

    def __init__(self):
        super().__init__()
        self.words, self.kinds = nn.Embedding(WORDS, WIDTH), nn.Embedding(2, WIDTH)
        self.positions, self.norm = nn.Embedding(LENGTH, WIDTH), nn.LayerNorm(WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pool = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("ids", torch.arange(LENGTH)[None])

    def forward(self, ids, kinds, hidden):
        x = self.norm(self.words(ids) + self.positions(self.ids) + self.kinds(kinds))
        return torch.tanh(self.pool(self.encoder(x, src_key_padding_mask=hidden)[:, 0]))


class T5(nn.Module):
    """Biases by relative position; the head is the embedding, and a scale of the code."""

    def __init__(self):
        super().__init__()
        self.embedding, self.bias = nn.Embedding(WORDS, WIDTH), nn.Embedding(8, HEADS)
        self.norms = nn.ModuleList(Normal() for _ in range(2))
        self.qkvo = nn.ModuleList(linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = linear(WIDTH, 64), linear(64, WIDTH)

    def forward(self, ids):
        x = self.embedding(ids)
        q, k, v = (split(layer(self.norms[0](x))) for layer in self.qkvo[:3])
        place = torch.arange(ids.shape[1])
        relative = (place[None] - place[:, None]).abs().clamp(max=7)
        scores = q @ k.transpose(-2, -1) + self.bias(relative).permute(2, 0, 1)[None]
        x = x + self.qkvo[3](joined(scores.softmax(-1) @ v))
        x = x + self.down(functional.relu(self.up(self.norms[1](x))))
        return (x * WIDTH**-0.5) @ self.embedding.weight.T


class Whisper(nn.Module):
    """A mask of minus infinity in a buffer, trained positions, a tied head."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(20, WIDTH, 3), nn.Conv1d(WIDTH, WIDTH, 3, 2)
        one = {"batch_first": True, "norm_first": True}
        self.encoder = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, **one)
        self.decoder = nn.TransformerDecoderLayer(WIDTH, HEADS, 64, **one)
        self.tokens, self.norm = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH)
        self.positions = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        mask = torch.full((LENGTH, LENGTH), float("-inf")).triu_(1)
        self.register_buffer("mask", mask)

    def forward(self, sound, ids):
        x = functional.gelu(self.second(functional.gelu(self.first(sound)))).transpose(1, 2)
        y = self.tokens(ids) + self.positions
        return (
            self.norm(self.decoder(y, self.encoder(x), tgt_mask=self.mask)) @ self.tokens.weight.T
        )


class Vit(nn.Module):
    """A class token, trained positions and scales; mean and deviation of the data in buffers."""

    def __init__(self):
        super().__init__()
        self.patch, self.head = nn.Conv2d(3, WIDTH, 4, 4), nn.Linear(WIDTH, 10)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.zeros(1, 17, WIDTH))
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.encoder = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True)
        self.register_buffer("mean", torch.rand(1, 3, 1, 1))
        self.register_buffer("deviation", torch.rand(1, 3, 1, 1) + 0.5)

    def forward(self, image):
        x = self.patch((image - self.mean) / self.deviation).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), 1) + self.positions
        return self.head((self.encoder(x) * self.scale)[:, 0])


class Swin(nn.Module):
    """A table of biases that a buffer of indices reads, and scales of blocks and of heads."""

    def __init__(self):
        super().__init__()
        self.table, self.qkv = nn.Parameter(torch.zeros(25, 2)), nn.Linear(16, 48)
        self.scale = nn.Parameter(torch.zeros(16))
        self.temperature = nn.Parameter(torch.zeros(2, 1, 1))
        self.register_buffer("places", torch.randint(0, 25, (81,)))

    def forward(self, x):
        q, k, v = self.qkv(x).view(x.shape[0], 9, 3, 2, 8).permute(2, 0, 3, 1, 4)
        bias = self.table[self.places].view(9, 9, 2).permute(2, 0, 1)
        scores = (q @ k.transpose(-2, -1)) * self.temperature + bias
        return x + self.scale * joined(scores.softmax(-1) @ v)


class Norms(nn.Module):
    """Normalisations, of which one has running statistics, slopes, a transposed convolution."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.GroupNorm(2, 8)),
            *(nn.InstanceNorm2d(8, affine=True), nn.PReLU(8), nn.ConvTranspose2d(8, 4, 2, 2)),
            nn.BatchNorm2d(4),
        )

    def forward(self, x):
        return self.layers(x)


class Recurrent(nn.Module):
    """A recurrent layer, whose states begin with zeros, and a linear one."""

    def __init__(self, layer, width):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 5)

    def forward(self, x):
        return self.head(self.layer(x)[0])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.register_buffer("mask", torch.triu(torch.ones(7, 7, dtype=torch.bool), 1))

    def forward(self, x):
        return self.attention(x, x, x, attn_mask=self.mask, need_weights=False)[0]


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        y = split(self.linear(x))
        return functional.scaled_dot_product_attention(y, y, y, is_causal=True)


class Mixer(nn.Module):
    """A scale of one number, and a weight that is computed of two parameters."""

    def __init__(self):
        super().__init__()
        self.tokens, self.channels, self.norm = nn.Linear(16, 16), nn.Linear(8, 8), nn.LayerNorm(8)
        self.scale = nn.Parameter(torch.ones(1))
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(8, 4))

    def forward(self, x):
        mixed = self.tokens(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.scale * self.channels(self.norm(x)) + mixed)


class Blurred(nn.Module):
    """A convolution whose kernel is a buffer, a frozen parameter, a layer that is read twice."""

    def __init__(self):
        super().__init__()
        self.depthwise, self.linear = nn.Conv2d(8, 8, 3, groups=8), nn.Conv1d(8, 8, 1)
        self.linear.weight.requires_grad_(False)
        self.register_buffer("kernel", torch.rand(8, 1, 2, 2))

    def forward(self, x):
        y = functional.conv2d(self.depthwise(x), self.kernel, stride=2, groups=8).flatten(2)
        return self.linear(self.linear(y))


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.linear = nn.EmbeddingBag(30, 8, mode="mean"), nn.Linear(8, 3)

    def forward(self, ids):
        return self.linear(self.bag(ids))


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        self.head = nn.Linear(4 * 144, 10)

    def forward(self, x):
        return self.head(self.features(x))


def ids(last=WORDS, shape=(1, LENGTH)):
    return torch.randint(0, last, shape)


NETWORKS = {
    "gpt": (Gpt, (ids(),)),
    "llama": (Llama, (ids(),)),
    "bert": (Bert, (ids(), ids(2), torch.zeros(1, LENGTH, dtype=torch.bool))),
    "t5": (T5, (ids(),)),
    "whisper": (Whisper, (torch.zeros(1, 20, 20), ids())),
    "vit": (Vit, (torch.zeros(1, 3, 16, 16),)),
    "swin": (Swin, (torch.zeros(2, 9, 16),)),
    "norms": (Norms, (torch.zeros(2, 3, 8, 8),)),
    "gru": (lambda: Recurrent(nn.GRU(20, 24, batch_first=True), 24), (torch.zeros(64, 7, 20),)),
    "rnn": (lambda: Recurrent(nn.RNN(8, 12, batch_first=True), 12), (torch.zeros(3, 4, 8),)),
    "lstm": (
        lambda: Recurrent(nn.LSTM(10, 12, 2, batch_first=True, bidirectional=True), 24),
        (torch.zeros(3, 7, 10),),
    ),
    "attention": (Attention, (torch.zeros(1, 7, WIDTH),)),
    "causal": (Causal, (torch.zeros(1, 128, WIDTH),)),
    "mixer": (Mixer, (torch.zeros(1, 16, 8),)),
    "blurred": (Blurred, (torch.zeros(1, 8, 8, 8),)),
    "bag": (Bag, (ids(30, (3, 4)),)),
    "lenet": (LeNet, (torch.zeros(1, 1, 28, 28),)),
}
