"""The loss and the optimizer of a training step in PyTorch."""

from functools import reduce
from operator import add
from typing import Any

import torch

from tracer.errors import UsageError
from tracer.executors.eager.calls import described
from tracer.executors.eager.settings import EagerSettings
from tracer.executors.torch.step import Loss

_RATE = 1e-3


def loss_for(outputs: Any, settings: EagerSettings) -> Loss | None:
    """Returns the loss for a model with these `outputs`; None without a backward pass.

    `sum` adds all outputs that have a gradient. `cross-entropy` compares the first output,
    [N, classes, …], with random targets. Raises UsageError for outputs that do not suit.
    """
    if not settings.backward:
        return None
    if not any(leaf.requires_grad for leaf in _tensors(outputs)):
        raise UsageError(
            "no output of the model has a gradient",
            "Leave --backward out, or let a parameter require its gradient.",
        )
    if settings.loss != "cross-entropy":
        return _sum
    first = _tensors(outputs)[0]
    if first.dim() < 2 or not first.requires_grad:
        raise UsageError(
            f"cross-entropy needs an output [N, classes, …], and the first is {described(first)}",
            "Give --loss sum.",
        )
    random = torch.Generator().manual_seed(settings.seed)
    shape = (first.shape[0], *first.shape[2:])
    targets = torch.randint(first.shape[1], shape, generator=random).to(first.device)
    return lambda results: torch.nn.functional.cross_entropy(_tensors(results)[0], targets)


def optimizer_for(model: torch.nn.Module, settings: EagerSettings) -> torch.optim.Optimizer | None:
    """Returns the optimizer of the parameters that require a gradient; None if not set."""
    if settings.optimizer is None:
        return None
    kind: Any = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[settings.optimizer]
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer: torch.optim.Optimizer = kind(parameters, lr=_RATE)
    return optimizer


def _sum(outputs: Any) -> torch.Tensor:
    return reduce(add, (t.sum() for t in _tensors(outputs) if t.requires_grad))


def _tensors(outputs: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(outputs)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
