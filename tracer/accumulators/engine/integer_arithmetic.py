"""The operands of a node as integers times a step, and its output computed from their sums.

Operands are quantised or fixed-point tensors. The output is floats, or bytes where the next node
quantises.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from tracer.accumulators.engine.tensor_scales import TensorScale, TensorScales
from tracer.accumulators.engine.value_ranges import integer_range
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.operand_format import FixedPoint, Formats
from tracer.errors import InputError, ModelError
from tracer.graph.model import Node
from tracer.interpreter.ops.quantized import requantized
from tracer.interpreter.values import Value
from tracer.support.types import Array

_RTOL = 1e-5
"""Relative difference allowed between a bias's float32 scale and the product of two scales."""
_LARGEST_BIAS = 2.0**62
"""Sums of magnitudes stay below it."""
_TO_ZERO_POINT = 2
"""Inputs from a quantised tensor to its zero point; a scale or the other operand is between."""
DIFFERENT_SCALES = "the terms of a sum have different scales"
"""Why a sum has no unit."""
BYTES = tuple(map(np.dtype, ("int8", "uint8")))
Subtract = Callable[[Array, Array | None], Array]
"""Returns a tensor minus its zero point, int32."""


class NoIntegerForm(Exception):  # noqa: N818 - a reason, not a fault
    """A node has no integer arithmetic; the text is the reason, `why` names no operand.

    `remedy` is what to do, if that is special to the operator.
    """

    def __init__(self, why: str, operand: str | None = None, remedy: str | None = None) -> None:
        super().__init__(why if operand is None else f"'{operand}' {why}")
        self.why = why if operand is None else f"an operand {why}"
        self.remedy = remedy


def minus_zero_point(tensor: Array, zero_point: Array | None) -> Array:
    """The tensor, int32, minus a zero point that is one number or one for each column."""
    wide = tensor.astype(np.int32)
    return wide if zero_point is None else wide - zero_point.astype(np.int32)


@dataclass(frozen=True, slots=True)
class Integers:
    """Integers from `low` to `high`; `constant` if they are equal in every run.

    They are `numbers`, of at most 32 bits, minus `shift`. `zero` is their zero point, None if it is
    not one number. `padding` is the integer that stands for 0.
    """

    numbers: Array
    low: int
    high: int
    constant: bool = False
    zero: int | None = 0
    padding: int = 0
    shift: int = 0

    @property
    def values(self) -> Array:
        """The integers: the array itself, or int16 where a zero point of bytes is subtracted."""
        if not self.shift:
            return self.numbers
        return np.subtract(self.numbers, np.int16(self.shift), dtype=np.int16)

    def transposed(self) -> "Integers":
        """The transpose of a matrix."""
        return replace(self, numbers=self.numbers.T)

    def stored(self) -> "Integers":
        """The integers as stored, zero point included. Raises ModelError for several of them."""
        if self.zero is None:
            raise ModelError(
                "an operand has several zero points, so they cannot be subtracted from the sums",
                "Subtract them from the operands: zero_points='before'.",
            )
        wide = self.values.astype(np.int32) + self.zero
        values = narrow(wide) if self.zero < 1 << 15 else wide  # padding is the zero point
        return Integers(
            values, self.low + self.zero, self.high + self.zero, self.constant, padding=self.zero
        )


