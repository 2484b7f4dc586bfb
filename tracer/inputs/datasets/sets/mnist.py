"""Reads MNIST (LeCun, Cortes and Burges) in its idx format, compressed or not."""

import gzip
import itertools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError, refusing
from tracer.inputs.datasets.sets import LabelledImages, Split

FOLDERS = ("mnist", "MNIST/raw", "")
STEMS = ("train", "t10k")  # of the training and the test images
IMAGES, LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
UINT8 = 0x08  # the type byte of the idx header


def read(folder: Path) -> LabelledImages:
    """Reads 60,000 training and 10,000 test images, uint8 [N, 1, 28, 28].

    Raises InputError for a file that is missing or does not match its header.
    """
    names = [f"{stem}-{kind}" for stem in STEMS for kind in (IMAGES, LABELS)]
    paths = dict[str, Path]()
    for name, subfolder in itertools.product(names, FOLDERS):  # usual names and folders
        for spelling in (name, f"{name}.gz", name.replace("-idx", ".idx")):
            if name not in paths and (folder / subfolder / spelling).is_file():
                paths[name] = folder / subfolder / spelling
    missing = [name for name in names if name not in paths]
    if missing:
        raise InputError(
            f"MNIST is not in {folder}: no {', '.join(missing)} (nor as .gz)",
            f"Put them into {folder / FOLDERS[0]}, or set --data-dir.",
        )
    train, test = (_split(paths[f"{stem}-{IMAGES}"], paths[f"{stem}-{LABELS}"]) for stem in STEMS)
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


def read_idx(path: Path, rank: int) -> NDArray[np.uint8]:
    """Reads an idx file of bytes with `rank` dimensions, unpacked in memory if it ends in .gz.

    The header is two zero bytes, the type, the rank, and each size as a big-endian int32. Raises
    InputError for another header or length.
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
    """Returns the bytes of a file; a plain file is memory-mapped."""
    if path.suffix != ".gz":
        empty = path.stat().st_size == 0  # an empty file cannot be mapped
        return np.empty(0, np.uint8) if empty else np.asarray(np.memmap(path, np.uint8, "r"))
    broken = f"{path}: not a complete gzip file"
    with refusing(lambda why: InputError(f"{broken} ({why})", "Download again.")):
        return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8)
