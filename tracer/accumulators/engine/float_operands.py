"""The operands of a node with a float accumulator, cast to the format that it multiplies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracer.accumulators.floats.casting import cast
from tracer.accumulators.spec.float_format import FloatFormat
from tracer.graph.model import Node
from tracer.interpreter.constants import Room
from tracer.interpreter.values import Value
from tracer.support.types import Array

_FLOATS = ("float32", "float16", "bfloat16")
"""Types whose numbers are numbers of float32."""


@dataclass(frozen=True, slots=True)
class FloatOperands:
    """A node, and the `format` of its operands; None keeps the numbers of the graph.

    `constant` are indices of inputs that are equal in every run: they are cast once, if there is
    `room` for the result.
    """

    node: Node
    attributes: Mapping[str, Any]
    format: FloatFormat | None
    constant: frozenset[int]
    room: Room
    _kept: dict[int, tuple[Array, Array]] = field(default_factory=dict, repr=False)

    def misfit(self, inputs: Sequence[Value]) -> str | None:
        """Returns why the first two inputs have no sums in floats; None if they have."""
        for tensor in inputs[:2]:
            name = tensor.dtype.name
            if name not in (*_FLOATS, "float64"):
                return f"its operands are {name}, which are no floats"
            if name == "float64" and self.format is None:
                return "its operands are float64, more than a float accumulator takes: cast them"
        return None

    def has_input(self, index: int) -> bool:
        """Whether the optional input is present."""
        return len(self.node.inputs) > index and bool(self.node.inputs[index])

    def start(self, index: int, inputs: Sequence[Value]) -> Array | None:
        """The bias at `index`, float32: the first term of the sums; None if there is none.

        The accumulator rounds it, and not the format of the operands.
        """
        return inputs[index].astype(np.float32) if self.has_input(index) else None

    def cast(self, index: int, tensor: Array, axis: int) -> Array:
        """The operand at `index` in the format, float32; numbers share scales along `axis`."""
        before, kept = self._kept.get(index, (None, None))
        if before is tensor:
            assert kept is not None
            return kept
        result = self._cast(tensor, axis)
        if index in self.constant and index not in self._kept:
            size = result.nbytes if result is not tensor else 0
            if size <= self.room.nbytes:
                self.room.nbytes -= size
                self._kept[index] = tensor, result
        return result

    def _cast(self, tensor: Array, axis: int) -> Array:
        if self.format is None:
            return tensor.astype(np.float32, copy=False)
        return cast(tensor, self.format)
