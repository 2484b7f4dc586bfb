"""Load text as training data: windows of bytes, each with the bytes that follow."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError

FOLDER = Path(__file__).parent / "texts"
PREFIX = "text:"
_TEST_SHARE = 10  # the last tenth of a file of the user's is held out


@dataclass(frozen=True, slots=True)
class TextSplit:
    """Windows of `context` bytes of `data`, uint8, one after another."""

    data: NDArray[np.uint8] = field(repr=False)
    context: int = 256

    def __len__(self) -> int:
        """The number of whole windows, each with a byte that follows its last."""
        return (len(self.data) - 1) // self.context

    def batch(
        self, indices: NDArray[np.int64] | slice
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns some windows, int64 [n, context], and the byte after each of theirs, alike."""
        starts = np.arange(len(self))[indices][:, None] * self.context
        places = starts + np.arange(self.context)
        return self.data[places].astype(np.int64), self.data[places + 1].astype(np.int64)


@dataclass(frozen=True, slots=True)
class Text:
    """A training and a test split of a text. It has no classes."""

    name: str
    train: TextSplit
    test: TextSplit
    labels: tuple[str, ...] = ()

    def fitted(self, shape: tuple[int, ...]) -> Text:
        """Returns the text in windows of `shape`, (context,). Raises InputError for short text."""
        (context,) = shape
        splits = [replace(split, context=context) for split in (self.train, self.test)]
        for split in splits:
            if not len(split):
                raise InputError(
                    f"{self.name}: {len(split.data):,} bytes are no window of {context} and a "
                    "byte that follows",
                    "Give a longer text, or a smaller --size.",
                )
        return Text(self.name, *splits)


def names() -> tuple[str, ...]:
    """Returns the names of the shipped texts."""
    return tuple(
        sorted(path.name.removesuffix(".train.txt") for path in FOLDER.glob("*.train.txt"))
    )


def read(name: str) -> Text:
    """Returns the shipped text called `name`, or that of a file: text:FILE.

    The last tenth of a file is its test split. Raises InputError for a file that cannot be read.
    """
    if name in names():
        train, test = (_bytes(FOLDER / f"{name}.{part}.txt") for part in ("train", "test"))
    else:
        data = _bytes(Path(name.removeprefix(PREFIX)))
        held_out = len(data) // _TEST_SHARE
        train, test = data[: len(data) - held_out], data[len(data) - held_out :]
    return Text(name, TextSplit(train), TextSplit(test))


def _bytes(path: Path) -> NDArray[np.uint8]:
    try:
        return np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror})", "Name a text file: text:FILE."
        ) from error
