"""Which named fields of a sample are the inputs of a model, and which is the label."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tracer.errors import InputError
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.graph.tensor_type import TensorType
from tracer.inputs.datasets.layout import SampleLayout

LABELS = ("labels", "label", "y", "cls")
"""Names of a label, best first."""
_ONLY_INPUT = ("x", "image", "img")
"""Names of the field for the only input of a model, beside that of the input."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The field of each input by its name, the field of the label, and the types of the inputs."""

    inputs: Mapping[str, str]
    label: str | None
    types: Mapping[str, TensorType | None]


def fields(where: str, present: Iterable[str], model: Model, extra: Iterable[str] = ()) -> Fields:
    """Returns which fields of those `present` the model takes.

    The only input of a model takes x, image or img as well, or one called as in `extra`. Raises
    InputError, which begins with `where`, for an input without a field, and for a model whose
    inputs cannot be cut into samples.
    """
    layout, names = SampleLayout.of(model), list(present)
    shared = [value.name for value in model.inputs if value.name not in layout.rows]
    if shared:
        raise InputError(
            f"{where}: holds samples, and input '{shared[0]}' of {model.name} has no row for each",
            "Name an .npz file with an array for each input.",
        )
    others = (*_ONLY_INPUT, *extra) if len(model.inputs) == 1 else ()
    inputs = {
        value.name: next((n for n in (value.name, *others) if n in names), "")
        for value in model.inputs
    }
    missing = [name for name, field in inputs.items() if not field]
    if missing:
        known = ", ".join((missing[0], *others))
        raise InputError(
            f"{where} has no field for input '{missing[0]}' of {model.name}; it has "
            f"{', '.join(names) or 'none'}",
            f"Name the field {known}.",
        )
    types = {value.name: tensor_type.from_type_proto(value.type) for value in model.inputs}
    free = [name for name in LABELS if name in names and name not in inputs.values()]
    return Fields(inputs, next(iter(free), None), types)
