"""Opens data sets: batches with labels or outputs where known, and feeds for a model from them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tracer import shapes
from tracer.errors import InputError, UsageError
from tracer.graph.model import Model
from tracer.inputs.datasets import DEFAULT_FOLDER
from tracer.inputs.datasets.archive import open_archive, open_folder, refuse_unknown
from tracer.inputs.datasets.batch import Batch, SampleLayout, SampleSource, image_input
from tracer.inputs.datasets.dataset import Dataset, Description, choose_samples
from tracer.inputs.datasets.image_files import open_image_folder, open_tars
from tracer.inputs.datasets.parquet import open_parquet
from tracer.inputs.datasets.sets import Split, names, read
from tracer.inputs.datasets.text import SPEC as TEXT
from tracer.inputs.datasets.text import explicit, open_text
from tracer.inputs.datasets.user_samples import SPEC as USER
from tracer.inputs.datasets.user_samples import open_user_samples
from tracer.inputs.feedset import ARRAYS, FeedSet, describe_source, numeric_order, test_data_sets
from tracer.inputs.sizes import batch_of
from tracer.support.temporary import is_temporary
from tracer.text import plural, suggest

if TYPE_CHECKING:
    from tracer.inputs.request import Samples

_BRACES = re.compile(r"\{([^{}]+)\}")
_RANGE = re.compile(r"([0-9]+)\.\.([0-9]+)")
_WILD = re.compile(r"[*?\[]")
SPLITS = ("test", "train")
_SPEC = re.compile(
    rf"(?P<base>.+?)(?::(?P<split>{'|'.join(SPLITS)}))?(?:\*(?P<times>[0-9]{{1,9}}))?"
)


def open_dataset(
    spec: str | Path,
    model: Model,
    *,
    limit: int | None = None,
    split: str = "test",
    folder: Path = DEFAULT_FOLDER,
) -> Dataset:
    """Returns the data set `spec` for `model`: its first `limit` samples (None: all).

    `spec` is one of `names()`, with its files in `folder`; an .npz file; text:FILE, for a language
    model; .parquet and .tar files, also by a pattern; FILE.py:NAME; or a folder of images or
    test_data_sets. `digits:train` is its training split, `digits*28`
    repeats the digits 28 times. `split` is "test" or "train", for a spec without a
    split. Raises UsageError for an invalid spec, limit or split; InputError for data that are
    missing, broken, empty, or do not fit the model.
    """
    if split not in SPLITS:
        raise UsageError(f"no split '{split}'", f"The splits are {' and '.join(SPLITS)}.")
    if limit is not None and limit < 1:
        raise UsageError(f"a limit of {limit} samples", "Set 1 or more, or no limit.")
    parsed = _parsed(spec)
    base = explicit(parsed.base, model) if TEXT.fullmatch(parsed.base) else parsed.base
    if parsed.split == "train" and Path(base).is_dir() and test_data_sets(Path(base)):
        raise UsageError(f"{base}: a folder of test data has no split 'train'")
    split = parsed.split or split
    name = ARRAYS if is_temporary(Path(base)) else str(spec)
    origin = Description(name, base, split, parsed.repeat, limit, folder, Path.cwd())
    return _checked(_opened(origin, model))


def open_files(path: Path, model: Model) -> Dataset:
    """Returns the samples of an .npz file or of test_data_set folders.

    Raises UsageError for anything else, InputError as `open_dataset` does.
    """
    base = str(path) if path.is_absolute() else f"./{path}"  # never the name of a data set
    origin = Description(str(path), base, "test", 1, None, DEFAULT_FOLDER, Path.cwd())
    return _checked(_opened(origin, model))


def reopened(description: Description, model: Model) -> Dataset:
    """Returns the data set that has this description, in any process and folder.

    Only the names and types of the inputs and outputs of `model` matter. Raises InputError for data
    that are missing here.
    """
    dataset = _opened(description, model)
    if description.numbers is not None:
        dataset = choose_samples(dataset, np.array(description.numbers, np.int64))
    return replace(dataset, first=description.first, limit=description.stop)


def without_split(spec: str | Path) -> str:
    """Returns the spec of the same data, without a split."""
    parsed = _parsed(spec)
    return parsed.base if parsed.repeat == 1 else f"{parsed.base}*{parsed.repeat}"


def files_of(pattern: Path) -> list[Path]:
    """Returns the file `pattern`, or those that a pattern names, which are sorted within each `*`.

    {000..127} is every number, {a,b} is each of these. Raises InputError where no file matches.
    """
    if pattern.is_file():
        return [pattern]
    found = [path for each in _expanded(str(pattern)) for path in _matching(Path(each))]
    if not found:
        raise InputError(
            f"{pattern}: no such file",
            "Name a file, or several: 'part-*.tar', 'part-{000..127}.tar' (in quotes).",
        )
    return found


def _expanded(pattern: str) -> list[str]:
    """Returns a pattern for each choice in braces."""
    choices = []
    for index, text in enumerate(_BRACES.split(pattern)):  # a text, and choices in braces
        numbers = _RANGE.fullmatch(text) if index % 2 else None
        if numbers is not None:
            first, last = numbers.groups()
            values = range(int(first), int(last) + 1)
            choices.append([f"{number:0{len(first)}}" for number in values])
        else:
            choices.append(text.split(",") if index % 2 else [text])
    return ["".join(parts) for parts in itertools.product(*choices)]


def _matching(path: Path) -> list[Path]:
    wild = next((i for i, part in enumerate(path.parts) if _WILD.search(part)), None)
    if wild is None:
        if not path.is_file():
            raise InputError(f"{path}: no such file", "Name files that exist.")
        return [path]
    folder = Path(*path.parts[:wild])
    return sorted(each for each in folder.glob("/".join(path.parts[wild:])) if each.is_file())


@dataclass(frozen=True, slots=True)
class _Spec:
    """What `digits:train*28` names; without a split the caller chooses."""

    base: str
    split: str | None = None
    repeat: int = 1


def _opened(origin: Description, model: Model) -> Dataset:
    """Opens the whole data set that `origin` describes; paths are short where `home` is here."""
    home = Path() if origin.home == Path.cwd() else origin.home
    layout, path = SampleLayout.of(model), home / origin.base
    if origin.base in names():
        name, dataset = image_input(origin.base, model), read(origin.base, home / origin.folder)
        own = dataset.train if origin.split == "train" else dataset.test
        source: SampleSource = NamedImages(name, own)
    elif TEXT.fullmatch(origin.base):
        source = open_text(origin.base, model, origin.limit, home)
    elif USER.fullmatch(origin.base):
        source = open_user_samples(origin.base, model, home)
    elif path.suffix == ".npz":
        source = open_archive(path, model, layout, origin.split)
    elif path.suffix == ".parquet":
        source = open_parquet(files_of(path), model)
    elif path.suffix == ".tar":
        source = open_tars(files_of(path), model)
    elif path.is_dir() and test_data_sets(path):
        source = open_folder(path, model, layout)
    elif path.is_dir():
        source = open_image_folder(path, model, origin.split)
    else:
        raise UsageError(
            f"no data set '{path}'",
            f"{suggest(str(path), names())}Name one of {', '.join(names())}, an .npz, .parquet or "
            ".tar file, text:FILE, FILE.py:NAME, or a folder of images or test_data_sets; :train "
            "after a name, an .npz or a folder of images chooses its training split.",
        )
    whole = replace(origin, numbers=None, first=0, stop=origin.limit)
    return Dataset(origin.name, model, source, layout, whole, origin.repeat, origin.limit)


@dataclass(frozen=True, slots=True)
class NamedImages:
    """The images of a split, uint8 [n, C, H, W], as the input `name`, with their classes."""

    name: str
    images: Split = field(repr=False)

    @property
    def samples(self) -> int:
        """The number of images."""
        return len(self.images)

    def pieces(self, rows: int, first: int = 0) -> Iterator[Batch]:
        """Yields images and their classes, int64 [n]."""
        for x, y in self.images.slices(rows, first):
            yield Batch({self.name: x}, len(y), y)


def _parsed(spec: str | Path) -> _Spec:
    """Returns what to read and how often; the name of an existing file is not parsed."""
    text = str(spec)
    match = None if Path(text).exists() else _SPEC.fullmatch(text)
    if match is None:
        return _Spec(text)
    repeat = int(match["times"] or 1)
    if repeat < 1:
        raise UsageError(f"'{text}': a data set cannot be repeated 0 times", "Write *1 or more.")
    base, split = match["base"], match["split"]
    if base.endswith(".py"):  # the name in the file is that of a split
        base, split = text.partition("*")[0] if match["times"] else text, None
    return _Spec(base, split, repeat)


def _checked(dataset: Dataset) -> Dataset:
    """Returns the data set if it has a sample, and the first one fits the model."""
    if not any(True for _ in replace(dataset, limit=1).batches(1)):
        raise InputError(f"{dataset.name}: holds no samples", "Name a data set with one or more.")
    return dataset


_DEFAULT_BATCH = 64
"""Samples of a data set per batch."""


@dataclass(frozen=True, slots=True)
class FeedBatches:
    """Feeds for `model` from `datasets` in order; may be iterated any number of times.

    A batch has `size` samples, or (None) as many as a file holds. Labels are ignored.
    `description` names the data in notes. Of a part, `total` is the number of all batches.
    """

    model: Model = field(repr=False)
    datasets: tuple[Dataset, ...]
    size: int | None
    description: str
    total: int | None = None

    def __reduce__(self) -> tuple[Callable[..., FeedBatches], tuple[object, ...]]:
        descriptions = tuple(dataset.description for dataset in self.datasets)
        return _reopened, (self.model, descriptions, self.size, self.description, self.total)

    @property
    def may_be_cut(self) -> bool:
        """Whether `part` has the same batches: it is one data set of a known size."""
        return len(self.datasets) == 1 and self.size is not None and self.__length_hint__() > 0

    def part(self, first: int, count: int) -> FeedBatches:
        """Returns `count` batches from number `first` on; reading them reads no others."""
        (dataset,) = self.datasets
        size = dataset.layout.batch or self.size
        assert size is not None
        own = dataset.part(first * size, count * size)
        return replace(self, datasets=(own,), total=self.__length_hint__())

    def __length_hint__(self) -> int:
        """The number of batches; 0 if only reading the data tells."""
        counts = [dataset.count(self.size) for dataset in self.datasets]
        return 0 if None in counts else sum(count or 0 for count in counts)

    def __iter__(self) -> Iterator[FeedSet]:
        """Yields feeds.

        Raises InputError for data that do not fit the model or cannot be read, ModelError for data
        that do not fit a node.
        """
        count = self.total or self.__length_hint__()
        notes = [self.description + (f", in {count:,} batches" if count > 1 else "")]
        for dataset in self.datasets:
            for batch in dataset.batches(self.size):
                sizes = FeedSet(batch.inputs, None).shapes
                shapes.check(self.model, sizes, batch.inputs)
                rows, fixed, padded = batch_of(self.model, sizes), dataset.layout.batch, []
                if fixed is not None and batch.size < fixed:
                    padded.append(
                        f"{dataset.name}: the model takes {fixed:,} rows; the last batch has "
                        f"{batch.size:,} and repeats its last sample"
                    )
                yield FeedSet(batch.inputs, rows, (*notes, *padded, *dataset.notes))


def open_samples(model: Model, data: Samples, size: int | None = None) -> FeedBatches:
    """Opens a data set, in batches of `size` samples (64). Raises the errors of `open_dataset`."""
    dataset = open_dataset(data.name, model, limit=data.limit, folder=data.folder)
    count = plural(dataset.samples, "sample") if dataset.samples else "samples"
    description = f"inputs are {count} of {data.name}"
    return FeedBatches(model, (dataset,), size or _DEFAULT_BATCH, description)


def open_batches(model: Model, paths: Sequence[Path], size: int | None = None) -> FeedBatches:
    """Opens the inputs in `paths`: .npz files, test_data_set folders, and folders of either.

    Arrays in an .npz with more rows than the model takes, or than `size`, are cut along their
    first axis. Raises InputError for a path that holds no inputs, or arrays of unknown names.
    """
    files = list[Path]()
    for path in paths:
        if not path.exists():
            raise InputError(
                f"{path}: no such inputs", "Name an .npz file or a test_data_set folder."
            )
        inside = [path]
        if path.is_dir():
            inside = sorted([*test_data_sets(path), *path.glob("*.npz")], key=numeric_order)
        if not inside:
            raise InputError(
                f"{path}: holds no inputs", "Inputs are .npz files or test_data_set folders."
            )
        files += [path] if path in inside else inside
    for file in files:
        if file.suffix == ".npz":
            refuse_unknown(file, model)
    datasets = tuple(open_files(file, model) for file in files)
    return FeedBatches(model, datasets, size, describe_source(paths))


def _reopened(
    model: Model,
    descriptions: Sequence[Description],
    size: int | None,
    description: str,
    total: int | None,
) -> FeedBatches:
    datasets = tuple(reopened(each, model) for each in descriptions)
    return FeedBatches(model, datasets, size, description, total)
