"""Labelled images for training and measuring; nothing here needs a framework."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from models.data import sets
from models.data.archive import read_archive
from models.data.dataset import Dataset, Split
from tracer.errors import UsageError

DEFAULT_FOLDER = Path("data")


def names() -> tuple[str, ...]:
    """Every data set that can be asked for by name, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(sets.__path__)))


def load(source: str, folder: Path = DEFAULT_FOLDER) -> Dataset:
    """The data set called `source`, read from `folder` if it is not embedded, or an .npz file.

    Raises UsageError for a name that is none, InputError for files that are missing or broken;
    the hint says which files belong where.
    """
    if source in names():
        found = importlib.import_module(f"{sets.__name__}.{source}").read(folder)
        assert isinstance(found, Dataset)
        return found
    if source.endswith(".npz"):
        return read_archive(Path(source))
    raise UsageError(
        f"no data set '{source}'", f"There are {', '.join(names())}; or give an .npz with x and y."
    )


__all__ = ["DEFAULT_FOLDER", "Dataset", "Split", "load", "names"]
