"""The arrays that one inference runs on, by input name, and random ones that suit a model."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tracer import limits, shapes
from tracer.errors import InputError, LimitError
from tracer.graph import shape_inference, tensor_type
from tracer.graph.model import Model, Node

Feeds: TypeAlias = Mapping[str, Any]
"""An array per model input by name; a list of arrays for a sequence."""
CHOSEN = "sizes chosen: "
"""Begins the note on sizes that neither model nor user set: it is shown first."""
_PASS_ON = frozenset({
    "Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze",
    "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators that pass on the values of input 0, and so its role as an index."""
_INDEXED = {
    "Gather": {1: 0}, "GatherBlockQuantized": {1: 0}, "GatherElements": {1: 0}, "GatherND": {1: 0},
    "ScatterElements": {1: 0}, "ScatterND": {1: 0}, "EmbedLayerNormalization": {0: 2, 1: 4},
}  # fmt: skip
"""By operator, the input that each of its inputs of indices is an index of."""
_BLOCK = 1 << 20
"""Numbers drawn at a time; a multiple of 8, as generators draw bytes by the word."""


@dataclass(frozen=True, slots=True)
class FeedSet:
    """Feeds for one batch size, with notes, and the sizes that were chosen, by dimension."""

    feeds: Feeds = field(repr=False)
    batch: int | None
    notes: tuple[str, ...] = ()
    chosen: Mapping[str, int] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each array among the feeds."""
        return {n: tuple(v.shape) for n, v in self.feeds.items() if hasattr(v, "shape")}


def check_feeds(model: Model, feeds: Feeds) -> None:
    """Raises InputError, naming the input, if `feeds` do not fit the model's declaration."""
    names = [value.name for value in model.inputs]
    missing = [name for name in names if name not in feeds]
    unknown = [name for name in feeds if name not in names]
    if missing or unknown:
        problem = f"{', '.join(missing)} missing" if missing else f"{', '.join(unknown)} unknown"
        raise InputError(
            f"the inputs do not fit {model.name}: {problem}",
            f"The model's inputs are {', '.join(names) or 'none'}.",
        )
    for value in model.inputs:
        declared = tensor_type.from_type_proto(value.type)
        dtype = getattr(feeds[value.name], "dtype", None)
        if declared is None or dtype is None:
            continue
        name = "string" if dtype.kind in "OUST" else dtype.name
        if name != declared.dtype:
            raise InputError(
                f"input '{value.name}' of {model.name} is {declared}, but {name} was fed",
                f"Convert it, for example with array.astype('{declared.dtype}').",
            )
    shape_inference.symbol_sizes(model, FeedSet(feeds, None).shapes)


def random_arrays(model: Model, chosen: shape_inference.Shapes, seed: int) -> Feeds:
    """Returns an array per input from `numpy.random.default_rng(seed)`, in the inputs' order.

    Floats are uniform in [0, 1): in the domain of Sqrt and Log, and free of denormals. Raises
    InputError for inputs that are not tensors, LimitError before it draws more than the limits.
    """
    bounds = _bounds(model, chosen)
    rng = np.random.default_rng(seed)
    budget = limits.in_force()
    feeds: dict[str, Any] = {}
    for value in model.inputs:
        kind = tensor_type.from_type_proto(value.type)
        if kind is None:
            raise InputError(
                f"input '{value.name}' of {model.name} is not a tensor",
                "Set the inputs by a test_data_set folder: --inputs FOLDER.",
            )
        try:
            budget.tensor(chosen[value.name], kind.dtype)
        except LimitError as error:
            where = f"input '{value.name}' of {model.name}"
            hint = "Set smaller sizes with --batch and --dim, or give --inputs."
            raise LimitError(f"{where}: {error.what}", hint) from error
        high = bounds.get(value.name)
        feeds[value.name] = _draw(rng, kind.dtype, chosen[value.name], high)
        budget.hold(feeds[value.name].nbytes)
    return feeds


def _draw(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], high: int | None) -> Any:
    """Returns an array of random numbers, converted without a copy of them all."""
    if dtype == "string":
        return np.full(shape, "tracer", dtype=object)
    scalar = tensor_type.numpy_dtype(dtype)
    is_byte, is_integer = dtype in ("int8", "uint8"), dtype.startswith(("int", "uint"))
    if dtype == "bool" or (is_integer and high is None and not is_byte):
        return np.ones(shape, scalar)
    drawn = np.empty(shape, scalar)
    flat = drawn.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        if is_byte:
            info = np.iinfo(dtype)
            numbers: Any = rng.integers(info.min, info.max, part.size, dtype, endpoint=True)
        else:
            numbers = rng.integers(0, high, part.size) if is_integer else rng.random(part.size)
        part[...] = numbers.astype(scalar)
    return drawn


def _bounds(model: Model, chosen: shape_inference.Shapes) -> dict[str, int]:
    """Returns the exclusive upper bounds of inputs of indices: the sizes of their smallest tables.

    Other inputs have none; their integers are 1, valid as a mask, a length or a count.
    """
    kinds = tensor_type.declared_types(model.inputs)
    indices = [
        name for name, kind in kinds.items() if kind and kind.dtype.startswith(("int", "uint"))
    ]
    if not indices:  # the shapes of a large model take time
        return {}
    types = shapes.infer(model, chosen)
    readers: dict[str, list[tuple[Node, int]]] = defaultdict(list)
    for node in model.nodes:
        for position, name in enumerate(node.inputs):
            readers[name].append((node, position))
    sizes = {name: min(_table_sizes(name, readers, types), default=None) for name in indices}
    return {name: size for name, size in sizes.items() if size is not None}


def _table_sizes(
    name: str, readers: Mapping[str, Sequence[tuple[Node, int]]], types: shape_inference.TensorTypes
) -> Iterator[int]:
    """Yields the sizes of what the tensor `name`, or a tensor with its values, is an index of."""
    visited, waiting = {name}, [name]
    while waiting:
        for node, position in readers.get(waiting.pop(), ()):
            if node.op_type in _PASS_ON and (position == 0 or node.op_type == "Concat"):
                new = set(node.outputs) - visited
                visited |= new
                waiting += new
            table = _INDEXED.get(node.op_type, {}).get(position)
            if table is None or table >= len(node.inputs):
                continue
            kind = types.of(node.inputs[table], node.scope)
            shape = kind.shape if kind is not None and kind.shape else ()
            axis = next((a.i for a in node.proto.attribute if a.name == "axis"), 0)
            size = shape[axis] if -len(shape) <= axis < len(shape) else None
            if isinstance(size, int) and size > 0:
                yield size
