"""The operands of a node with a float accumulator, cast to the format that it multiplies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

import numpy as np

from tracer.accumulators.floats.operands import Operands, cast, spread
from tracer.accumulators.floats.scaled_numbers import paired
from tracer.accumulators.spec.operand_format import OperandFormat
from tracer.graph.model import Node
from tracer.interpreter.constants import MemoryBudget
from tracer.interpreter.values import Value
from tracer.support.types import Array

_FLOATS = ("float32", "float16", "bfloat16")
"""Types whose numbers are numbers of float32."""
_MATRIX = -3
"""The last two axes add up to it."""
_OF_ALL = ("tensor", "nvfp4")
"""Scalings with a scale of the whole array."""


@dataclass(frozen=True, slots=True)
class CastOperand:
    """Numbers that are multiplied, float32, and the `factor` of their sums; None is 1.

    Scales of blocks are part of the numbers; with an accumulator that takes them apart, these are
    `scaled_numbers`. The factor has as many axes as the numbers.
    """

    numbers: Array
    factor: Array | None = None


@dataclass(frozen=True, slots=True)
class FloatOperands:
    """A node, and the `format` of its operands; None keeps the numbers of the graph.

    If `has_scales`, the accumulator takes the scales of blocks apart from their elements.
    `constant` are indices of inputs that are equal in every run: they are cast once, if there is
    `room` for the result. `floats` are those of inputs that must be floats. The scale of a whole
    array is that of each sample, the first axis of any other input, so that results do not depend
    on the batch.
    """

    node: Node
    attributes: Mapping[str, Any]
    format: OperandFormat | None
    constant: frozenset[int]
    room: MemoryBudget
    floats: tuple[int, ...] = (0, 1)
    has_scales: bool = False
    _kept: dict[int, tuple[Array, CastOperand]] = field(default_factory=dict, repr=False)

    def misfit(self, inputs: Sequence[Value]) -> str | None:
        """Returns why the inputs have no sums in floats; None if they have."""
        for index in self.floats:
            name = inputs[index].dtype.name
            if name not in (*_FLOATS, "float64"):
                return f"its operands are {name}, which are no floats"
            if name == "float64" and self.format is None:
                return "its operands are float64, more than a float accumulator takes: cast them"
        return None

    def has_input(self, index: int) -> bool:
        """Whether the optional input is present."""
        return len(self.node.inputs) > index and bool(self.node.inputs[index])

    def bias(self, index: int, inputs: Sequence[Value]) -> Array | None:
        """The bias at `index`, float32, which is not cast; None if there is none."""
        return inputs[index].astype(np.float32) if self.has_input(index) else None

    def matrix(self, index: int, tensor: Array, axis: int) -> CastOperand:
        """A matrix, or several, whose sums run along `axis`, as blocks that share a scale do.

        Tiles of a constant matrix are square.
        """
        first = 0 if tensor.ndim + axis == 0 else axis
        is_square = index in self.constant and tensor.ndim > 1
        across = _MATRIX - axis if is_square else None
        return self._once(
            index, tensor, lambda form: self._cast(index, tensor, first, form, across)
        )

    def packed_matrix(
        self, index: int, tensor: Array, unpack: Callable[[Array], Array]
    ) -> CastOperand:
        """A matrix that `unpack` makes of a tensor, float32 (N, K); its sums run along K.

        It is kept only if it is cast: a matrix in the graph's format stays packed.
        """
        if self.format is None:
            return CastOperand(unpack(tensor))
        return self._once(
            index, tensor, lambda form: self._cast(index, unpack(tensor), -1, form, -2)
        )

    def images(self, index: int, tensor: Array) -> CastOperand:
        """Images (N, C, *size): blocks that share a scale are along the channels of a group.

        A scale of a channel would differ within a window, so that images have one each.
        """
        groups = self.attributes.get("group", 1)
        groups = 1 if tensor.shape[1] % groups else groups
        shape = len(tensor), groups, tensor.shape[1] // groups, *tensor.shape[2:]

        def compute(form: OperandFormat) -> CastOperand:
            whole = replace(form, scaling="tensor") if form.scaling == "channel" else form
            result = self._cast(index, tensor.reshape(shape), 2, whole)
            factor = None if result.factor is None else result.factor.squeeze(1)
            return CastOperand(result.numbers.reshape(tensor.shape), factor)

        return self._once(index, tensor, compute)

    def kernels(
        self, index: int, tensor: Array, laid_out: Callable[[Array], Array] = np.asarray
    ) -> CastOperand:
        """Weights that `laid_out` turns into (M, C, *kernel), with blocks along their channels.

        A scale of a channel is of each output channel. The factor is (1, M or 1, 1, ...).
        """

        def compute(form: OperandFormat) -> CastOperand:
            weights = laid_out(tensor)
            rows = weights.reshape(len(weights), -1) if form.scaling == "channel" else weights
            result = self._cast(index, rows, 1, form, 0)
            if result.factor is None:
                return CastOperand(result.numbers.reshape(weights.shape))
            shape = (1, -1, *[1] * (weights.ndim - 2))
            return CastOperand(result.numbers.reshape(weights.shape), result.factor.reshape(shape))

        if self.format is None:
            return CastOperand(laid_out(tensor.astype(np.float32, copy=False)))
        return self._once(index, tensor, compute)

    def _once(
        self, index: int, tensor: Array, compute: Callable[[OperandFormat], CastOperand]
    ) -> CastOperand:
        """The numbers of the graph, or what `compute` makes of them: once for a constant."""
        if self.format is None:
            return CastOperand(tensor.astype(np.float32, copy=False))
        before, kept = self._kept.get(index, (None, None))
        if before is tensor:
            assert kept is not None
            return kept
        result = compute(self.format)
        if index in self.constant and before is None and result.numbers.nbytes <= self.room.nbytes:
            self.room.nbytes -= result.numbers.nbytes
            self._kept[index] = tensor, result
        return result

    def _cast(
        self, index: int, tensor: Array, axis: int, form: OperandFormat, across: int | None = None
    ) -> CastOperand:
        """A tensor with sums along `axis`; tiles of the other axis `across` are square."""
        has_samples = index not in self.constant and tensor.ndim > 1 and axis != 0
        if form.scaling not in _OF_ALL or not has_samples or not tensor.size:
            return self._joined(cast(tensor, form, axis, across), form, axis)
        inner = axis - 1 if axis > 0 else axis
        parts = [self._joined(cast(sample, form, inner), form, inner) for sample in tensor]
        factors = [part.factor for part in parts if part.factor is not None]
        return CastOperand(np.stack([part.numbers for part in parts]), np.stack(factors))

    def _joined(self, operands: Operands, form: OperandFormat, axis: int) -> CastOperand:
        """The elements with the scales of their blocks; a scale of all is a factor of the sums."""
        size = operands.elements.shape[axis]
        match form.scaling:
            case "none":
                return CastOperand(operands.elements)
            case "tensor" | "channel":
                return CastOperand(operands.elements, operands.factor)
            case "mx" | "tiles" | "nvfp4":
                scales = spread(operands.scales, size, axis, form)
                join = paired if self.has_scales else np.multiply
                factor = operands.factor if form.scaling == "nvfp4" else None
                return CastOperand(join(operands.elements, scales), factor)
            case _:
                assert_never(form.scaling)


def scaled(sums: Array, *factors: Array | None) -> Array:
    """Returns sums, float32, times the factors that there are, one after the other."""
    for factor in factors:
        sums = sums if factor is None else sums * factor
    return sums
