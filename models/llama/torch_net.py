"""A decoder over bytes after Touvron et al. 2023 (Llama), with a key-value cache, in PyTorch."""

from __future__ import annotations  # shipped models record the lines of this file

import torch
from torch import nn
from torch.nn import functional

from models.decoder import CachedDecoder
from tracer.errors import UsageError

THETA = 10_000.0  # base of the rotary wavelengths, of Su et al. 2021


def rotary(start: int, end: int, width: int, at: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns cosines and sines [end - start, width / 2] of the positions, of Su et al. 2021."""
    positions = torch.arange(start, end, dtype=torch.float32, device=at)
    frequencies = THETA ** (torch.arange(0, width, 2, dtype=torch.float32, device=at) / -width)
    angles = positions[:, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Turns the pairs (i, i + width / 2) of [N, heads, tokens, width] by their angles."""
    low, high = x.chunk(2, -1)
    return torch.cat((low * cosines - high * sines, high * cosines + low * sines), -1)


class Attention(nn.Module):
    """Causal attention of `heads` query heads over `groups` heads of keys and values.

    A group of query heads shares a key and a value head, after Ainslie et al. 2023.
    """

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.size, bias=False)
        self.value = nn.Linear(width, groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        past: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """[N, tokens, width] in and out, and the cache with the keys and values of `x` appended."""
        query = self.query(x).unflatten(2, (self.heads, self.size)).transpose(1, 2)
        key, value = (
            project(x).unflatten(2, (self.groups, self.size)).transpose(1, 2)
            for project in (self.key, self.value)
        )
        keys = torch.cat((past[0], rotate(key, *angles)), 2)
        values = torch.cat((past[1], value), 2)
        shared = self.heads // self.groups
        h = functional.scaled_dot_product_attention(
            rotate(query, *angles),
            keys.repeat_interleave(shared, 1),
            values.repeat_interleave(shared, 1),
            attn_mask=mask,
        )
        return self.out(h.transpose(1, 2).flatten(2)), (keys, values)


class FeedForward(nn.Module):
    """SwiGLU, after Shazeer 2020: a product gated by the sigmoid linear unit of another."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape out as in."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """Attention and feed-forward, each normalised before and added after."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(width, eps=1e-5)
        self.attention = Attention(width, heads, groups)
        self.norm2 = nn.RMSNorm(width, eps=1e-5)
        self.feed_forward = FeedForward(width, hidden)

    def forward(
        self,
        x: torch.Tensor,
        past: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor,
        angles: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Same shape out as in, and the cache of this layer."""
        h, present = self.attention(self.norm1(x), past, mask, angles)
        x = x + h
        return x + self.feed_forward(self.norm2(x)), present


class Llama(CachedDecoder):
    """`layers` decoder layers with RMSNorm, rotary positions, grouped heads and SwiGLU.

    Takes int64 tokens [N, S] and the cache: a key and a value [N, groups, P, width / heads] for
    each layer, with the P tokens before; none at all is an empty one. Returns logits [N, S,
    vocabulary] and the cache with P + S tokens. Raises UsageError where `heads` does not divide
    `width` into even sizes, or `groups` the heads.
    """

    def __init__(
        self,
        width: int = 128,
        heads: int = 4,
        groups: int = 2,
        layers: int = 3,
        hidden: int = 352,
        vocabulary: int = 256,
    ) -> None:
        super().__init__()
        if width % (2 * heads):
            raise UsageError(
                f"width {width} is not {heads} heads of an even size", "Change one of them."
            )
        if heads % groups:
            raise UsageError(f"{groups} groups do not divide {heads} heads", "Change one of them.")
        self.head_size = width // heads
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads, groups, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.cache = (groups, self.head_size)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, input_ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Tokens and cache to logits and cache."""
        past = past or self.empty_cache(input_ids)
        before, at = past[0].shape[2], input_ids.device
        end = before + input_ids.shape[1]
        angles = rotary(before, end, self.head_size, at)
        mask = torch.arange(end, device=at)[None] <= torch.arange(before, end, device=at)[:, None]
        h, present = self.embedding(input_ids), []
        for layer, key, value in zip(self.layers, past[::2], past[1::2], strict=True):
            h, own = layer(h, (key, value), mask, angles)
            present += own
        return self.head(self.norm(h)), *present
