"""The ranks of inputs that declare none: told by the user's sizes, or by the weights they meet."""

from collections.abc import Mapping

from tracer.errors import InputError
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.graph.tensor_type import Dim
from tracer.inputs.dims import declared_shapes
from tracer.inputs.weights_met import rank_met


def ranked(model: Model, dims: Mapping[str, int]) -> dict[str, tuple[Dim, ...]]:
    """Returns a shape of each tensor input, in their order; open where nothing is declared.

    `dims` may set each axis of an input, as in `x:0`, `x:1`. Raises InputError, with all that is to
    be set, for inputs whose rank nothing tells.
    """
    declared = declared_shapes(model)
    shapes: dict[str, tuple[Dim, ...]] = {}
    untold = []
    for value in model.inputs:
        if tensor_type.from_type_proto(value.type) is None:
            continue
        if value.name in declared:
            shapes[value.name] = declared[value.name]
        elif rank := _given_rank(value.name, dims) or rank_met(model, value.name):
            shapes[value.name] = (None,) * rank
        else:
            untold.append(value.name)
    if untold:
        names = ", ".join(f"'{name}'" for name in untold)
        sizes = " ".join(f"--dim {name}:0=1 --dim {name}:1=16" for name in untold)
        raise InputError(
            f"{names} of {model.name} declare{'s' * (len(untold) == 1)} no shape",
            f"Set every axis: {sizes} and so on; or give values: --inputs FILE.npz.",
        )
    return shapes


def _given_rank(name: str, dims: Mapping[str, int]) -> int:
    """Returns the number of axes of `name` if `dims` has each of them, else 0."""
    axes = {axis for owner, _, axis in (key.rpartition(":") for key in dims) if owner == name}
    return len(axes) if axes == {str(axis) for axis in range(len(axes))} else 0
