"""The loss and the optimizer of a training step in Chainer."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import chainer
import numpy as np

from tracer.errors import UsageError
from tracer.executors.eager.calls import described
from tracer.executors.eager.settings import EagerSettings

_RATE = 1e-3


def loss_for(outputs: Any, settings: EagerSettings) -> Callable[[Any], chainer.Variable] | None:
    """Returns the loss for a model with these `outputs`; None without a backward pass.

    `sum` adds all outputs that have a gradient. `cross-entropy` compares the first output,
    [N, classes, …], with random targets. Raises UsageError for outputs that do not suit.
    """
    if not settings.backward:
        return None
    if not _differentiable(outputs):
        raise UsageError(
            "no output of the model has a gradient",
            "Leave --backward out, or let the model return outputs of Chainer functions.",
        )
    if settings.loss != "cross-entropy":
        return _sum
    first = _differentiable(outputs)[0]
    if first.ndim < 2:
        raise UsageError(
            f"cross-entropy needs an output [N, classes, …], and the first is {described(first)}",
            "Give --loss sum.",
        )
    shape = (first.shape[0], *first.shape[2:])
    targets = np.random.default_rng(settings.seed).integers(first.shape[1], size=shape)
    targets = targets.astype(np.int32)
    entropy = chainer.functions.softmax_cross_entropy
    return lambda results: entropy(_differentiable(results)[0], targets)


def optimizer_for(model: chainer.Link, settings: EagerSettings) -> Any:
    """Returns the optimizer, set up for `model`; None if not set."""
    if settings.optimizer is None:
        return None
    kinds = {"sgd": chainer.optimizers.SGD, "adam": chainer.optimizers.Adam}
    return kinds[settings.optimizer](_RATE).setup(model)


def _sum(outputs: Any) -> chainer.Variable:
    return reduce(add, map(chainer.functions.sum, _differentiable(outputs)))


def _differentiable(outputs: Any) -> list[Any]:
    """Returns the outputs with a gradient; a model returns one, a list, a tuple or a dict."""
    if isinstance(outputs, dict):
        outputs = list(outputs.values())
    values = outputs if isinstance(outputs, list | tuple) else [outputs]
    return [v for v in values if isinstance(v, chainer.Variable) and v.creator_node is not None]
