"""Seed the random numbers that weights are drawn from, and leave the user's as they were."""

import importlib
import random
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

_ANY_SEED = 2**32
"""numpy takes seeds below this."""


@contextmanager
def seeded(seed: int | None, source: Path | None = None) -> Iterator[None]:
    """Draws from `seed` inside: Python's, numpy's (Chainer's as well) and torch's generators.

    Afterwards the generators are as they were. With `seed` None nothing is changed. `source` is
    a file that is about to be imported. If its text names torch, torch is imported first: the file
    may make its model, or seed torch itself, while it is imported.
    """
    if seed is None:
        yield
        return
    if source is not None and re.search(rb"\btorch\b", source.read_bytes()):
        with suppress(ModuleNotFoundError):  # importing the source says what is missing
            importlib.import_module("torch")
    restores = [_python(seed), _numpy(seed)]
    if sys.modules.get("torch") is not None:
        restores.append(_torch(seed))
    try:
        yield
    finally:
        for restore in restores:
            restore()


def _python(seed: int) -> Callable[[], None]:
    state = random.getstate()
    random.seed(seed)
    return lambda: random.setstate(state)


def _numpy(seed: int) -> Callable[[], None]:
    state = np.random.get_state()  # the global generator, which Chainer draws from
    np.random.seed(seed % _ANY_SEED)
    return lambda: np.random.set_state(state)


def _torch(seed: int) -> Callable[[], None]:
    torch: Any = sys.modules["torch"]
    state, cards = torch.get_rng_state(), []
    if torch.cuda.is_initialized():
        cards = torch.cuda.get_rng_state_all()
    torch.manual_seed(seed)

    def restore() -> None:
        torch.set_rng_state(state)
        if cards:
            torch.cuda.set_rng_state_all(cards)

    return restore
