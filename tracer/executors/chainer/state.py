"""A link as it was found: what a profile changes in it, it puts back.

This module imports Chainer, and is imported only by functions that are about to use it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import chainer
import numpy as np
from threadpoolctl import threadpool_limits

from tracer.executors.eager.settings import EagerSettings


@contextmanager
def preserved(model: chainer.Link, options: EagerSettings) -> Iterator[None]:
    """In test mode without a graph, or in training mode with one; seeded; BLAS on `threads`.

    After it the gradients, the parameters, their update rules and the persistent values of
    `model` are what they were, and so are the generators that dropout draws from.
    """
    params = [(p, p.grad_var, p.update_rule) for p in model.params() if p.array is not None]
    arrays = [p.array for p, _, _ in params] if options.optimizer else []
    held = [(link, name, value) for link in model.links() for name, value in _persistent(link)]
    arrays += [value for _, _, value in held if isinstance(value, np.ndarray)]
    copies = [(array, array.copy()) for array in arrays if options.backward]
    states = np.random.get_state(), random.getstate()
    try:
        np.random.seed(options.seed)
        for param, _, _ in params:
            param.cleargrad()
        with (
            threadpool_limits(options.threads or None),
            chainer.using_config("train", options.backward),
            chainer.using_config("enable_backprop", options.backward),
        ):
            yield
    finally:
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
