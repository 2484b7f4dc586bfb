"""Marks the running module in torch's profile, by hooks on every module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tracer.executors.torch.spans import MODULE, mark


@contextmanager
def marked(model: torch.nn.Module) -> Iterator[None]:
    """Marks the calls of every module by its path, '' for `model`; removes the hooks at the end."""
    running: list[Any] = []
    handles: list[Any] = []

    def enter(name: str) -> None:
        running.append(mark(name))
        running[-1].__enter__()

    def leave() -> None:
        running.pop().__exit__(None, None, None)

    try:
        for path, module in model.named_modules():
            name = MODULE + path
            before = module.register_forward_pre_hook(lambda *_, name=name: enter(name))
            after = module.register_forward_hook(lambda *_: leave())
            handles += [before, after]
        yield
    finally:
        for handle in handles:
            handle.remove()
        while running:  # a module raised
            leave()
