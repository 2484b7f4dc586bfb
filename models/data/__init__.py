"""Load training data: labelled images of tracer's data sets or of an .npz file, or a text."""

from pathlib import Path

from models.data import text
from models.data.archive import read_archive
from models.data.text import Text
from tracer.errors import UsageError
from tracer.inputs.datasets import DEFAULT_FOLDER, sets
from tracer.inputs.datasets.sets import LabelledImages, Split


def load(source: str, folder: Path = DEFAULT_FOLDER) -> LabelledImages | Text:
    """Returns the data set called `source`, from `folder` if it has files, an .npz file, or a text.

    A text is one of `text.names()`, or text:FILE.

    Raises UsageError for an unknown name, InputError for missing or broken files.
    """
    if source in sets.names():
        return sets.read(source, folder)
    if source.endswith(".npz"):
        return read_archive(Path(source))
    if source in text.names() or source.startswith(text.PREFIX):
        return text.read(source)
    names = ", ".join((*sets.names(), *text.names()))
    raise UsageError(
        f"no data set '{source}'", f"There are {names}; or give an .npz with x and y, or text:FILE."
    )


__all__ = ["DEFAULT_FOLDER", "LabelledImages", "Split", "Text", "load"]
