"""A module as it was found: what a profile changes in it, it puts back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tracer.executors.eager.settings import EagerSettings


@contextmanager
def preserved(model: torch.nn.Module, options: EagerSettings) -> Iterator[None]:
    """In evaluation mode, or in training mode for a training step; on the device; seeded.

    After it the modes, gradients, buffers and parameters of `model` are what they were, and so
    are the number of threads and torch's generators.
    """
    modes = [(module, module.training) for module in model.modules()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    tensors = [*model.buffers(), *(model.parameters() if options.optimizer else ())]
    values = [(tensor, tensor.detach().clone()) for tensor in tensors if options.backward]
    threads, home = torch.get_num_threads(), _device(model)
    cards = [torch.cuda.current_device()] if options.device == "cuda" else []
    try:
        with torch.random.fork_rng(cards):
            torch.manual_seed(options.seed)
            if options.threads:
                torch.set_num_threads(options.threads)
            for module, _ in modes:
                module.training = options.backward
            for parameter, _ in gradients:
                parameter.grad = None
            if home is not None and options.device != home.type:
                model.to(options.device)
            yield
    finally:
        for parameter, _ in gradients:
            parameter.grad = None
        if home is not None:
            model.to(home)
        with torch.no_grad():
            for tensor, value in values:
                tensor.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for module, training in modes:
            module.training = training
        torch.set_num_threads(threads)


def _device(model: torch.nn.Module) -> torch.device | None:
    first = next((*model.parameters(), *model.buffers()).__iter__(), None)
    return None if first is None else first.device
