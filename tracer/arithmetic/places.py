"""Places in a buffer as runs, which are plain data: begin and length of each."""

from collections.abc import Sequence

import numpy as np

from tracer.support.types import Array


def runs_of(places: Array) -> list[int]:
    """Returns the runs of true places of a vector."""
    edges = np.flatnonzero(np.diff(places, prepend=False, append=False)).reshape(-1, 2)
    return [int(number) for low, high in edges for number in (low, high - low)]


def indices_of(runs: Sequence[int]) -> Array:
    """Returns the indices in runs."""
    pairs = np.reshape(runs, (-1, 2)).astype(np.int64)
    return np.concatenate([np.arange(low, low + length) for low, length in pairs] or [pairs[:, 0]])
