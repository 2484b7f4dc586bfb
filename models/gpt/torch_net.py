"""A decoder over bytes after Radford et al. 2019 (GPT-2), with a key-value cache, in PyTorch."""

from __future__ import annotations  # shipped models record the lines of this file

import torch
from torch import nn
from torch.nn import functional

from models.decoder import CachedDecoder
from tracer.errors import UsageError


def waves(context: int, width: int) -> torch.Tensor:
    """Returns sines and cosines [context, width] of positions, of Vaswani et al. 2017.

    Positions learn faster from these than from random numbers: an attention to the token before is
    a linear function of them.
    """
    rates = 10_000.0 ** (torch.arange(0, width, 2) / -width)
    angles = torch.arange(context)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), 1)


class Attention(nn.Module):
    """Causal multi-head attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(
        self, x: torch.Tensor, past: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """[N, tokens, width] in and out, and the cache with the keys and values of `x` appended."""
        query, key, value = (
            project(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        keys, values = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
        h = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        return self.out(h.transpose(1, 2).flatten(2)), (keys, values)


class Layer(nn.Module):
    """Attention and a two-layer perceptron, each normalised before and added after."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(
        self, x: torch.Tensor, past: tuple[torch.Tensor, torch.Tensor], mask: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Same shape out as in, and the cache of this layer."""
        h, present = self.attention(self.norm1(x), past, mask)
        x = x + h
        return x + self.down(functional.gelu(self.up(self.norm2(x)))), present


class Gpt(CachedDecoder):
    """`layers` decoder layers with learned positions, LayerNorm and Gelu.

    Takes int64 tokens [N, S] and the cache: a key and a value [N, heads, P, width / heads] for each
    layer, with the P tokens before; none at all is an empty one. Returns logits [N, S, vocabulary]
    and the cache with P + S tokens, at most `context`. Raises UsageError where `heads` does not
    divide `width`.
    """

    def __init__(
        self,
        width: int = 128,
        heads: int = 4,
        layers: int = 3,
        context: int = 256,
        vocabulary: int = 256,
    ) -> None:
        super().__init__()
        if width % heads:
            raise UsageError(f"{heads} heads do not divide width {width}", "Change one of them.")
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.cache = (heads, width // heads)
        with torch.no_grad():
            self.positions.weight.copy_(waves(context, width))

    def forward(self, input_ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Tokens and cache to logits and cache."""
        past = past or self.empty_cache(input_ids)
        before = past[0].shape[2]
        total = before + input_ids.shape[1]
        places = torch.arange(before, total, device=input_ids.device)
        mask = torch.arange(total, device=places.device)[None, :] <= places[:, None]
        h, present = self.embedding(input_ids) + self.positions(places), []
        for layer, key, value in zip(self.layers, past[::2], past[1::2], strict=True):
            h, own = layer(h, (key, value), mask)
            present += own
        return self.head(self.norm(h)), *present
