"""Feeds for a model from data sets and from files, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracer import shapes
from tracer.errors import InputError
from tracer.graph.model import Model
from tracer.inputs.datasets.archive import refuse_unknown
from tracer.inputs.datasets.dataset import Dataset, Description
from tracer.inputs.datasets.opening import open_dataset, open_files, reopened
from tracer.inputs.feedset import FeedSet, describe_source, numeric_order, test_data_sets
from tracer.inputs.sizes import batch_of

if TYPE_CHECKING:
    from tracer.inputs.request import Samples

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
                yield FeedSet(batch.inputs, rows, (*notes, *padded))


def open_samples(model: Model, data: Samples, size: int | None = None) -> FeedBatches:
    """Opens a data set, in batches of `size` samples (64). Raises the errors of `open_dataset`."""
    dataset = open_dataset(data.name, model, limit=data.limit, folder=data.folder)
    count = f"{dataset.samples:,} samples" if dataset.samples else "samples"
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
