"""Load training data: the labelled images of tracer's data sets, or of an .npz file."""

from pathlib import Path

from models.data.archive import read_archive
from tracer.errors import UsageError
from tracer.inputs.datasets import labelled
from tracer.inputs.datasets.labelled import DEFAULT_FOLDER, LabelledImages, Split


def load(source: str, folder: Path = DEFAULT_FOLDER) -> LabelledImages:
    """Returns the data set called `source`, from `folder` if it has files, or an .npz file.

    Raises UsageError for an unknown name, InputError for missing or broken files.
    """
    if source in labelled.names():
        return labelled.read(source, folder)
    if source.endswith(".npz"):
        return read_archive(Path(source))
    names = ", ".join(labelled.names())
    raise UsageError(f"no data set '{source}'", f"There are {names}; or give an .npz with x and y.")


__all__ = ["DEFAULT_FOLDER", "LabelledImages", "Split", "load"]
