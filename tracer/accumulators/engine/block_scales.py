"""Stored matrices of integers that have a step for each block of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracer.accumulators.engine.node_operands import NoIntegerForm, narrow
from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.engine.value_ranges import has_input, integer_range
from tracer.graph.model import Node, Scope
from tracer.interpreter import values
from tracer.interpreter.numeric.tensors import nonnegative_axis
from tracer.interpreter.ops.quantization import aligned, is_integer
from tracer.support.types import Array

_MATRIX = 2
"""Axes of a matrix."""


@dataclass(frozen=True, slots=True)
class BlockedMatrix:
    """Integers (K, N) from `low` to `high`; each `block` rows of a column have one step.

    `steps` are (blocks, N), float64. `has_zero_points` tells whether some were subtracted.
    """

    numbers: Array
    steps: Array
    block: int
    low: int
    high: int
    has_zero_points: bool

    @property
    def blocks(self) -> Array:
        """The integers (blocks, block, N); zeros fill the last block."""
        depth, width = self.numbers.shape
        whole = np.zeros((len(self.steps) * self.block, width), self.numbers.dtype)
        whole[:depth] = self.numbers
        return whole.reshape(-1, self.block, width)


def blocked(scales: TensorScales, name: str, scope: Scope, turned: bool) -> BlockedMatrix | None:
    """Returns the matrix that DequantizeLinear makes with a `block_size`, or None.

    With `turned` the matrix is read as (N, K). Raises UnfitError for blocks that are not along K,
    or not stored.
    """
    node = scales.producer(name, scope)
    if node is not None and node.qualified_type == "Transpose" and _exchanges_axes(node):
        node, turned = scales.producer(node.inputs[0], node.scope), not turned
    if node is None or node.qualified_type != "DequantizeLinear":
        return None
    attributes = {a.name: a.i for a in node.proto.attribute}
    block = attributes.get("block_size", 0)
    if not block:
        return None
    stored, steps, zeros = _stored(scales, node, name, block)
    axis = nonnegative_axis(attributes.get("axis", 1), _MATRIX)
    if axis != int(turned):
        raise NoIntegerForm("the terms of a sum have different scales")
    _check(name, steps, zeros, [-(-n // block) if at == axis else n
                                for at, n in enumerate(stored.shape)])  # fmt: skip
    low, high = integer_range(stored.dtype)
    numbers = stored.astype(np.int64)
    if zeros is not None:
        wide = zeros.astype(np.int64)
        numbers -= aligned(wide, numbers, axis, block)
        low, high = low - int(wide.max()), high - int(wide.min())
    real = steps.astype(np.float64)
    if turned:
        numbers, real = numbers.T, real.T
    is_shifted = zeros is not None and bool(zeros.any())
    return BlockedMatrix(narrow(numbers), real, block, low, high, is_shifted)


def _stored(
    scales: TensorScales, node: Node, name: str, block: int
) -> tuple[Array, Array, Array | None]:
    """Returns the integers, steps and zero points of DequantizeLinear."""
    stored, steps, zeros = (
        scales.value(node.inputs[index], node.scope) if has_input(node, index) else None
        for index in range(3)
    )
    if stored is None or steps is None or (zeros is None and has_input(node, 2)):
        raise NoIntegerForm("has blocks of numbers that are computed", name)
    if stored.ndim != _MATRIX or not is_integer(stored.dtype) or block < 1:
        raise NoIntegerForm("has blocks, and is no matrix of integers", name)
    return stored, steps, zeros


def _check(name: str, steps: Array, zeros: Array | None, shape: list[int]) -> None:
    """Raises UnfitError unless there is a step above 0, and a zero point, for each block."""
    if any(list(x.shape) != shape for x in (steps, zeros) if x is not None):
        raise NoIntegerForm(f"has scales or zero points of another shape than {shape}", name)
    if not steps.size or not (steps > 0).all():
        raise NoIntegerForm("has blocks whose step is not above 0", name)


def _exchanges_axes(node: Node) -> bool:
    order = [values.from_attribute(a) for a in node.proto.attribute if a.name == "perm"]
    return not order or list(order[0]) == [1, 0]
