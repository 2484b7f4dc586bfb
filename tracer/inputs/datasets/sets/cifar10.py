"""Reads CIFAR-10 (Krizhevsky 2009) in its binary version, which needs no pickle."""

from pathlib import Path

import numpy as np

from tracer.errors import InputError
from tracer.inputs.datasets.sets import LabelledImages, Split

LABELS = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
SUBFOLDER = "cifar-10-batches-bin"
TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST = ("test_batch.bin",)
RECORD = 1 + 3 * 32 * 32  # a label, then red, green and blue planes row by row


def read(folder: Path) -> LabelledImages:
    """Reads 50,000 training and 10,000 test images, uint8 [N, 3, 32, 32].

    Raises InputError for a file that is missing or does not hold records.
    """
    source = folder / SUBFOLDER if (folder / SUBFOLDER).is_dir() else folder
    missing = [name for name in (*TRAIN, *TEST) if not (source / name).is_file()]
    if missing:
        raise InputError(
            f"CIFAR-10 is not in {source}: no {', '.join(missing)}",
            f"Unpack 'CIFAR-10 binary version' (cifar-10-binary.tar.gz, from "
            f"https://www.cs.toronto.edu/~kriz/cifar.html) in {folder}, which creates "
            f"{folder / SUBFOLDER}; or set --data-dir.",
        )
    return LabelledImages("cifar10", _split(source, TRAIN), _split(source, TEST), LABELS)


def _split(folder: Path, names: tuple[str, ...]) -> Split:
    files = [_records(folder / name) for name in names]
    labels = np.concatenate([records[:, 0] for records in files])
    pixels = tuple(records[:, 1:].reshape(-1, 3, 32, 32) for records in files)
    return Split(pixels, labels.astype(np.int64))


def _records(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Returns the memory-mapped records of a file."""
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
