"""The dimensions of a model's inputs: what each is called, which are open, which is the batch.

An open dimension is called by its symbol, or by its place, `INPUT:AXIS`.
"""

import re
from collections.abc import Mapping
from typing import TypeAlias

from tracer.errors import InputError, UsageError
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.graph.shape_inference import Shapes
from tracer.graph.tensor_type import Dim

Declared: TypeAlias = Mapping[str, tuple[Dim, ...]]
"""The shape of each tensor input that has a rank, by name."""

_BATCH = re.compile(r"(?i)^(n|b|bs|batch.*|.*batch(_?size)?)$")
_MOST_DIRECTIONS = 8
"""Layers times directions that the state of a recurrent network begins with."""


def declared_shapes(model: Model) -> dict[str, tuple[Dim, ...]]:
    """Returns the shape of each tensor input that declares one."""
    kinds = tensor_type.declared_types(model.inputs)
    return {name: kind.shape for name, kind in kinds.items() if kind and kind.shape is not None}


def label(declared: Declared, name: str, axis: int) -> str:
    """Returns what the open dimension `axis` of input `name` is called."""
    dim = declared[name][axis]
    return dim if isinstance(dim, str) else f"{name}:{axis}"


def open_places(declared: Declared) -> dict[str, tuple[str, int]]:
    """Returns the first place, input and axis, of each open dimension by what it is called."""
    places: dict[str, tuple[str, int]] = {}
    for name, shape in declared.items():
        for axis, dim in enumerate(shape):
            if not isinstance(dim, int):
                places.setdefault(label(declared, name, axis), (name, axis))
    return places


def given_sizes(model: Model, declared: Declared, dims: Mapping[str, int]) -> dict[str, int]:
    """Returns the sizes that `dims` sets, by what the open dimensions are called.

    A key is a symbol or `INPUT:AXIS`. Raises InputError for a key that names no open dimension,
    UsageError for two sizes of one dimension.
    """
    places = open_places(declared)
    sizes: dict[str, int] = {}
    for key, size in dims.items():
        called = key if key in places else _at_place(declared, key)
        if called is None:
            raise InputError(f"{model.name} has no open dimension '{key}'", _advice(places))
        if sizes.setdefault(called, size) != size:
            raise UsageError(f"'{called}' is set to both {sizes[called]} and {size}")
    return sizes


def _advice(places: Mapping[str, tuple[str, int]]) -> str:
    if not places:
        return "The sizes of its inputs are all fixed: leave --dim out."
    listed = [
        called if called == f"{name}:{axis}" else f"{called} ({name}:{axis})"
        for called, (name, axis) in places.items()
    ]
    return f"Its open dimensions are {', '.join(listed)}."


def sizes_of(model: Model, shapes: Shapes) -> dict[str, int]:
    """Returns the size of each open dimension where the inputs have these shapes."""
    declared = declared_shapes(model)
    return {
        called: shapes[name][axis]
        for called, (name, axis) in open_places(declared).items()
        if name in shapes
    }


def batch_of(model: Model, shapes: Shapes) -> int | None:
    """Returns the size of the batch dimension; None for a model without one."""
    declared = declared_shapes(model)
    for name, axis in batch_axes(declared).items():
        if name in shapes and len(shapes[name]) > axis:
            return shapes[name][axis]
    first = next((s for name, s in shapes.items() if len(declared.get(name, ())) > 1), None)
    return first[0] if first else None


def batch_axes(declared: Declared) -> dict[str, int]:
    """Returns the batch axis of each input that has one.

    The batch is a symbol named like a batch, else the first leading symbol; an unnamed axis 0
    also counts as batch, and beside such inputs the unnamed axis 1 of a recurrent state.
    """
    symbols = [d for shape in declared.values() for d in shape if isinstance(d, str)]
    named = [symbol for symbol in symbols if _BATCH.match(symbol)]
    leading = [dim for shape in declared.values() for dim in shape[:1] if isinstance(dim, str)]
    batch = next(iter([*named, *leading]), None)
    axes = {}
    for name, shape in declared.items():
        if batch is not None and batch in shape:
            axes[name] = shape.index(batch)
        elif shape and shape[0] is None:
            axes[name] = 0
    states = [name for name, shape in declared.items() if axes and _is_state(shape)]
    return axes | dict.fromkeys(states, 1)


def _is_state(shape: tuple[Dim, ...]) -> bool:
    """Whether a shape is [layers and directions, open, features], as of a recurrent network.

    It may also be [1, time, features], where no other input has a batch.
    """
    match shape:
        case (int(first), None, _):
            return first <= _MOST_DIRECTIONS
    return False


def _at_place(declared: Declared, key: str) -> str | None:
    """Returns what the open dimension at `INPUT:AXIS` is called; None if there is none."""
    name, _, axis = key.rpartition(":")
    shape = declared.get(name, ())
    if not axis.isdecimal() or int(axis) >= len(shape) or isinstance(shape[int(axis)], int):
        return None
    return label(declared, name, int(axis))
