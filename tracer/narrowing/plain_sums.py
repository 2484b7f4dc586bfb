"""Sums without stored weights: products of two activations, poolings and reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracer.accumulators.engine.tensor_scales import TensorScale, TensorScales
from tracer.graph.model import Model, Node
from tracer.interpreter import values
from tracer.interpreter.values import Value
from tracer.narrowing.grid import Grid

PRODUCTS, MEANS = ("MatMul",), ("AveragePool", "GlobalAveragePool", "ReduceMean")
SUMS = (*MEANS, "ReduceSum")


@dataclass(frozen=True, slots=True)
class PlainSum:
    """A node that adds activations, or products of two: inputs on `grids`, one or two.

    `window` is the number of terms where the node's attributes say it, else None.
    """

    key: str
    output: str
    op_type: str
    module: str | None
    grids: tuple[Grid, ...]
    window: int | None = None

    @property
    def is_mean(self) -> bool:
        """Whether sums are divided by the number of their terms."""
        return self.op_type in MEANS

    def depth(self, inputs: Sequence[Value], output: Value) -> int:
        """Returns the number of terms of a sum, at most, for these inputs."""
        if self.op_type in PRODUCTS:
            return int(np.asarray(inputs[0]).shape[-1])
        if self.window is not None:
            return self.window
        return int(np.asarray(inputs[0]).size // max(np.asarray(output).size, 1))


def find(model: Model) -> tuple[PlainSum, ...]:
    """Returns the sums of quantised activations with one scale each, in the order of the graph."""
    scales = TensorScales(model)
    found = (_plain_sum(node, scales) for node in model.nodes)
    return tuple(each for each in found if each is not None)


def _plain_sum(node: Node, scales: TensorScales) -> PlainSum | None:
    if node.domain or node.scope.path or node.op_type not in (*PRODUCTS, *SUMS):
        return None
    count = 2 if node.op_type in PRODUCTS else 1
    grids = [_grid(scales.of(name, node.scope)) for name in node.inputs[:count]]
    stored = any(scales.constant(name, node.scope) for name in node.inputs[:count])
    if stored or any(each is None for each in grids):
        return None
    known = tuple(each for each in grids if each is not None)
    attributes = {a.name: values.from_attribute(a) for a in node.proto.attribute}
    window = math.prod(attributes["kernel_shape"]) if node.op_type == "AveragePool" else None
    return PlainSum(node.key, node.outputs[0], node.op_type, node.module, known, window)


def _grid(scale: TensorScale | None) -> Grid | None:
    if scale is None or scale.step.size > 1 or not scale.recoverable:
        return None
    return Grid(float(scale.step.item()), min(scale.low, 0), max(scale.high, 0))
