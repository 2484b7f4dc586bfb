"""Inputs from many files, a batch at a time: no more than one file is in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.errors import InputError
from tracer.inputs import FeedSet, check, files
from tracer.inputs import dims as dimensions

if TYPE_CHECKING:
    from tracer.inputs import Feeds
    from tracer.model import Model

_ARCHIVE = ".npz"


@dataclass(frozen=True, slots=True)
class _Source:
    """One file or data set: so many `rows` of the inputs in `split`, `size` of them at a time."""

    path: Path
    rows: int = 1
    size: int = 1
    split: frozenset[str] = frozenset()

    def __len__(self) -> int:
        """How many batches it gives."""
        return -(-self.rows // self.size)

    def batches(self, model: Model) -> Iterator[Feeds]:
        """The file's arrays, or pieces of them."""
        feeds = files.read(model, self.path)
        for start in range(0, self.rows, self.size):
            part = slice(start, start + self.size)
            yield {n: v[part] if n in self.split else v for n, v in feeds.items()}


@dataclass(frozen=True, slots=True)
class Batches:
    """Feeds for one model, read and checked as they are asked for, any number of times."""

    model: Model
    sources: tuple[_Source, ...]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        """How many there are."""
        return sum(len(source) for source in self.sources)

    def __iter__(self) -> Iterator[FeedSet]:
        """Raises InputError where a file does not fit the model."""
        for source in self.sources:
            for feeds in source.batches(self.model):
                check(self.model, feeds)
                batch = dimensions.batch_of(self.model, FeedSet(feeds, None).shapes)
                yield FeedSet(feeds, batch, self.notes)


def batches(model: Model, paths: Sequence[Path], batch: int | None = None) -> Batches:
    """The inputs in `paths`: .npz files, test_data_set folders, and folders of either.

    Arrays in an .npz with more rows than the model takes at a time, or than `batch`, are cut
    along their first axis. Raises InputError for a path that holds no inputs, and for rows that
    cannot be cut evenly where the model's batch is fixed.
    """
    found = [each for path in paths for each in _data_sets(path)]
    sources = tuple(_source(model, path, batch) for path in found)
    told = ", ".join(map(str, paths))
    count = sum(map(len, sources))
    note = f"inputs are those of {told}" + (f", in {count:,} batches" if count > 1 else "")
    return Batches(model, sources, (note,))


def _data_sets(path: Path) -> Sequence[Path]:
    """The path itself, or what a folder without inputs of its own holds."""
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


def _source(model: Model, path: Path, batch: int | None) -> _Source:
    if path.suffix != _ARCHIVE or not path.is_file():
        return _Source(path)
    shapes = files.shapes(path)
    fixed, sizes = _taken(model, batch)
    rows = {n: shapes[n][0] for n, size in sizes.items() if shapes.get(n) and shapes[n][0] > size}
    if not rows:
        return _Source(path)
    if len(set(rows.values())) > 1 or len({sizes[name] for name in rows}) > 1:
        told = ", ".join(f"'{name}' {number:,}" for name, number in rows.items())
        raise InputError(f"{path}: the inputs have different numbers of rows: {told}")
    name, count = next(iter(rows.items()))
    size = sizes[name]
    if count % size and fixed & set(rows):
        raise InputError(
            f"{path}: {count:,} rows cannot be cut into batches of {size:,}, which {model.name} "
            "takes",
            f"Leave out the last {count % size:,}, or export the model with a dynamic batch.",
        )
    return _Source(path, count, size, frozenset(rows))


def _taken(model: Model, batch: int | None) -> tuple[set[str], Mapping[str, int]]:
    """Inputs with a fixed number of rows, and how many rows of each the model is to be given."""
    declared = dimensions.declared_shapes(model)
    axes = dimensions.batch_axes(declared)
    fixed = {n: shape[0] for n, shape in declared.items() if shape and isinstance(shape[0], int)}
    asked = {n: batch for n, axis in axes.items() if axis == 0 and batch is not None}
    return set(fixed), {name: size for name, size in {**asked, **fixed}.items() if size}
