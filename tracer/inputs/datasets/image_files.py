"""Reads images from tar files and folders.

A tar is in the layout of WebDataset, 000123.jpg, 000123.cls, 000123.json; a folder in that of
ImageNet, train/CLASS/*.JPEG and val/CLASS/*.JPEG.
"""

import io
import itertools
import json
import os
import re
import tarfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError, refusing
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.inputs.datasets import batch, images
from tracer.support.types import Array

_IMAGES = ("jpg", "jpeg", "png", "ppm", "pgm", "webp", "bmp", "tif", "tiff")
_ARRAY, _JSON = "npy", "json"
_BLOCK = 512
"""Bytes of a header."""
_LARGEST = 1 << 30
"""Bytes of a file in a tar, at most: it is read as a whole."""
_SAVE = "Write it with numpy.save."
_TAR_FORM = (
    "A sample is consecutive files with one name: an image 000123.jpg or .png, or an array "
    "000123.npy, and its class in 000123.cls, or as `label` in 000123.json."
)


@dataclass(frozen=True, slots=True)
class _Member:
    """A file of a sample: what messages call it, its kind, and its place in the tar."""

    name: str
    kind: str
    info: tarfile.TarInfo = field(repr=False)
    tar: tarfile.TarFile = field(repr=False)

    def read(self) -> bytes:
        if self.info.size > _LARGEST:
            raise InputError(f"{self.name} has {self.info.size:,} bytes", "At most 1 GiB is read.")
        file = self.tar.fileobj
        assert file is not None
        file.seek(self.info.offset_data)
        return file.read(self.info.size)

    def array(self) -> Array:
        if self.kind != _ARRAY:
            kinds = ", ".join((*_IMAGES, _ARRAY))
            raise InputError(f"{self.name}: neither an image nor an array", f"Kinds are {kinds}.")
        with refusing(lambda why: InputError(f"{self.name}: not an array ({why})", _SAVE)):
            return np.asarray(np.load(io.BytesIO(self.read()), allow_pickle=False))

    def label(self) -> Array:
        """Returns a label: an array, a number as text, or that in an object of JSON."""
        if self.kind == _ARRAY:
            return self.array()
        if self.kind == _JSON:
            value = self.json_label()
            if value is None:
                raise InputError(
                    f"{self.name}: has no label", f"Name it {', '.join(batch.LABELS)}."
                )
            return value
        text = self.read()[:_BLOCK]
        try:
            return np.asarray(int(text.decode()), np.int64)
        except (ValueError, OverflowError) as error:
            raise InputError(
                f"{self.name}: {text[:40]!r} is no class", "Write its number: 0, 1, …"
            ) from error

    def json_label(self) -> Array | None:
        """Returns the label in an object of JSON, or a JSON number; None if there is none."""
        with refusing(lambda why: InputError(f"{self.name}: not JSON ({why})")):
            content = json.loads(self.read())
            if isinstance(content, dict):
                content = next((content[name] for name in batch.LABELS if name in content), None)
            if content is None:
                return None
            label = np.asarray(content)
        if label.dtype.kind not in "iuf":
            raise InputError(f"{self.name}: the label is no number", "Write its number: 0, 1, …")
        return label


_Members = Mapping[str, _Member]
"""The files of a sample by field: `jpg`, or `mask` of 000123.mask.npy."""


@dataclass(frozen=True, slots=True)
class TarSamples(batch.SampleReader):
    """The samples of tar files, one file after another; `places` are where each sample begins."""

    paths: tuple[Path, ...]
    places: tuple[Sequence[int], ...] = field(repr=False)
    fields: batch.Fields

    @property
    def samples(self) -> int:
        """The samples of all files."""
        return sum(map(len, self.places))

    def read_samples(self, rows: int, first: int) -> Iterator[batch.Sample]:
        """Yields samples from number `first` on, at which it begins to read."""
        tars = zip(zip(self.paths, self.places, strict=True), map(len, self.places), strict=True)
        for (path, places), skipped in batch.parts_from(first, tars):
            for _, members in _grouped(path, places[skipped]):
                for name in self.fields.names:
                    if name not in members:
                        last = list(members.values())[-1].name
                        raise InputError(
                            f"{last}: its sample has no field {name}, as others have", _TAR_FORM
                        )
                inputs = {}  # pixels [C, H, W] of images, and arrays
                for name, own in self.fields.inputs.items():
                    member = members[own]
                    if member.kind not in _IMAGES:
                        inputs[name] = member.array()
                        continue
                    pixels = images.decoded(io.BytesIO(member.read()), member.name)
                    declared = self.fields.types[name]
                    inputs[name] = np.asarray(images.fit_declared(pixels, declared)[0])
                label = self.fields.label
                yield batch.Sample(inputs, None if label is None else members[label].label())


