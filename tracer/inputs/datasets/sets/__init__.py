"""Labelled images of the named data sets, split into training and test.

There is one module per data set, named like it, with `read(folder: Path) -> LabelledImages`.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError
from tracer.inputs.datasets import DEFAULT_FOLDER, images

SPLIT_SEED = 0  # fixed: the test images are the same in every run


@dataclass(frozen=True, slots=True)
class Split:
    """Images [N, C, H, W], uint8 or float32, and their classes [N], int64.

    The images may be several arrays in order; memory-mapped files are read on access.
    """

    parts: tuple[NDArray[np.generic], ...]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)

    @property
    def x(self) -> NDArray[np.generic]:
        """All images as one array; several arrays are concatenated in memory."""
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)

    def batch(
        self, indices: NDArray[np.int64] | slice
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns some images as float32 (uint8 divided by 255), and their classes."""
        return images.as_float(self.x[indices]), self.y[indices]

    def slices(
        self, size: int, first: int = 0
    ) -> Iterator[tuple[NDArray[np.generic], NDArray[np.int64]]]:
        """Yields images and classes in order from image `first` on, up to `size` at a time."""
        start = 0
        for part in self.parts:
            for offset in range(max(0, first - start), len(part), size):
                piece = part[offset : offset + size]
                yield piece, self.y[start + offset : start + offset + len(piece)]
            start += len(part)

    def fitted(self, shape: tuple[int, int, int]) -> "Split":
        """Returns the images, in memory, as (channels, height, width)."""
        return replace(self, parts=(images.fit(self.x, shape),))


@dataclass(frozen=True, slots=True)
class LabelledImages:
    """A training and a test split, and the names of the classes."""

    name: str
    train: Split
    test: Split
    labels: tuple[str, ...]

    def fitted(self, shape: tuple[int, int, int]) -> "LabelledImages":
        """Returns the images as (channels, height, width). Raises InputError if they cannot fit."""
        return replace(self, train=self.train.fitted(shape), test=self.test.fitted(shape))


def names() -> tuple[str, ...]:
    """Returns the names of all named data sets, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def read(name: str, folder: Path = DEFAULT_FOLDER) -> LabelledImages:
    """Reads the data set `name`, one of `names()`, from `folder` if it needs files.

    Raises UsageError for a missing package, InputError for missing or broken files; the hint says
    which files belong where.
    """
    dataset = importlib.import_module(f"{__name__}.{name}").read(folder)
    assert isinstance(dataset, LabelledImages)
    return dataset


def split(x: NDArray[np.generic], y: NDArray[np.int64], test: int) -> tuple[Split, Split]:
    """Returns a training split and a test split of `test` images, drawn with a fixed seed.

    Raises InputError if no training images remain.
    """
    if not 0 < test < len(y):
        raise InputError(
            f"{len(y)} images cannot be split into training and test", "Use at least two."
        )
    order = np.random.default_rng(SPLIT_SEED).permutation(len(y))
    held_out, rest = order[:test], order[test:]
    return Split((x[rest],), y[rest]), Split((x[held_out],), y[held_out])
