"""How exactly two correct runtimes agree on each tensor of a graph: by its types and its depth."""

from collections import defaultdict
from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from tracer.graph.model import Model, Node
from tracer.graph.quantized import (
    computes_in_integers,
    multiplies_packed_integers,
    rounds_values,
)
from tracer.support.tolerance import Precision

_STEP = 2.0**-7
"""A step of 8 bits ÷ the largest value: rounding to a neighbour moves a quantised value by it."""


def precisions(
    model: Model, values: Mapping[str, Any], given: Container[str] = ()
) -> Mapping[str, Precision]:
    """Returns the precision of tensors of the main graph, by name; `values` tell their types.

    A tensor is as inexact as the most inexact one that it follows from. The depth of a tensor is
    the number of operators on the longest way to it. Both begin anew behind tensors that are
    `given`: their readers get equal values.
    """
    read = _reads(model)
    found: dict[str, Precision] = {}
    for node in model.nodes:
        if node.scope.path:
            continue
        before = [found[n] for n in read[node.key] if n in found and n not in given]
        depth = 1 + max((each.depth for each in before), default=0)
        share = max((_STEP if each.steps else each.share for each in before), default=0.0)
        for name in filter(None, node.outputs):
            own = _alone(node, values.get(name))
            found[name] = Precision(max(own.share, share), depth, own.steps)
    return found


def _alone(node: Node, value: Any) -> Precision:
    """Returns the precision of an output of `node` that was computed from equal inputs."""
    own = Precision.of(value.dtype) if isinstance(value, np.ndarray) else Precision()
    rounds = rounds_values(node.op_type)
    multiplies_integers = computes_in_integers(node.op_type) or multiplies_packed_integers(node)
    if own.share and (rounds or multiplies_integers):
        return Precision(_STEP)
    return Precision(own.share, steps=int(rounds))


def _reads(model: Model) -> Mapping[str, set[str]]:
    """Returns the names that each node of the main graph reads, in its bodies too, by its key."""
    read: dict[str, set[str]] = defaultdict(set)
    for node in model.nodes:
        outermost = node
        while outermost.scope.owner is not None:
            outermost = outermost.scope.owner
        read[outermost.key].update(node.inputs)
    return read
