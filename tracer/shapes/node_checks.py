"""Checks the inputs of nodes before a run, by the checks of the interpreter's operators.

Runtimes meet what does not fit in the middle of a run: some say so without the node, some end the
process. Operators of language models have such checks (`tracer.interpreter.operators`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tracer.errors import ModelError, TracerError
from tracer.graph.model import Model, Node, Scope, describe
from tracer.graph.shape_inference import Shapes
from tracer.graph.tensor_type import bits_of
from tracer.interpreter import operators, values
from tracer.interpreter.operators import Input, Shaped, standard
from tracer.shapes import inference
from tracer.shapes.inference import Inference
from tracer.shapes.known_values import MOST
from tracer.support.types import Array

_INTEGERS = frozenset({"int32", "int64"})
"""Types of lengths, positions and groups, whose values are checked as well."""


def check(model: Model, shapes: Shapes, fed: Mapping[str, Any] | None = None) -> None:
    """Raises ModelError, which names the node, for inputs that do not fit its operator.

    `shapes` are those of the model's inputs, `fed` the values of some of them. A node is left out
    if the type of an input is not known before a run.
    """
    found = (
        (node, standard().find(node.domain, node.op_type, model.opsets.get(node.domain, 1)))
        for node in model.nodes
    )
    nodes = [(node, each) for node, each in found if each is not None and each.check is not None]
    if not nodes:
        return
    numbers = {
        name: value
        for name, value in (fed or {}).items()
        if (isinstance(value, np.ndarray) and value.dtype.kind in "biu" and value.size <= MOST)
    }
    known = inference.inferred(model, shapes, numbers)
    for node, operator in nodes:
        try:
            inputs = [
                _input(known, node, at) if name else None for at, name in enumerate(node.inputs)
            ]
            if all(
                each is not None for name, each in zip(node.inputs, inputs, strict=True) if name
            ):
                attributes = {a.name: values.from_attribute(a) for a in node.proto.attribute}
                operators.check(operator, inputs, attributes)
        except Exception as error:  # ranks and attributes that no check foresees
            where = describe(model, (node,), model.opsets.get(node.domain, 1))
            if isinstance(error, TracerError):
                raise type(error)(f"{where}: {error.what}", error.hint) from error
            types = ", ".join(str(kind) for kind in known.inputs(node) if kind is not None)
            raise ModelError(f"{where}: inputs or attributes of no known form: {types}") from error


def _input(known: Inference, node: Node, index: int) -> Input | None:
    """Returns an input: its value if it is of integers, else its type; None if that is unknown."""
    kind = known.inputs(node)[index]
    if kind is None or kind.concrete is None or bits_of(kind.dtype) is None:
        return None
    value = None
    if kind.dtype in _INTEGERS:
        value = known.input_value(node, index)
        value = _stored(node, node.inputs[index]) if value is None else value
    return (
        Shaped(np.dtype(values.scalar_type(kind.dtype)), kind.concrete) if value is None else value
    )


def _stored(node: Node, name: str) -> Array | None:
    """Returns a weight in the file that is too large for shape inference, as groups are."""
    scope: Scope | None = node.scope
    while scope is not None:
        weight = next((each for each in scope.graph.initializer if each.name == name), None)
        if weight is not None:
            return None if weight.external_data else values.from_tensor(weight)
        scope = scope.parent
    return None