class Operand(Protocol):
    """A tensor that is integers times a step, or times one step for each channel."""

    def integers(self, tensor: Array) -> Integers:
        """The integers of the tensor."""

    def steps(self, axis: int | None) -> Array:
        """float64: one step, or one for each slice of `axis`; None allows one step only."""

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest integer of any run."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """A dequantised tensor; `stored` are its integers if they are an initializer."""

    scale: TensorScale
    constant: bool
    stored: Array | None

    def integers(self, tensor: Array) -> Integers:
        """The stored integers, or those of bytes before DequantizeLinear, or of floats after it."""
        shift = 0
        if self.stored is not None:
            values = self.stored
        elif tensor.dtype in BYTES:
            values, shift = tensor, self.scale.zero or 0
        else:
            values = self.scale.integers(tensor)
        scale = self.scale
        return Integers(values, scale.low, scale.high, self.constant, scale.zero, shift=shift)

    def steps(self, axis: int | None) -> Array:
        """The scale. Raises NoIntegerForm where it varies along another axis."""
        steps = self.scale.step.astype(np.float64)
        if steps.size == 1:
            return steps.reshape(())
        if axis is None or not self.scale.along(axis):
            raise NoIntegerForm(DIFFERENT_SCALES)
        return steps

    @property
    def range(self) -> tuple[int, int]:
        """The range of the stored type, minus the zero point."""
        return self.scale.low, self.scale.high


@dataclass(frozen=True, slots=True)
class Fixed:
    """A float tensor rounded to a fixed-point format."""

    format: FixedPoint
    constant: bool

    def integers(self, tensor: Array) -> Integers:
        """The nearest numbers of the format. Raises NoIntegerForm for integers, such as shapes."""
        if tensor.dtype.kind in "iub":
            raise NoIntegerForm(f"its operands are {tensor.dtype}, not floats")
        return Integers(narrow(self.format.quantized(tensor)), *self.format.range, self.constant)

    def steps(self, axis: int | None) -> Array:
        """The step of the format."""
        return np.array(2.0**-self.format.fraction)

    @property
    def range(self) -> tuple[int, int]:
        """The range of the format."""
        return self.format.range


@dataclass(frozen=True, slots=True)
class BiasParts:
    """A bias: `integers`, int64, are added to the products, `rest` to the output."""

    integers: Array | None = None
    rest: Array | None = None


@dataclass(frozen=True, slots=True)
class NodeOperands:
    """A node, the scales of its inputs, and the fixed-point formats of float inputs, if any."""

    node: Node
    attributes: Mapping[str, Any]
    scales: TensorScales
    formats: Formats | None
    _stored_biases: dict[int, BiasParts] = field(default_factory=dict, repr=False)
    _stored: dict[int, Integers] = field(default_factory=dict, repr=False)

    def activations(self, index: int) -> Operand:
        """An activation. Raises NoIntegerForm if it has no integers."""
        return self._operand(index, None if self.formats is None else self.formats.activations)

    def weights(self, index: int) -> Operand:
        """A constant input in the format of weights; any other input as an activation."""
        if not self.constant(index):
            return self.activations(index)
        return self._operand(index, None if self.formats is None else self.formats.weights)

    def constant(self, index: int) -> bool:
        """Whether the input is equal in every run."""
        return self.scales.constant(self.node.inputs[index], self.node.scope)

    def float_type(self, tensor: Array) -> np.dtype[Any]:
        """The type of the node's floats; float32 where it is given bytes in place of `tensor`."""
        return np.dtype(np.float32) if tensor.dtype in BYTES else tensor.dtype

    def bias(self, index: int, step: Array, inputs: Sequence[Value]) -> BiasParts:
        """The bias at `index`, one number or one for each channel, in units of `step`.

        Multiples of the step are integers. Any other bias is added to the output. Raises InputError
        for a fixed-point bias beyond 62 bits.
        """
        if not self.node.has_input(index):
            return BiasParts()
        if index in self._stored_biases:
            return self._stored_biases[index]
        value = inputs[index]
        steps = np.rint(value.astype(np.float64) / step)
        if self.formats is not None:
            if not (np.abs(steps) < _LARGEST_BIAS).all():
                raise InputError(
                    f"a bias from {value.min()} to {value.max()} has no fixed-point number",
                    f"Its step is {float(step)}: check the operation that computes it.",
                )
            return BiasParts(steps.astype(np.int64))
        name, scope = self.node.inputs[index], self.node.scope
        scale = self.scales.of(name, scope)
        if scale is None or not np.allclose(scale.step.reshape(-1), step.reshape(-1), _RTOL, 0):
            return BiasParts(rest=value)
        stored = self.scales.stored_integers(name, scope)
        exact = steps if stored is None else stored
        bias = BiasParts(exact.astype(np.int64).reshape(value.shape))
        if stored is not None:
            self._stored_biases[index] = bias
        return bias

    def centred(
        self, index: int, inputs: Sequence[Value], subtract: Subtract = minus_zero_point,
        zero_at: int | None = None,
    ) -> Integers:  # fmt: skip
        """The quantised tensor at `index` minus its zero point, at `zero_at` or two inputs after.

        A zero point that is computed may change from run to run to any value of its type.
        """
        if index in self._stored:
            return self._stored[index]
        at = index + _TO_ZERO_POINT if zero_at is None else zero_at
        tensor, zero = inputs[index], inputs[at] if at < len(inputs) else None
        known = self.scales.ranges.of(self.node.inputs[index], self.node.scope)
        low, high = known.integer_ends(tensor.dtype)
        least, most = integer_range(tensor.dtype)
        fixed, constant, shift = True, self.constant(index), 0
        single: int | None = 0
        numbers = tensor if tensor.dtype in BYTES else narrow(subtract(tensor, None))
        if zero is not None and zero.size:
            zeros = int(zero.min()), int(zero.max())
            fixed = self.constant(at)
            low -= zeros[1] if fixed else most
            high -= zeros[0] if fixed else least
            single = zeros[0] if zeros[0] == zeros[1] else None
            if zero.size == 1 and tensor.dtype in BYTES:
                shift = zeros[0]
            else:
                numbers = narrow(subtract(tensor, zero))
        found = Integers(numbers, low, high, constant and fixed, single, shift=shift)
        names = [name for name in (self.node.inputs[index], *self.node.inputs[at : at + 1]) if name]
        is_stored = all(self.scales.value(name, self.node.scope) is not None for name in names)
        if constant and fixed and is_stored:
            self._stored[index] = found
        return found

    def _operand(self, index: int, format_: FixedPoint | None) -> Operand:
        constant = self.constant(index)
        if self.formats is not None and self.formats.block:
            raise NoIntegerForm(
                "operands share exponents in Conv without groups, Gemm and MatMul alone",
                remedy="Set formats with a fraction for it: --fixed 8:5.",
            )
        if format_ is not None:
            return Fixed(format_, constant)
        name, scope = self.node.inputs[index], self.node.scope
        scale = self.scales.of(name, scope)
        if scale is None:
            why = "has a scale for each block, whose sums only MatMul and Gemm add"
            producer = self.scales.producer(name, scope)
            has_blocks = producer is not None and any(
                a.name == "block_size" and a.i for a in producer.proto.attribute
            )
            raise NoIntegerForm(why if has_blocks else "is not integers times a scale", name)
        stored = self.scales.stored_integers(name, scope)
        if stored is None and not scale.recoverable:
            raise NoIntegerForm(
                f"has integers from {scale.low} to {scale.high}, "
                f"more than floats of {scale.precision} bits of precision tell apart",
                name,
            )
        return Quantized(scale, constant, None if stored is None else narrow(stored))


