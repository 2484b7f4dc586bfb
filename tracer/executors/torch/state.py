"""Restores a module and torch's state after a profile."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tracer.executors.eager.settings import EagerSettings


@contextmanager
def preserved(model: torch.nn.Module, settings: EagerSettings) -> Iterator[None]:
    """Puts `model` on the device, seeded, in evaluation mode or, with `settings`, training mode.

    At the end it restores the modes, gradients, buffers and parameters of `model`, the number of
    threads and torch's random generators.
    """
    modes = [(module, module.training) for module in model.modules()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    tensors = [*model.buffers(), *(model.parameters() if settings.optimizer else ())]
    values = [(tensor, tensor.detach().clone()) for tensor in tensors if settings.training]
    threads, home = torch.get_num_threads(), _device(model)
    cards = [torch.cuda.current_device()] if settings.device == "cuda" else []
    try:
        with torch.random.fork_rng(cards):
            torch.manual_seed(settings.seed)
            if settings.threads:
                torch.set_num_threads(settings.threads)
            for module, _ in modes:
                module.training = settings.training
            for parameter, _ in gradients:
                parameter.grad = None
            if home is not None and settings.device != home.type:
                model.to(settings.device)
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
