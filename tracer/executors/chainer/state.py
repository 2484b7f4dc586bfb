"""Restores a link and the random generators after a profile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import chainer
import numpy as np
from threadpoolctl import threadpool_limits

from tracer.executors.chainer.links import state_restorer
from tracer.executors.eager.settings import EagerSettings


@contextmanager
def preserved(model: chainer.Link, settings: EagerSettings) -> Iterator[None]:
    """Sets test mode or, with `settings`, training mode; seeds; limits BLAS to `threads`.

    At the end it restores the gradients, parameters, update rules, persistent values and states of
    `model`, and the random generators of dropout.
    """
    params = [(p, p.grad_var, p.update_rule) for p in model.params() if p.array is not None]
    arrays = [p.array for p, _, _ in params] if settings.optimizer else []
    held = [(link, name, value) for link in model.links() for name, value in _persistent(link)]
    arrays += [value for _, _, value in held if isinstance(value, np.ndarray)]
    copies = [(array, array.copy()) for array in arrays if settings.training]
    states = np.random.get_state(), random.getstate()
    restore = state_restorer(model)
    try:
        np.random.seed(settings.seed)
        for param, _, _ in params:
            param.cleargrad()
        with (
            threadpool_limits(settings.threads or None),
            chainer.using_config("train", settings.training),
            chainer.using_config("enable_backprop", settings.training),
        ):
            yield
    finally:
        restore()
        for array, copy in copies:
            array[...] = copy
        for link, name, value in held:
            setattr(link, name, value)
        for param, gradient, rule in params:
            param.grad_var, param.update_rule = gradient, rule
        np.random.set_state(states[0])
        random.setstate(states[1])


def _persistent(link: chainer.Link) -> list[tuple[str, Any]]:
    return [(name, getattr(link, name)) for name in sorted(link._persistent)]
