"""Reads samples from tar files in the layout of WebDataset: 000123.jpg, 000123.cls, 000123.json."""

import io
import itertools
import json
import tarfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tracer.errors import InputError, refusing
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
_FORM = (
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
                            f"{last}: its sample has no field {name}, as others have", _FORM
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
        raise InputError(f"{paths[0]}: holds no samples", _FORM)
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
                raise InputError(f"{member.name}: its sample has two fields {first or kind}", _FORM)
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