def narrow(integers: Array) -> Array:
    """int16 where it holds them, else int32; the array itself if it is int16."""
    if integers.dtype == np.int16:
        return integers
    small = not integers.size or (integers.min() >= -(1 << 15) and integers.max() < 1 << 15)
    return integers.astype(np.int16 if small else np.int32)


Exact = Callable[[Integers, Integers], Array]
"""Returns the exact sums of two operands, int64."""


def zero_points_stay(accumulator: Accumulator, x: Integers, w: Integers) -> bool:
    """Whether these operands have zero points that are subtracted from the sum."""
    return accumulator.is_zero_point_in_sum and (x.zero, w.zero) != (0, 0)


def subtract_zero_points(sums: Array, x: Integers, w: Integers, exact: Exact) -> Array:
    """The `sums` of the operands as stored, as sums without zero points."""
    return sums + exact(x, w) - exact(x.stored(), w.stored())


_KEPT = 1 << 18
"""Bytes of the parameters of rows that are kept for the next run."""

Restore = Callable[[Array], Array]
"""Computes the output from sums, int64 in its shape."""


@dataclass(frozen=True, slots=True)
class Dequantize:
    """Computes floats: sums times the `step` of their channel, plus the `rest`.

    `rest` is a bias that is no multiple of the step. Both are one number or one for each channel.
    Channels are axis 1 of (N, C, *size), or the last axis.
    """

    step: Array
    rest: Array | None
    dtype: np.dtype[Any]
    channels_last: bool = False

    def __call__(self, sums: Array) -> Array:
        """The floats of all sums."""
        rank = 2 if self.channels_last else sums.ndim
        out = sums * per_channel(self.step, rank)
        if self.rest is not None:
            out = out + per_channel(self.rest, rank)
        return out.astype(self.dtype)


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes from floats: limited to [least, most], divided by `scale`, rounded, plus `zero`."""

    least: float
    most: float
    scale: float
    zero: int
    dtype: np.dtype[Any]
    _known: dict[int, tuple[Dequantize, Array]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def parameters(self, floats: Dequantize, channels: int) -> Array:
        """What `kernels.steps.BYTES` knows of each row: (channels, 8), float64.

        They are computed again only for other floats than those before.
        """
        before, known = self._known.get(channels, (None, None))
        if before is not None and before.step is floats.step and before.rest is floats.rest:
            assert known is not None
            return known
        ends = np.iinfo(self.dtype)
        rest = 0.0 if floats.rest is None else floats.rest
        numbers = (floats.step, rest, self.least, self.most, self.scale,
                   ends.min - self.zero, ends.max - self.zero, self.zero)  # fmt: skip
        known = np.empty((channels, len(numbers)))
        for column, each in enumerate(numbers):
            known[:, column] = each if np.ndim(each) == 0 else np.reshape(each, -1)
        self._known.clear()
        if known.nbytes <= _KEPT:
            self._known[channels] = floats, known
        return known


@dataclass(frozen=True, slots=True)
class Requantize:
    """Computes bytes: sums times a `factor`, float32, rounded, plus the zero point.

    The factor broadcasts to the sums.
    """

    factor: Array
    zero: Array

    def __call__(self, sums: Array) -> Array:
        """The bytes of all sums."""
        return requantized(sums, self.factor, self.zero)

    def finish(self) -> "Finish | None":
        """What a kernel does in place of it; None where it has to be computed from the sums."""
        bytes_ = self.zero.size == 1 and self.zero.dtype in BYTES
        if not bytes_ or not np.isfinite(self.factor).all():
            return None
        factor = np.asarray(self.factor, np.float64)
        made = Bytes(-np.inf, np.inf, 1.0, int(self.zero.reshape(())), self.zero.dtype)
        return Finish(Dequantize(factor, None, np.dtype(np.float32)), made)


@dataclass(frozen=True, slots=True)
class Finish:
    """The output of a node as bytes, in place of its sums; `floats` come in between."""

    floats: Dequantize
    bytes: Bytes


def per_channel(values: Array, rank: int) -> Array:
    """One number, or one for each channel of a tensor of `rank` axes."""
    flat = values.reshape(-1)
    return flat.reshape(()) if flat.size == 1 else flat.reshape(-1, *[1] * (rank - 2))
