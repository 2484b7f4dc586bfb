"""Feeds for many inferences, from data sets and files: no more than one batch is in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tracer.errors import InputError
from tracer.graph.model import Model
from tracer.inputs import dims as dimensions
from tracer.inputs.datasets import Dataset, open_files
from tracer.inputs.feedset import FeedSet

_ARCHIVE = ".npz"


@dataclass(frozen=True, slots=True)
class Batches:
    """Feeds for `model` out of `datasets`, one after the other, any number of times.

    `size` samples at a time, or, where that is None, as many as the files hold together. Labels
    are left aside. `told` says what the data are.
    """

    model: Model = field(repr=False)
    datasets: tuple[Dataset, ...]
    size: int | None
    told: str

    def __length_hint__(self) -> int:
        """How many there are; 0 where that is known only after reading them."""
        counts = [dataset.count(self.size) for dataset in self.datasets]
        return 0 if None in counts else sum(count or 0 for count in counts)

    def __iter__(self) -> Iterator[FeedSet]:
        """Raises InputError where data do not fit the model, or cannot be read."""
        count = self.__length_hint__()
        notes = [self.told + (f", in {count:,} batches" if count > 1 else "")]
        for dataset in self.datasets:
            for batch in dataset.batches(self.size):
                shapes = FeedSet(batch.inputs, None).shapes
                rows = dimensions.batch_of(self.model, shapes)
                more = _filled(dataset, batch.size)
                yield FeedSet(batch.inputs, rows, (*notes, *more))


def batches(model: Model, paths: Sequence[Path], size: int | None = None) -> Batches:
    """The inputs in `paths`: .npz files, test_data_set folders, and folders of either.

    Arrays in an .npz with more rows than the model takes at a time, or than `size`, are cut
    along their first axis. Raises InputError for a path that holds no inputs.
    """
    found = tuple(open_files(each, model) for path in paths for each in _inside(path))
    return Batches(model, found, size, f"inputs are those of {', '.join(map(str, paths))}")


def _inside(path: Path) -> Sequence[Path]:
    """The path itself, or what a folder without inputs of its own holds."""
    if not path.exists():
        raise InputError(f"{path}: no such inputs", "Give an .npz file or a test_data_set folder.")
    if not path.is_dir() or list(path.glob("input_*.pb")):
        return [path]
    inside = [*path.glob("test_data_set_*"), *path.glob(f"*{_ARCHIVE}")]
    if not inside:
        raise InputError(
            f"{path}: holds no inputs", "Inputs are .npz files or test_data_set folders."
        )
    return sorted(inside, key=_as_counted)


def _as_counted(path: Path) -> tuple[tuple[int, str], ...]:
    """test_data_set_10 comes after test_data_set_9."""
    return tuple((int(part), "") if part.isdigit() else (-1, part)
                 for part in re.split(r"([0-9]+)", path.name))  # fmt: skip


def _filled(dataset: Dataset, size: int) -> tuple[str, ...]:
    rows = dataset.layout.batch
    if rows is None or size >= rows:
        return ()
    return (
        f"{dataset.name}: the model takes {rows:,} rows; the last batch has {size:,}, and its last "
        "sample again",
    )
