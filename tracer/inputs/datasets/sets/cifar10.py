"""CIFAR-10 (Krizhevsky 2009) in its published binary version: no pickle is opened."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tracer.errors import InputError
from tracer.inputs.datasets.labelled import LabelledImages, Split

LABELS = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
SUBFOLDER = "cifar-10-batches-bin"
TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST = ("test_batch.bin",)
RECORD = 1 + 3 * 32 * 32  # a label, then red, green and blue planes row by row


def read(folder: Path) -> LabelledImages:
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
    return LabelledImages("cifar10", _split(place, TRAIN), _split(place, TEST), LABELS)


def _split(place: Path, names: tuple[str, ...]) -> Split:
    files = [_records(place / name) for name in names]
    labels = np.concatenate([records[:, 0] for records in files])
    pixels = tuple(records[:, 1:].reshape(-1, 3, 32, 32) for records in files)
    return Split(pixels, labels.astype(np.int64))


def _records(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """The file's records, which stay in it until they are read."""
    size = path.stat().st_size
    if not size or size % RECORD:
        raise InputError(
            f"{path}: {size} bytes are not whole records of {RECORD}", "Download it again."
        )
    records = np.asarray(np.memmap(path, np.uint8, "r")).reshape(-1, RECORD)
    if records[:, 0].max() >= len(LABELS):
        raise InputError(
            f"{path}: a label is {records[:, 0].max()}, but there are {len(LABELS)} classes",
            "This is not the binary version of CIFAR-10 (CIFAR-100 has two labels a record).",
        )
    return records
