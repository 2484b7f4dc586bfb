"""Chooses sizes for the symbolic dimensions of a model's inputs."""

import re
from collections.abc import Mapping, Sequence

from tracer.errors import InputError, UsageError
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.graph.shape_inference import Shapes, symbol_sizes
from tracer.graph.tensor_type import Dim

_BATCH = re.compile(r"(?i)^(n|b|bs|batch.*|.*batch(_?size)?)$")

_DEFAULTS = (
    # a dimension's name, and its default size
    (re.compile(r"(?i)past|cache"), 0),
    (re.compile(r"(?i)seq|len|tok|time|step|frame"), 128),
    (re.compile(r"(?i)^[hw]$|height|width|size|rows|cols"), 224),
)
_UNNAMED_IMAGE = 224  # axes 2 and 3 of a rank-4 input
_OTHER = 16


def choose(
    model: Model, batch: int | None, dims: Mapping[str, int], shrink: int = 1
) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Returns the shape of each input, and the assumed sizes, divided by `shrink`, by name.

    Raises InputError for a name in `dims` that no input has, a batch if none is symbolic, or an
    input without a rank; UsageError if `dims` sizes the batch as well.
    """
    declared = declared_shapes(model)
    symbols = {d for shape in declared.values() for d in shape if isinstance(d, str)}
    unknown = [name for name in dims if name not in symbols]
    if unknown:
        raise InputError(
            f"{model.name} has no symbolic dimension '{unknown[0]}'",
            f"Its symbolic dimensions are {', '.join(sorted(symbols)) or 'none'}.",
        )
    axes = batch_axes(declared)
    if batch is not None:
        _refuse_fixed(model, declared, axes, batch)
        twice = {str(declared[name][axis]) for name, axis in axes.items()} & set(dims)
        if twice:
            raise UsageError(f"'{twice.pop()}' is the batch: set the batch or the dim, not both")
    chosen: dict[str, tuple[int, ...]] = {}
    assumed: dict[str, int] = {}
    for name, shape in declared.items():
        sizes = []
        for axis, dim in enumerate(shape):
            size = dim if isinstance(dim, int) else dims.get(dim or "")
            if size is None and axes.get(name) == axis:
                size = 1 if batch is None else batch
            if size is None:
                size = _assume(dim, axis, len(shape), shrink)
                label = dim if isinstance(dim, str) else f"dimension {axis} of {name}"
                assumed[label] = size
            sizes.append(size)
        chosen[name] = tuple(sizes)
    return chosen, assumed


def sizes_of(model: Model, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Returns the size of each symbolic dimension where the inputs, in order, have these shapes.

    Raises InputError for another number of inputs, shapes that the model does not take, or
    dimensions without a name that have no default of this size.
    """
    names = [value.name for value in model.inputs]
    if len(names) != len(shapes):
        raise InputError(
            f"the inputs of {model.name} are {', '.join(names) or 'none'}; {len(shapes)} shapes "
            "are given",
            "Give a shape for each: repeat --input-shape.",
        )
    named = dict(zip(names, shapes, strict=True))
    sizes = symbol_sizes(model, named)
    if choose(model, None, sizes)[0] != named:
        raise InputError(
            f"{model.name} has dimensions without a name, which a shape cannot set",
            "Give values: --inputs FILE.npz.",
        )
    return sizes


def notes(assumed: Mapping[str, int]) -> tuple[str, ...]:
    """Returns a sentence for each assumed size."""
    return tuple(f"{name} is not set: {size} assumed" for name, size in assumed.items())


def batch_of(model: Model, shapes: Shapes) -> int | None:
    """Returns the size of the batch dimension; None for a model without one."""
    declared = declared_shapes(model)
    for name, axis in batch_axes(declared).items():
        if name in shapes and len(shapes[name]) > axis:
            return shapes[name][axis]
    first = next((s for name, s in shapes.items() if len(declared.get(name, ())) > 1), None)
    return first[0] if first else None


def declared_shapes(model: Model) -> dict[str, tuple[Dim, ...]]:
    """Returns the shape of each tensor input. Raises InputError for an input without a rank."""
    declared: dict[str, tuple[Dim, ...]] = {}
    for value in model.inputs:
        kind = tensor_type.from_type_proto(value.type)
        if kind is None:
            continue
        if kind.shape is None:
            raise InputError(
                f"input '{value.name}' of {model.name} declares no shape",
                "Set the inputs by a file: --inputs FILE.npz.",
            )
        declared[value.name] = kind.shape
    return declared


def batch_axes(declared: Mapping[str, tuple[Dim, ...]]) -> dict[str, int]:
    """Returns the batch axis of each input that has one.

    The batch is a symbol named like a batch, else the first leading symbol; an unnamed axis 0
    also counts as batch.
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
    return axes


def _refuse_fixed(
    model: Model, declared: Mapping[str, tuple[Dim, ...]], axes: Mapping[str, int], batch: int
) -> None:
    if axes:
        return
    fixed = {shape[0] for shape in declared.values() if len(shape) > 1}
    if fixed != {batch}:
        sizes = ", ".join(str(size) for size in fixed) or "absent"
        raise InputError(
            f"{model.name}: the batch is {sizes}, not {batch}, and it is not symbolic",
            "Export the model with a dynamic batch dimension.",
        )


def _assume(dim: Dim, axis: int, rank: int, shrink: int) -> int:
    if isinstance(dim, str):
        size = next((size for name, size in _DEFAULTS if name.search(dim)), _OTHER)
    else:
        size = _UNNAMED_IMAGE if rank == 4 and axis >= 2 else _OTHER
    return max(1, size // shrink) if size else 0
