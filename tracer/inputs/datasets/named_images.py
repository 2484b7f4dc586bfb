"""The images of a named data set as inputs of a model; reading them alone needs no onnx."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tracer.errors import InputError
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.graph.tensor_type import TensorType
from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.labelled import Split, read

_RANK = 4  # [N, C, H, W]


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


def open_named(name: str, model: Model, split: str, folder: Path) -> NamedImages:
    """Opens the images called `name` in `folder`.

    Raises InputError for a model with several inputs, or whose input is not an image.
    """
    input_name = image_input(name, model)
    dataset = read(name, folder)
    return NamedImages(input_name, dataset.train if split == "train" else dataset.test)


def image_input(name: str, model: Model) -> str:
    """Returns the input of `model` that takes the images called `name`.

    Raises InputError for a model with several inputs, or whose input is not an image.
    """
    if len(model.inputs) != 1:
        inputs = ", ".join(value.name for value in model.inputs) or "none"
        raise InputError(
            f"{name} are images for a model with one input; those of {model.name} are {inputs}",
            "Name an .npz file with an array for each input.",
        )
    (value,) = model.inputs
    declared = tensor_type.from_type_proto(value.type)
    if declared is not None and not _for_images(declared):
        raise InputError(
            f"{name} are images, [N, C, H, W]; input '{value.name}' of {model.name} is {declared}",
            "Name an .npz file with an array for it.",
        )
    return value.name


def _for_images(declared: TensorType) -> bool:
    """Whether an input of this type accepts uint8 pixels, or floats derived from pixels."""
    fits = declared.shape is None or len(declared.shape) == _RANK
    return fits and (declared.dtype == "uint8" or declared.dtype.startswith("float"))
