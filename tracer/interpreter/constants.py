"""Computes once what follows from weights alone, as the floats of quantised weights."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tracer.graph.model import Node
from tracer.interpreter import values
from tracer.interpreter.operators import Body, Kernel, NodeContext, bind, checked, standard
from tracer.interpreter.values import Value, nbytes

_GROWTH = 4
"""int8 becomes float32. What grows more is computed in each run: memory would grow as well."""
_SMALL = 1 << 20
"""Bytes that are kept whatever they are computed from."""
_MOST = 1 << 29
"""Bytes that one model keeps: the floats of large integer weights take four times their memory."""


@dataclass(slots=True)
class MemoryBudget:
    """The bytes that kernels of one model may still keep."""

    nbytes: int = _MOST


def once(kernel: Kernel, room: MemoryBudget) -> Kernel:
    """Returns a kernel that keeps its outputs, read-only, as long as it gets the same arrays.

    It takes the bytes from `room`, and computes outputs that do not fit in each run.
    """
    kept: list[tuple[Sequence[Value], Sequence[Value]]] = []

    def kernel_once(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
        for before, outputs in kept:  # an observer may have replaced an input
            if all(map(operator.is_, before, inputs)):
                return outputs
        outputs = kernel(inputs, bodies)
        size = sum(map(nbytes, outputs))
        if (
            not kept
            and size <= min(room.nbytes, _SMALL + _GROWTH * sum(map(nbytes, inputs)))
            and all(isinstance(value, np.ndarray) for value in outputs)
        ):
            room.nbytes -= size
            for array in outputs:
                array.flags.writeable = False
            kept.append((inputs, outputs))
        return outputs

    return kernel_once


def evaluated(
    node: Node, opset: int, inputs: Sequence[Value], folder: Path | None = None
) -> Sequence[Value]:
    """Returns the outputs of a node without bodies outside of a run; none if we lack its operator.

    `folder` has the external data of attributes. Raises what the operator raises.
    """
    found = standard().find(node.domain, node.op_type, opset)
    if found is None:
        return ()
    attributes = {a.name: values.from_attribute(a, folder) for a in node.proto.attribute}
    bound = bind(found.function, NodeContext(node, opset), attributes, ())
    kernel = checked(bound, found, attributes)
    with np.errstate(all="ignore"):
        return kernel(inputs, {})
