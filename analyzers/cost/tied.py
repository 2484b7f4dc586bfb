"""Finds stored tensors that repeat parameters, such as an output layer tied to its embedding."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx

from tracer.analyzers.cost.operation import Address, Facts
from tracer.graph.model import Model
from tracer.support.types import Array


def copies(
    model: Model, facts: Facts, marks: Mapping[Address, Sequence[str]]
) -> Iterator[tuple[Address, Sequence[Address]]]:
    """Yields each tensor that is made of other stored ones, and those.

    `marks` has the names of the parameters that a tensor is made of. Where they tell nothing, a
    table that is stored transposed as well is found by its values.
    """
    stored = {weight.name: (model.root, weight.name) for weight in model.graph.initializer}
    single = {names[0]: address for address, names in marks.items() if len(names) == 1}
    for address, names in marks.items():
        known = stored if len(names) == 1 else single | stored
        if names and address[1] not in names and all(name in known for name in names):
            yield address, [known[name] for name in names]
    for copy, original in _transposed(model, facts, marks):
        yield copy, [original]


def _transposed(
    model: Model, facts: Facts, marks: Mapping[Address, Sequence[str]]
) -> Iterator[tuple[Address, Address]]:
    by_shape: dict[tuple[int, ...], list[onnx.TensorProto]] = defaultdict(list)
    for weight in model.graph.initializer:
        if len(weight.dims) == 2 and (model.root, weight.name) not in marks:
            by_shape[tuple(weight.dims)].append(weight)
    main = next(scope for scope in model.scopes if scope.path == model.root)
    tables = {node.inputs[0] for node in model.nodes if node.op_type == "Gather" and node.inputs}
    for table in tables:
        stored = facts.types.weight(table, main)
        if stored is None or (model.root, table) in marks:
            continue
        values = facts.value(table, main)
        for other in by_shape[tuple(stored.dims)[::-1]]:
            if other.name != table and _is_transposed(values, facts.value(other.name, main)):
                yield (model.root, other.name), (model.root, table)


def _is_transposed(table: Array | None, other: Array | None) -> bool:
    """Returns whether one is the other, transposed; equal numbers throughout tell nothing."""
    if table is None or other is None or table.dtype != other.dtype:
        return False
    return bool(np.array_equal(table.T, other) and (table != table.flat[:1]).any())
