"""Labelled images: what the data sets with a name consist of, for training and for measuring."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError
from tracer.inputs.datasets import images, sets

DEFAULT_FOLDER = Path("data")
SPLIT_SEED = 0  # one seed for everybody: a test image of one run is a test image of every run


@dataclass(frozen=True, slots=True)
class Split:
    """Images [N, C, H, W], uint8 or float32, and their classes [N], int64.

    The images may lie in several arrays, one after the other; those of files stay there until
    they are read.
    """

    parts: tuple[NDArray[np.generic], ...]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)

    @property
    def x(self) -> NDArray[np.generic]:
        """All images as one array, in memory where they lie in several."""
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)

    def batch(
        self, indices: NDArray[np.int64] | slice
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Some images as float32, and their classes; uint8 pixels are divided by 255."""
        return images.as_float(self.x[indices]), self.y[indices]

    def slices(self, size: int) -> Iterator[tuple[NDArray[np.generic], NDArray[np.int64]]]:
        """Images and classes in their order, up to `size` of them at a time."""
        start = 0
        for part in self.parts:
            for offset in range(0, len(part), size):
                piece = part[offset : offset + size]
                yield piece, self.y[start + offset : start + offset + len(piece)]
            start += len(part)

    def fitted(self, shape: tuple[int, int, int]) -> Split:
        """The same images, in memory, as (channels, height, width)."""
        return replace(self, parts=(images.fit(self.x, shape),))


@dataclass(frozen=True, slots=True)
class LabelledImages:
    """A training and a test split, and what the classes are called."""

    name: str
    train: Split
    test: Split
    labels: tuple[str, ...]

    def fitted(self, shape: tuple[int, int, int]) -> LabelledImages:
        """The same images as (channels, height, width). Raises InputError where that is no fit."""
        return replace(self, train=self.train.fitted(shape), test=self.test.fitted(shape))


def names() -> tuple[str, ...]:
    """Every data set that can be asked for by name, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(sets.__path__)))


def read(name: str, folder: Path = DEFAULT_FOLDER) -> LabelledImages:
    """The data set called `name`, one of `names()`, read from `folder` if it is not embedded.

    Raises UsageError where a package is not installed, InputError for files that are missing or
    broken; the hint says which files belong where.
    """
    found = importlib.import_module(f"{sets.__name__}.{name}").read(folder)
    assert isinstance(found, LabelledImages)
    return found


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
    return Split((x[rest],), y[rest]), Split((x[chosen],), y[chosen])
