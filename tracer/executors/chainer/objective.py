"""What a training step minimises, and by what.

This module imports Chainer, and is imported only by functions that are about to use it.
"""

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


def loss_for(outputs: Any, options: EagerSettings) -> Callable[[Any], chainer.Variable] | None:
    """The loss of `options` for a model that gave `outputs`; None where no gradient is asked for.

    `sum` adds all outputs that have a gradient. `cross-entropy` is that of the first output,
    [N, classes, …], with random targets. Raises UsageError where the outputs do not suit.
    """
    if not options.backward:
        return None
    if not _differentiable(outputs):
        raise UsageError(
            "no output of the model has a gradient",
            "Leave --backward out, or have the model return what functions of Chainer made.",
        )
    if options.loss != "cross-entropy":
        return _sum
    first = _differentiable(outputs)[0]
    if first.ndim < 2:
        raise UsageError(
            f"cross-entropy needs an output [N, classes, …], and the first is {described(first)}",
            "Give --loss sum.",
        )
    shape = (first.shape[0], *first.shape[2:])
    targets = np.random.default_rng(options.seed).integers(first.shape[1], size=shape)
    targets = targets.astype(np.int32)
    entropy = chainer.functions.softmax_cross_entropy
    return lambda found: entropy(_differentiable(found)[0], targets)


def optimizer_for(model: chainer.Link, options: EagerSettings) -> Any:
    """The optimiser of `options`, set up for `model`; None where none is asked for."""
    if options.optimizer is None:
        return None
    kinds = {"sgd": chainer.optimizers.SGD, "adam": chainer.optimizers.Adam}
    return kinds[options.optimizer](_RATE).setup(model)


def _sum(outputs: Any) -> chainer.Variable:
    return reduce(add, map(chainer.functions.sum, _differentiable(outputs)))


def _differentiable(outputs: Any) -> list[Any]:
    """The outputs that functions made, of a model that returns one, a list, a tuple or a dict."""
    if isinstance(outputs, dict):
        outputs = list(outputs.values())
    values = outputs if isinstance(outputs, list | tuple) else [outputs]
    return [v for v in values if isinstance(v, chainer.Variable) and v.creator_node is not None]
