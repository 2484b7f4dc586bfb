"""A data set as the trainers see it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from models.data import images
from tracer.errors import InputError

SPLIT_SEED = 0  # one seed for everybody: a test image of one run is a test image of every run


@dataclass(frozen=True, slots=True)
class Split:
    """Images [N, C, H, W], uint8 or float32, and their classes [N], int64."""

    x: NDArray[np.generic]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)

    def batch(
        self, indices: NDArray[np.int64] | slice
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Some images as float32, and their classes; uint8 pixels are divided by 255."""
        return images.as_float(self.x[indices]), self.y[indices]


@dataclass(frozen=True, slots=True)
class Dataset:
    """A training and a test split, and what the classes are called."""

    name: str
    train: Split
    test: Split
    labels: tuple[str, ...]

    def fitted(self, shape: tuple[int, int, int]) -> Dataset:
        """The same images as (channels, height, width). Raises InputError where that is no fit."""
        train = replace(self.train, x=images.fit(self.train.x, shape))
        return replace(self, train=train, test=replace(self.test, x=images.fit(self.test.x, shape)))


def split(x: NDArray[np.generic], y: NDArray[np.int64], test: int) -> tuple[Split, Split]:
    """A training and a test split of `test` images, drawn once and for all.

    Raises InputError where that leaves nothing to train on.
    """
    if not 0 < test < len(y):
        raise InputError(
            f"{len(y)} images cannot be split into training and test", "Give at least two."
        )
    order = np.random.default_rng(SPLIT_SEED).permutation(len(y))
    chosen, rest = order[:test], order[test:]
    return Split(x[rest], y[rest]), Split(x[chosen], y[chosen])
