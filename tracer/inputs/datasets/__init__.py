"""Data sets to run a model on and to judge it by: streams of batches, with labels where known."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from tracer.errors import InputError, UsageError
from tracer.graph.model import Model
from tracer.inputs.datasets.archive import open_archive
from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.datasets.folder import open_folder
from tracer.inputs.datasets.labelled import DEFAULT_FOLDER, names
from tracer.inputs.datasets.layout import Layout
from tracer.inputs.datasets.named import open_named
from tracer.inputs.datasets.source import Source

SPLITS = ("test", "train")
_REPEATED = re.compile(r"(?P<base>.+)\*(?P<times>[0-9]{1,9})")


def open_dataset(
    spec: str | Path,
    model: Model,
    *,
    limit: int | None = None,
    split: str = "test",
    folder: Path = DEFAULT_FOLDER,
) -> Dataset:
    """The data set that `spec` names, for `model`: its first `limit` samples, or all.

    `spec` is one of `names()`, whose files lie in `folder`; an .npz file; or a folder with
    test_data_sets. `digits*28` is 28 times the digits, one after the other. `split` is "test" or
    "train". Raises UsageError for a spec, limit or split that is none, InputError where the data
    are missing, broken, empty, or do not fit the model.
    """
    if split not in SPLITS:
        raise UsageError(f"no split '{split}'", f"There are {' and '.join(SPLITS)}.")
    if limit is not None and limit < 1:
        raise UsageError(f"a limit of {limit} samples", "Give 1 or more, or no limit.")
    base, repeat = _parsed(spec)
    layout = Layout.of(model)
    if base in names():
        source: Source = open_named(base, model, split, folder)
    else:
        source = _files(Path(base), model, layout, split)
    return _checked(Dataset(str(spec), model, source, layout, repeat, limit))


def open_files(path: Path, model: Model) -> Dataset:
    """The samples in an .npz file or in test_data_set folders; `path` is no name of a data set.

    Raises UsageError for anything else, InputError as `open_dataset` does.
    """
    layout = Layout.of(model)
    return _checked(Dataset(str(path), model, _files(path, model, layout, "test"), layout))


def _parsed(spec: str | Path) -> tuple[str, int]:
    """What to read, and how often; the name of a file that exists is no product."""
    text = str(spec)
    found = None if Path(text).exists() else _REPEATED.fullmatch(text)
    if found is None:
        return text, 1
    if int(found["times"]) < 1:
        raise UsageError(f"'{text}': a data set cannot be repeated 0 times", "Give *1 or more.")
    return found["base"], int(found["times"])


def _checked(dataset: Dataset) -> Dataset:
    """The data set, if it has a sample, and that fits the model."""
    if not any(True for _ in replace(dataset, limit=1).batches(1)):
        raise InputError(f"{dataset.name}: holds no samples", "Give a data set with one or more.")
    return dataset


def _files(path: Path, model: Model, layout: Layout, split: str) -> Source:
    if path.suffix == ".npz":
        return open_archive(path, model, layout, split)
    if path.is_dir():
        if split != "test":
            raise UsageError(f"{path}: a folder of test data has no split '{split}'")
        return open_folder(path, model, layout)
    raise UsageError(
        f"no data set '{path}'",
        f"There are {', '.join(names())}; or give an .npz file, or a folder of test_data_sets.",
    )


__all__ = ["DEFAULT_FOLDER", "SPLITS", "Batch", "Dataset", "names", "open_dataset", "open_files"]
