"""The parameters of a module, as bytes."""

from __future__ import annotations

from collections.abc import Iterator

import torch


def parameters(model: torch.nn.Module) -> Iterator[tuple[str, int, bytes]]:
    """Name, number of elements and content of every parameter, a shared one once."""
    for name, parameter in model.named_parameters():
        flat = parameter.detach().cpu().contiguous().reshape(-1)
        yield name, parameter.numel(), flat.view(torch.uint8).numpy().tobytes()
