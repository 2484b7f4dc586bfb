"""What the language models share in PyTorch: their key-value cache, and how it is exported."""

from __future__ import annotations  # shipped models record lines of modules that use this file

import torch
from torch import nn


class CachedDecoder(nn.Module):
    """A decoder of int64 tokens [N, S] with a cache, to logits and the cache.

    A subclass sets `layers`, and `cache`, the heads of keys and values and the size of a head. The
    cache is a key and a value [N, heads, P, size] for each layer, with the P tokens before.
    """

    layers: nn.ModuleList
    cache: tuple[int, int]

    def empty_cache(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the keys and values of no tokens, for each layer."""
        heads, size = self.cache
        empty = torch.zeros(len(input_ids), heads, 0, size, device=input_ids.device)
        return (empty,) * (2 * len(self.layers))

    @property
    def input_shape(self) -> tuple[tuple[int, ...], ...]:
        """The shape of one example of each input, which the exporter traces: 4 tokens after 3."""
        heads, size = self.cache
        return ((4,), *[(heads, 3, size)] * (2 * len(self.layers)))

    @property
    def input_dtype(self) -> tuple[str, ...]:
        """The element type of each input."""
        return ("int64", *["float32"] * (2 * len(self.layers)))

    @property
    def tensor_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of inputs and outputs, as onnxruntime-genai has them."""
        parts = [f"{n}.{part}" for n in range(len(self.layers)) for part in ("key", "value")]
        inputs = ("input_ids", *(f"past_key_values.{part}" for part in parts))
        return inputs, ("logits", *(f"present.{part}" for part in parts))

    @property
    def dynamic_axes(self) -> tuple[dict[int, str], ...]:
        """The names of the axes of each input that may have any size, besides the batch."""
        return ({1: "sequence"}, *[{2: "past"}] * (2 * len(self.layers)))
