"""Generates seeded random feeds that suit a model: indices within tables, valid masks."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tracer import limits, shapes
from tracer.errors import InputError, LimitError
from tracer.graph import tensor_type
from tracer.graph.model import Model, Node
from tracer.graph.shape_inference import Shapes, TensorTypes
from tracer.inputs.feedset import Feeds

_PASS_ON = frozenset(
    {
        "Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Split",
        "Squeeze", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Operators that pass on the values of input 0, and so its role as an index."""

_INDEX_INPUTS = {
    # operator: (input of indices, indexed input)
    "Gather": (1, 0),
    "GatherBlockQuantized": (1, 0),
    "GatherElements": (1, 0),
    "GatherND": (1, 0),
    "ScatterElements": (1, 0),
    "ScatterND": (1, 0),
}
_TABLES = {"EmbedLayerNormalization": {0: 2, 1: 4}}
"""com.microsoft: input of ids: input of the embedding table."""


_BLOCK = 1 << 20
"""Numbers drawn at a time; a multiple of 8, as generators draw bytes by the word."""


def generate(model: Model, chosen: Shapes, seed: int) -> Feeds:
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
    if dtype == "string":
        return np.full(shape, "tracer", dtype=object)
    scalar = tensor_type.numpy_dtype(dtype)
    if dtype in ("int8", "uint8"):
        info = np.iinfo(dtype)
        return _in_blocks(
            shape, scalar, lambda n: rng.integers(info.min, info.max, n, dtype, endpoint=True)
        )
    if dtype == "bool" or (dtype.startswith(("int", "uint")) and high is None):
        return np.ones(shape, scalar)
    if dtype.startswith(("int", "uint")):
        return _in_blocks(shape, scalar, lambda n: rng.integers(0, high, n))
    return _in_blocks(shape, scalar, rng.random)


def _in_blocks(shape: tuple[int, ...], dtype: np.dtype[Any], draw: Callable[[int], Any]) -> Any:
    """Returns an array of numbers that `draw` returns, converted without a copy of them all."""
    drawn = np.empty(shape, dtype)
    flat = drawn.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        part[...] = draw(part.size).astype(dtype)
    return drawn


def _bounds(model: Model, chosen: Shapes) -> dict[str, int]:
    """Returns the exclusive upper bounds of inputs of indices: the sizes of their smallest tables.

    Other inputs have none; their integers are 1, valid as a mask, a length or a count.
    """
    kinds = tensor_type.declared_types(model.inputs)
    indices = [
        name for name, kind in kinds.items() if kind and kind.dtype.startswith(("int", "uint"))
    ]
    if not indices:  # the shapes of a large model take time
        return {}
    types, readers = shapes.infer(model, chosen), _readers(model)
    sizes = {name: min(_table_sizes(name, readers, types), default=None) for name in indices}
    return {name: size for name, size in sizes.items() if size is not None}


def _table_sizes(
    name: str, readers: Mapping[str, list[tuple[Node, int]]], types: TensorTypes
) -> Iterator[int]:
    visited, waiting = {name}, [name]
    while waiting:
        for node, position in readers.get(waiting.pop(), []):
            yield from _sizes_at(node, position, types)
            if node.op_type in _PASS_ON and (position == 0 or node.op_type == "Concat"):
                new = set(node.outputs) - visited
                visited |= new
                waiting += new


def _sizes_at(node: Node, position: int, types: TensorTypes) -> Iterator[int]:
    table: int | None = _TABLES.get(node.op_type, {}).get(position)
    axis = 0
    if _INDEX_INPUTS.get(node.op_type, (None,))[0] == position:
        table = _INDEX_INPUTS[node.op_type][1]
        axis = next((a.i for a in node.proto.attribute if a.name == "axis"), 0)
    if table is None or table >= len(node.inputs):
        return
    kind = types.of(node.inputs[table], node.scope)
    if kind is not None and kind.shape:
        size = kind.shape[axis] if -len(kind.shape) <= axis < len(kind.shape) else None
        if isinstance(size, int) and size > 0:
            yield size


def _readers(model: Model) -> dict[str, list[tuple[Node, int]]]:
    readers: dict[str, list[tuple[Node, int]]] = {}
    for node in model.nodes:
        for position, name in enumerate(node.inputs):
            readers.setdefault(name, []).append((node, position))
    return readers