def open_tars(paths: Sequence[Path], model: Model) -> TarSamples:
    """Returns the samples of tar files, whose headers are read once to find where each begins.

    The fields of the first sample decide which the model takes. Raises InputError for a file that
    is no plain tar, or without samples, and for fields that do not fit the model.
    """
    places = tuple(array("q", (place for place, _ in _grouped(path))) for path in paths)
    filled = [(path, each) for path, each in zip(paths, places, strict=True) if each]
    if not filled:
        raise InputError(f"{paths[0]}: holds no samples", _TAR_FORM)
    path, offsets = filled[0]
    with _opened(path, offsets[0]) as tar:
        _, members = next(_samples(path, tar))
        chosen = batch.choose_fields(
            f"{path}: the first sample", members, model, (*_IMAGES, _ARRAY)
        )
        if chosen.label is None and _JSON in members and members[_JSON].json_label() is not None:
            chosen = batch.Fields(chosen.inputs, _JSON, chosen.types)
    return TarSamples(tuple(p for p, _ in filled), tuple(each for _, each in filled), chosen)


def _grouped(path: Path, place: int = 0) -> Iterator[tuple[int, _Members]]:
    """Yields each sample from byte `place` on: where it begins, and its files."""
    with _opened(path, place) as tar:
        yield from _samples(path, tar)


@contextmanager
def _opened(path: Path, place: int) -> Iterator[tarfile.TarFile]:
    """Opens a tar at the header at byte `place`. Raises InputError, also while it is read."""
    hint = "Name a plain .tar; decompress .tar.gz first, for parts are read by their place."
    broken = f"{path}: not a tar file that can be read"
    with refusing(lambda why: InputError(f"{broken} ({why})", hint)), path.open("rb") as file:
        file.seek(place)
        with tarfile.TarFile(fileobj=file) as tar:
            yield tar


def _samples(path: Path, tar: tarfile.TarFile) -> Iterator[tuple[int, _Members]]:
    """Yields the samples of an open tar, whose files are read before the next one."""
    for _, group in itertools.groupby(_files(tar), key=lambda info: _split(info.name)[0]):
        infos, members = list(group), dict[str, _Member]()
        for info in infos:
            first, _, kind = _split(info.name)[1].rpartition(".")
            member = _Member(f"{path}: {info.name}", kind, info, tar)
            if members.setdefault(first or kind, member) is not member:
                raise InputError(
                    f"{member.name}: its sample has two fields {first or kind}", _TAR_FORM
                )
        yield infos[0].offset, members


def _files(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yields the files of a tar that belong to samples; memory holds one of them."""
    while (info := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined]  # typeshed does not list it
        if info.isfile() and all(_split(info.name)):
            yield info
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    if any(tar.fileobj.read(_BLOCK)):  # tarfile takes a broken header for the end
        raise tarfile.ReadError(f"no header at byte {tar.offset:,}")


def _split(path: str) -> tuple[str, str]:
    """Returns the key and the field: (`a/b`, `mask.npy`) of a/b.mask.npy, as WebDataset has it.

    One of them is empty for files that belong to no sample, as .hidden and README.
    """
    folder, slash, last = path.rpartition("/")
    key, _, extension = last.partition(".")
    return (folder + slash + key if key else ""), extension.lower()


_SUFFIXES = frozenset((".jpeg", ".jpg", ".png", ".bmp", ".pgm", ".ppm", ".tif", ".tiff", ".webp"))
_SPLITS = {"train": ("train",), "test": ("val", "test", "validation")}
_LABEL_FILES = ("labels.txt", "labels.csv")
_VAL_FILES = ("val.txt", "LOC_val_solution.csv")
"""Files of labels beside the folder of a split: the form of Caffe, and that of Kaggle."""
_TITLES = ("imageid", "image", "name", "file", "filename")
"""First words of a line of titles, as in ImageId,PredictionString."""
_DIGITS = 18
"""Most digits of the number of a class."""
_FOLDER_FORM = (
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
class FolderImages(batch.SampleReader):
    """The images in `folders`, decoded one by one, as the input `name`, with their classes."""

    name: str
    declared: tensor_type.TensorType | None
    folders: tuple[_Folder, ...] = field(repr=False)
    classes: tuple[str, ...] = field(repr=False)

    @property
    def samples(self) -> int:
        """The number of images."""
        return sum(len(folder.names) for folder in self.folders)

    def read_samples(self, rows: int, first: int) -> Iterator[batch.Sample]:
        """Yields images, uint8 [C, H, W] in the sizes of the input, and classes, int64."""
        folders = ((folder, len(folder.names)) for folder in self.folders)
        for folder, skipped in batch.parts_from(first, folders):
            for number in range(skipped, len(folder.names)):
                pixels = images.fit_declared(images.read(folder.file(number)), self.declared)
                label = None if folder.labels is None else np.asarray(folder.labels[number])
                yield batch.Sample({self.name: pixels[0]}, label)


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
                raise InputError(f"{sub}: no class of train/ is called {sub.name}", _FOLDER_FORM)
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
        raise InputError(
            f"{base}: holds no images, nor input_0.pb or test_data_set folders", _FOLDER_FORM
        )
    name = batch.image_input(str(path), model)
    value = next(value for value in model.inputs if value.name == name)
    return FolderImages(name, tensor_type.from_type_proto(value.type), filled, classes)


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
    with refusing(lambda why: InputError(f"{file}: not a text of labels ({why})", _FOLDER_FORM)):
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
