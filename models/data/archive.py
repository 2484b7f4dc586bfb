"""Read labelled images from an .npz file."""

import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError
from tracer.inputs.datasets.sets import LabelledImages, Split, split

TEST_SHARE = 5  # one image of five is a test image if the file has no test images
MOST_CLASSES = 2**16  # three times the classes of all of ImageNet
_HINT = (
    "It holds x [N, C, H, W] or [N, H, W], uint8 or float, and y [N], integers; "
    "optionally x_test and y_test."
)


def read_archive(path: Path) -> LabelledImages:
    """Returns `x` and `y` of an .npz, with `x_test` and `y_test` or a fixed split of one in five.

    Raises InputError for another file, pickled objects, and arrays that are missing or do not fit.
    """
    arrays = _arrays(path)
    images = _split(path, arrays, "")
    if "x_test" in arrays or "y_test" in arrays:
        train, test = images, _split(path, arrays, "_test")
    else:
        train, test = split(images.x, images.y, max(1, len(images) // TEST_SHARE))
    classes = int(max(train.y.max(), test.y.max())) + 1
    return LabelledImages(path.stem, train, test, tuple(str(label) for label in range(classes)))


def _arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    if not path.is_file():
        raise InputError(f"{path}: no such file", _HINT)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise InputError(f"{path}: not an .npz of plain arrays ({error})", _HINT) from error


def _check_classes(name: str, y: NDArray[np.generic]) -> None:
    if not np.issubdtype(y.dtype, np.integer) or int(np.min(y)) < 0:
        raise InputError(f"{name} is not a class index in every row", _HINT)
    if int(np.max(y)) >= MOST_CLASSES:
        raise InputError(
            f"{name} reaches {np.max(y)}: a model has a neuron for each class up to the last",
            f"Number the classes from 0, below {MOST_CLASSES}.",
        )


def _split(path: Path, arrays: dict[str, NDArray[np.generic]], suffix: str) -> Split:
    missing = [name for name in (f"x{suffix}", f"y{suffix}") if name not in arrays]
    if missing:
        raise InputError(f"{path}: no array {' and '.join(missing)}", _HINT)
    x, y = arrays[f"x{suffix}"], arrays[f"y{suffix}"]
    x = x[:, None] if x.ndim == 3 else x
    if x.ndim != 4 or y.shape != x.shape[:1] or not len(y):
        raise InputError(f"{path}: x{suffix} {x.shape} and y{suffix} {y.shape} do not fit", _HINT)
    if not (x.dtype == np.uint8 or np.issubdtype(x.dtype, np.floating)):
        raise InputError(f"{path}: x{suffix} is {x.dtype}", _HINT)
    if x.dtype != np.uint8 and not np.isfinite(x).all():
        raise InputError(f"{path}: x{suffix} has values that are not finite", "Clean it first.")
    _check_classes(f"{path}: y{suffix}", y)
    images = x if x.dtype == np.uint8 else x.astype(np.float32)
    return Split((images,), y.astype(np.int64))
