"""What models are trained on: the labelled images that tracer knows, and those of an .npz file."""

from __future__ import annotations

from pathlib import Path

from models.data.archive import read_archive
from tracer.errors import UsageError
from tracer.inputs.datasets import labelled
from tracer.inputs.datasets.labelled import DEFAULT_FOLDER, LabelledImages, Split


def load(source: str, folder: Path = DEFAULT_FOLDER) -> LabelledImages:
    """The data set called `source`, read from `folder` if it is not embedded, or an .npz file.

    Raises UsageError for a name that is none, InputError for files that are missing or broken;
    the hint says which files belong where.
    """
    if source in labelled.names():
        return labelled.read(source, folder)
    if source.endswith(".npz"):
        return read_archive(Path(source))
    names = ", ".join(labelled.names())
    raise UsageError(f"no data set '{source}'", f"There are {names}; or give an .npz with x and y.")


__all__ = ["DEFAULT_FOLDER", "LabelledImages", "Split", "load"]
