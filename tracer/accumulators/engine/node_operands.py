"""The operands of a node as integers times a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tracer.accumulators.engine.tensor_scales import TensorScale, TensorScales, integer_range
from tracer.accumulators.spec.fixed_point import FixedPoint, Formats
from tracer.errors import InputError, ModelError
from tracer.graph.model import Node
from tracer.interpreter.values import Value
from tracer.support.types import Array

_RTOL = 1e-5
"""How far a bias's float32 scale may be from the product of two."""

_LARGEST_BIAS = 2.0**62
"""Sums of magnitudes stay below it."""
_TO_ZERO_POINT = 2
"""Inputs from a quantised tensor to its zero point: a scale lies between, or the other operand."""


class UnfitError(Exception):
    """A node has no integer arithmetic; the text says why."""


@dataclass(frozen=True, slots=True)
class Integers:
    """`values`, int16 or int32, each from `low` to `high`; `constant` if every run has the same.

    `zero` is the zero point that was taken off them, None where it is not one number; `nought` is
    the value that stands for 0.
    """

    values: Array
    low: int
    high: int
    constant: bool = False
    zero: int | None = 0
    nought: int = 0

    def stored(self) -> Integers:
        """The same with the zero point still in. Raises ModelError where it is not one number."""
        if self.zero is None:
            raise ModelError(
                "an operand has several zero points, whose part in a sum cannot be taken off after",
                "Take them off before: zero_points='before'.",
            )
        values = narrow(self.values.astype(np.int32) + self.zero)
        return Integers(
            values, self.low + self.zero, self.high + self.zero, self.constant, nought=self.zero
        )


class Operand(Protocol):
    """A float tensor that is integers times steps."""

    def integers(self, tensor: Array) -> Integers:
        """The integers of the tensor."""

    def steps(self, axis: int | None) -> Array:
        """float64: the step, or one for each slice of `axis`, which alone they may depend on."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """A dequantised tensor; `stored` are its integers if the model has them."""

    unit: TensorScale
    constant: bool
    stored: Array | None

    def integers(self, tensor: Array) -> Integers:
        """As stored, else recovered from the floats."""
        values = self.unit.integers(tensor) if self.stored is None else self.stored
        return Integers(values, self.unit.low, self.unit.high, self.constant, self.unit.zero)

    def steps(self, axis: int | None) -> Array:
        """The scale. Raises UnfitError where it varies along another axis."""
        if self.unit.scale.size == 1:
            return self.unit.scale.astype(np.float64).reshape(())
        if axis is None or not self.unit.along(axis):
            raise UnfitError("an operand has a scale for each of the terms that are added")
        return self.unit.scale.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Fixed:
    """A float tensor brought into a fixed-point format."""

    format: FixedPoint
    constant: bool

    def integers(self, tensor: Array) -> Integers:
        """Rounded and saturated."""
        return Integers(narrow(self.format.quantized(tensor)), *self.format.range, self.constant)

    def steps(self, axis: int | None) -> Array:
        """The step of the format."""
        return np.array(2.0**-self.format.fraction)


@dataclass(frozen=True, slots=True)
class Shift:
    """A bias: `integers`, int64, are summed with the products, `rest` is added to the output."""

    integers: Array | None = None
    rest: Array | None = None


@dataclass(frozen=True, slots=True)
class NodeOperands:
    """A node and what the model tells of its inputs; `formats` make integers of floats."""

    node: Node
    attributes: Mapping[str, Any]
    units: TensorScales
    formats: Formats | None
    _lasting: dict[int, Shift] = field(default_factory=dict, repr=False)

    def inputs(self, index: int) -> Operand:
        """An input that flows through the network. Raises UnfitError if it is no integers."""
        return self._operand(index, None if self.formats is None else self.formats.activations)

    def weights(self, index: int) -> Operand:
        """An input that is weights, as a rule; two activations may be multiplied too."""
        if not self.constant(index):
            return self.inputs(index)
        return self._operand(index, None if self.formats is None else self.formats.weights)

    def constant(self, index: int) -> bool:
        """Whether the input is the same in every run."""
        return self.units.constant(self.node.inputs[index], self.node.scope)

    def given(self, index: int) -> bool:
        """Whether there is such an input."""
        return len(self.node.inputs) > index and bool(self.node.inputs[index])

    def shift(self, index: int, step: Array, inputs: Sequence[Value]) -> Shift:
        """The bias at `index`, one number or one for each channel, where a sum's unit is `step`.

        Whole multiples of the step are integers; any other bias is added to the output.
        """
        if not self.given(index):
            return Shift()
        if index in self._lasting:
            return self._lasting[index]
        value = inputs[index]
        if self.formats is not None:
            return Shift(_whole_steps(value, step))
        name, scope = self.node.inputs[index], self.node.scope
        unit = self.units.of(name, scope)
        if unit is None or not np.allclose(unit.scale.reshape(-1), step.reshape(-1), _RTOL, 0):
            return Shift(rest=value)
        stored = self.units.stored_integers(name, scope)
        exact = np.rint(value.astype(np.float64) / step) if stored is None else stored
        made = Shift(exact.astype(np.int64).reshape(value.shape))
        if stored is not None:
            self._lasting[index] = made
        return made

    def centred(self, index: int, tensor: Array, values: Array, zero: Array | None) -> Integers:
        """The quantised `tensor` at `index`, whose zero point is taken off in `values`.

        The zero point is the input two places on, as in all operators that have one. One that is
        computed may be another in the next run, anything that its type holds.
        """
        least, most = integer_range(tensor.dtype)
        low, high, constant = least, most, self.constant(index)
        if zero is not None and zero.size:
            fixed = self.constant(index + _TO_ZERO_POINT)
            low -= int(zero.max()) if fixed else most
            high -= int(zero.min()) if fixed else least
            constant = constant and fixed
        if zero is None or not zero.size:
            return Integers(narrow(values), low, high, constant)
        one = int(zero.min()) if zero.min() == zero.max() else None
        return Integers(narrow(values), low, high, constant, one)

    def _operand(self, index: int, format_: FixedPoint | None) -> Operand:
        constant = self.constant(index)
        if format_ is not None:
            return Fixed(format_, constant)
        name, scope = self.node.inputs[index], self.node.scope
        unit = self.units.of(name, scope)
        if unit is None:
            raise UnfitError(f"'{name}' is not integers times a scale")
        stored = self.units.stored_integers(name, scope)
        if stored is None and not unit.recoverable:
            raise UnfitError(
                f"'{name}' has integers from {unit.low} to {unit.high}, "
                f"more than floats of {unit.precision} bits of precision tell apart"
            )
        return Quantized(unit, constant, None if stored is None else narrow(stored))


def _whole_steps(bias: Array, step: Array) -> Array:
    """The nearest multiples of the step, int64. Raises InputError for what has none in 62 bits."""
    steps = np.rint(bias.astype(np.float64) / step)
    if not (np.abs(steps) < _LARGEST_BIAS).all():
        raise InputError(
            f"a bias from {bias.min()} to {bias.max()} has no fixed-point number",
            f"It is summed in steps of {float(step)}: look where it comes from.",
        )
    return steps.astype(np.int64)


def narrow(integers: Array) -> Array:
    """int16 where it holds them, else int32."""
    small = not integers.size or (integers.min() >= -(1 << 15) and integers.max() < 1 << 15)
    return integers.astype(np.int16 if small else np.int32)
