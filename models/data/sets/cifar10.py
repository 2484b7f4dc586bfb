"""CIFAR-10 (Krizhevsky 2009) in its published binary version: no pickle is opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from models.data.dataset import Dataset, Split
from tracer.errors import InputError

LABELS = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
SUBFOLDER = "cifar-10-batches-bin"
TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST = ("test_batch.bin",)
RECORD = 1 + 3 * 32 * 32  # a label, then red, green and blue planes row by row


def read(folder: Path) -> Dataset:
    """50,000 training and 10,000 test images, uint8 [N, 3, 32, 32].

    Raises InputError where a file is missing or is not made of records.
    """
    place = folder / SUBFOLDER if (folder / SUBFOLDER).is_dir() else folder
    missing = [name for name in (*TRAIN, *TEST) if not (place / name).is_file()]
    if missing:
        raise InputError(
            f"CIFAR-10 is not in {place}: no {', '.join(missing)}",
            f"Unpack 'CIFAR-10 binary version' (cifar-10-binary.tar.gz, from "
            f"https://www.cs.toronto.edu/~kriz/cifar.html) in {folder}, which makes "
            f"{folder / SUBFOLDER}; or give --data-dir.",
        )
    return Dataset("cifar10", _split(place, TRAIN), _split(place, TEST), LABELS)


def _split(place: Path, names: tuple[str, ...]) -> Split:
    records = np.concatenate([_records(place / name) for name in names])
    return Split(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64))


def _records(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    data = np.fromfile(path, np.uint8)
    if not len(data) or len(data) % RECORD:
        raise InputError(
            f"{path}: {len(data)} bytes are not whole records of {RECORD}", "Download it again."
        )
    records = data.reshape(-1, RECORD)
    if records[:, 0].max() >= len(LABELS):
        raise InputError(
            f"{path}: a label is {records[:, 0].max()}, but there are {len(LABELS)} classes",
            "This is not the binary version of CIFAR-10 (CIFAR-100 has two labels a record).",
        )
    return records
