"""Images: converted for a model, and read from folders in the layout of ImageNet.

Pixels [N, C, H, W] become float32, of the size and channels of the model. A folder has
train/CLASS/*.JPEG and val/CLASS/*.JPEG.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError, refusing
from tracer.graph.model import Model
from tracer.graph.tensor_type import TensorType, from_type_proto
from tracer.inputs.datasets.batch import Sample, SampleReader, image_input, parts_from

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.generic]

LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # of red, green and blue, after BT.601


def as_float(pixels: Pixels) -> NDArray[np.float32]:
    """Returns C-contiguous float32: uint8 divided by 255, other numbers unchanged."""
    # copies the planes of grey images broadcast to colours
    floats = pixels.astype(np.float32, order="C")
    if pixels.dtype == np.uint8:
        floats /= np.float32(255)
    return floats


def fit(x: Pixels, shape: tuple[int, int, int]) -> Pixels:
    """Resizes images [N, C, H, W] to [N, *shape] (bilinear) and converts their channels.

    Grey is repeated into colours, colours become their luma. Raises InputError for other changes
    of channels.
    """
    channels, height, width = shape
    x = _channels(x, channels)
    if x.shape[2:] == (height, width):
        return x
    from PIL import Image

    def resize(plane: Pixels) -> Pixels:
        image = Image.fromarray(np.ascontiguousarray(plane))
        return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))

    grey_in_colours = x.strides[1] == 0  # resize only one of three equal planes
    planes = x[:, :1] if grey_in_colours else x
    resized = np.stack([[resize(plane) for plane in image] for image in planes])
    return _channels(resized, channels) if grey_in_colours else resized


def read(path: Path) -> Pixels:
    """Reads an image file as uint8 [1, C, H, W], C 1 or 3. Raises InputError for other files."""
    return decoded(path, str(path))


def decoded(file: Path | IO[bytes], name: str) -> Pixels:
    """Reads an image called `name` as uint8 [1, C, H, W], C 1 or 3.

    Raises InputError for other files.
    """
    from PIL import Image

    hint = "Name a PNG or JPEG image."
    if isinstance(file, Path) and not file.exists():
        raise InputError(f"{name}: no such file", hint)
    with (
        refusing(lambda why: InputError(f"{name}: not an image that can be read", hint)),
        Image.open(file) as image,
    ):
        return pixels_of(image)


def pixels_of(image: Image) -> Pixels:
    """Returns an image of Pillow as uint8 [1, C, H, W]: C is 1 for grey, 3 for colours."""
    pixels = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
    planes = pixels[:, :, None] if pixels.ndim == 2 else pixels
    return np.ascontiguousarray(planes.transpose(2, 0, 1))[None]


def fit_declared(x: Pixels, declared: TensorType | None) -> Pixels:
    """Returns images [N, C, H, W] in those of an input's sizes that are fixed.

    Images for an input of other rank are unchanged.
    """
    sizes = () if declared is None or declared.shape is None else declared.shape[1:]
    if len(sizes) != 3:
        return x
    c, h, w = (
        size if isinstance(size, int) else own for size, own in zip(sizes, x.shape[1:], strict=True)
    )
    return fit(x, (c, h, w))


def _channels(x: Pixels, channels: int) -> Pixels:
    if x.shape[1] == channels:
        return x
    if x.shape[1] == 1:
        return np.broadcast_to(x, (len(x), channels, *x.shape[2:]))
    if x.shape[1] == 3 and channels == 1:
        grey = np.tensordot(x.astype(np.float32), LUMA, axes=(1, 0))[:, None]
        return np.rint(grey).astype(np.uint8) if x.dtype == np.uint8 else grey
    raise InputError(
        f"images of {x.shape[1]} channels do not fit a model that takes {channels}",
        "Use grey or colour images (1 or 3 channels).",
    )


_SUFFIXES = frozenset((".jpeg", ".jpg", ".png", ".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp"))
_SPLITS = {"train": ("train",), "test": ("val", "test", "validation")}
_LABEL_FILES = ("labels.txt", "labels.csv")
_VAL_FILES = ("val.txt", "LOC_val_solution.csv")
"""Files of labels beside the folder of a split: the form of Caffe, and that of Kaggle."""
_TITLES = ("imageid", "image", "name", "file", "filename")
"""First words of a line of titles, as in ImageId,PredictionString."""
_DIGITS = 18
"""Most digits of the number of a class."""
_FORM = (
    "Images are in a folder for each class, CLASS/NAME.JPEG, in train/ and val/ or alone; or in "
    "one folder with labels.txt, whose lines are NAME CLASS."
)


@dataclass(frozen=True, slots=True)
class _Folder:
    """The images of one folder by name, as bytes, sorted; and the class of each, if known."""

    path: Path
    names: NDArray[np.bytes_] = field(repr=False)
    labels: NDArray[np.int64] | None = field(repr=False)

    def file(self, number: int) -> Path:
        return self.path / os.fsdecode(bytes(self.names[number]))


@dataclass(frozen=True, slots=True)
class FolderImages(SampleReader):
    """The images in `folders`, decoded one by one, as the input `name`, with their classes."""

    name: str
    declared: TensorType | None
    folders: tuple[_Folder, ...] = field(repr=False)
    classes: tuple[str, ...] = field(repr=False)

    @property
    def samples(self) -> int:
        """The number of images."""
        return sum(len(folder.names) for folder in self.folders)

    def read_samples(self, rows: int, first: int) -> Iterator[Sample]:
        """Yields images, uint8 [C, H, W] in the sizes of the input, and classes, int64."""
        folders = ((folder, len(folder.names)) for folder in self.folders)
        for folder, skipped in parts_from(first, folders):
            for number in range(skipped, len(folder.names)):
                pixels = fit_declared(read(folder.file(number)), self.declared)
                label = None if folder.labels is None else np.asarray(folder.labels[number])
                yield Sample({self.name: pixels[0]}, label)


def open_image_folder(path: Path, model: Model, split: str) -> FolderImages:
    """Returns the images in the folder `path`, which may have one for each split.

    Classes are numbered in the order of the names of their folders, those of train/ where it
    exists. The split "test" is in val/. Raises InputError for a folder without images, a class that
    is not among those of train/, an image without a label, and a model with other inputs.
    """
    base = _base(path, split)
    classes = tuple(folder.name for folder in _folders(_base(path, "train")))
    numbers = {name: number for number, name in enumerate(classes)}
    by_class = [sub for sub in _folders(base) if sub.name in numbers or _images_in(sub).size]
    if by_class and not _images_in(base).size:
        folders = []
        for sub in by_class:
            if sub.name not in numbers:
                raise InputError(f"{sub}: no class of train/ is called {sub.name}", _FORM)
            names = _images_in(sub)
            folders.append(_Folder(sub, names, np.full(len(names), numbers[sub.name], np.int64)))
    else:
        files = [*(base / name for name in _LABEL_FILES), *(path / n for n in _LABEL_FILES)]
        if base.name == "val":
            files += [base.parent / name for name in _VAL_FILES]
        labels = next((file for file in files if file.is_file()), None)
        names, known = _images_in(base), None
        if labels is not None:
            own, known = dict(_read_labels(labels, numbers)), np.empty(len(names), np.int64)
            for number, image in enumerate(names):
                text = os.fsdecode(bytes(image))
                label = own.get(text, own.get(Path(text).stem))
                if label is None:
                    raise InputError(
                        f"{labels}: has no label of {base / text}", "Write NAME CLASS."
                    )
                known[number] = label
        folders = [_Folder(base, names, known)]
    filled = tuple(folder for folder in folders if len(folder.names))
    if not filled:
        raise InputError(f"{base}: holds no images, nor input_0.pb or test_data_set folders", _FORM)
    name = image_input(str(path), model)
    value = next(value for value in model.inputs if value.name == name)
    return FolderImages(name, from_type_proto(value.type), filled, classes)


def _base(path: Path, split: str) -> Path:
    """Returns the folder of a split; a folder without splits serves both."""
    others = itertools.chain(_SPLITS[split], *(each for each in _SPLITS.values()))
    return next((path / name for name in others if (path / name).is_dir()), path)


def _folders(path: Path) -> list[Path]:
    return sorted((each for each in path.iterdir() if each.is_dir()), key=lambda each: each.name)


def _images_in(path: Path) -> NDArray[np.bytes_]:
    """Returns the names of the images in a folder, in a few bytes each."""
    with os.scandir(path) as entries:
        names = [e.name for e in entries if Path(e.name).suffix.lower() in _SUFFIXES]
    return np.array(sorted(map(os.fsencode, names)), np.bytes_)


def _read_labels(file: Path, numbers: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yields name and class of each line: NAME CLASS, or NAME,CLASS and more."""
    with refusing(lambda why: InputError(f"{file}: not a text of labels ({why})", _FORM)):
        lines = file.read_text("utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        words = re.split(r"[\s,]+", line.strip())
        is_title = number == 1 and len(words) > 1 and words[0].lower() in _TITLES
        if is_title or words == [""]:
            continue
        name = words[1] if len(words) > 1 else ""
        is_number = name.isdecimal() and len(name) <= _DIGITS
        if name not in numbers and not is_number:
            raise InputError(
                f"{file}, line {number}: '{name}' is no class",
                "Write the number of a class, or the name of its folder.",
            )
        yield Path(words[0]).name, numbers[name] if name in numbers else int(name)
