"""A pre-norm transformer encoder over image patches, after Dosovitskiy et al. 2021, in PyTorch."""

from __future__ import annotations  # shipped models record the lines of this file

import torch
from torch import nn
from torch.nn import functional

from tracer.errors import UsageError

IMAGE = 32


class Attention(nn.Module):
    """Multi-head self-attention over [N, tokens, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape out as in."""
        q, k, v = (
            project(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        h = functional.scaled_dot_product_attention(q, k, v)
        return self.out(h.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention and a two-layer perceptron, each normalised before and added after."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Same shape out as in: [N, tokens, width]."""
        x = x + self.attention(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class PatchTransformer(nn.Module):
    """`layers` encoder layers over the patches of an image, then the mean of the tokens.

    Takes float32 [N, 3, 32, 32] and returns logits [N, classes]. Raises UsageError where `heads`
    does not divide `width`, or `patch` the image's 32 pixels.
    """

    def __init__(
        self, width: int = 64, heads: int = 4, layers: int = 2, patch: int = 8, classes: int = 10
    ) -> None:
        super().__init__()
        if width % heads:
            raise UsageError(f"{heads} heads do not divide width {width}", "Change one of them.")
        if IMAGE % patch:
            raise UsageError(f"patch {patch} does not divide {IMAGE} pixels", "Use 2, 4, 8 or 16.")
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.positions = nn.Parameter(torch.randn(1, (IMAGE // patch) ** 2, width) * 0.02)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images to logits."""
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return self.fc(self.norm(self.layers(tokens)).mean(1))

    input_shape = (3, IMAGE, IMAGE)
