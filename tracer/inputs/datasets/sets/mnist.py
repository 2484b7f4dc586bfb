"""MNIST (LeCun, Cortes and Burges) in its published idx format, compressed or not."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError
from tracer.inputs.datasets.labelled import LabelledImages, Split

FOLDERS = ("mnist", "MNIST/raw", "")
STEMS = ("train", "t10k")  # of the training and the test images
IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
UINT8 = 0x08  # the type byte of the idx header


def read(folder: Path) -> LabelledImages:
    """60,000 training and 10,000 test images, uint8 [N, 1, 28, 28].

    Raises InputError where a file is missing or is not what its header says.
    """
    wanted = [f"{stem}-{kind}" for stem in STEMS for kind in (IMAGES, LABELS)]
    found = {name: path for name in wanted if (path := _find(folder, name))}
    missing = [name for name in wanted if name not in found]
    if missing:
        raise InputError(
            f"MNIST is not in {folder}: no {', '.join(missing)} (nor as .gz)",
            f"Put them into {folder / FOLDERS[0]}, or give --data-dir.",
        )
    train, test = (_split(found[f"{stem}-{IMAGES}"], found[f"{stem}-{LABELS}"]) for stem in STEMS)
    return LabelledImages("mnist", train, test, tuple(str(digit) for digit in range(10)))


def _split(images_path: Path, labels_path: Path) -> Split:
    x, y = read_idx(images_path, 3), read_idx(labels_path, 1)
    if len(x) != len(y):
        raise InputError(
            f"{images_path} has {len(x)} images, but {labels_path} has {len(y)} labels",
            "Take both from the same download.",
        )
    if len(y) and y.max() > 9:
        raise InputError(f"{labels_path}: a label is {y.max()}, not a digit", "Download it again.")
    return Split((x[:, None],), y.astype(np.int64))


def _find(folder: Path, name: str) -> Path | None:
    """The file under any of the names and folders that downloads come with."""
    for place in FOLDERS:
        for spelling in (name, f"{name}.gz", name.replace("-idx", ".idx")):
            if (folder / place / spelling).is_file():
                return folder / place / spelling
    return None


def read_idx(path: Path, rank: int) -> NDArray[np.uint8]:
    """An idx file of bytes with `rank` dimensions, unpacked in memory if it ends in .gz.

    The header is two zero bytes, the type, the rank, and each size as a big-endian int32. Raises
    InputError where the file is not that or has another length.
    """
    data = _bytes(path)
    header = 4 + 4 * rank
    if data[:4].tolist() != [0, 0, UINT8, rank] or len(data) < header:
        raise InputError(f"{path}: not an idx file of {rank}-dimensional bytes", "Download again.")
    sizes = data[4:header].view(">u4").astype(int)
    if len(data) != header + sizes.prod():
        raise InputError(
            f"{path}: the header promises {sizes.prod()} bytes, but {len(data) - header} follow",
            "The file is truncated or padded: download it again.",
        )
    return data[header:].reshape(sizes)


def _bytes(path: Path) -> NDArray[np.uint8]:
    """A plain file's bytes stay in it until they are read."""
    if path.suffix != ".gz":
        whole = path.stat().st_size > 0  # nothing cannot be mapped
        return np.asarray(np.memmap(path, np.uint8, "r")) if whole else np.empty(0, np.uint8)
    try:
        return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: not a whole gzip file ({error})", "Download again.") from error
