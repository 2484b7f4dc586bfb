"""Finds float tensors that are integers times a step, by walking back to DequantizeLinear or Quant.

Quantised graphs in QDQ form and in QONNX compute in floats. A tensor that comes from
DequantizeLinear or from QONNX's Quant, through operators that do not mix its elements, is an
integer tensor times a step. Sums over such tensors are sums of integers times steps.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from tracer.accumulators.engine import value_ranges
from tracer.errors import ModelError
from tracer.graph.model import Address, Model, Node, Scope
from tracer.graph.operators import RulesByOperator, integer_attribute
from tracer.graph.stored_weights import overridable
from tracer.interpreter.numeric import compiled
from tracer.interpreter.numeric.tensors import apply, nonnegative_axis
from tracer.interpreter.ops.quantization import aligned, is_integer
from tracer.support.types import Array

_SPARE = 2
"""Bits of a float's precision that an integer must leave free to survive a multiplication."""
_MOST_PRECISE = 22
"""Bits of precision relied on: integers are recovered in float32."""


@dataclass(frozen=True, slots=True)
class TensorScale:
    """A float tensor is an integer tensor, with values from `low` to `high`, times `step`.

    `step`, float32, is one number, or one for each slice of `axis`. `precision` is the number of
    significant bits of the tensor's float type. `rank` is the number of axes, None if the graph
    does not tell. `zero` is the zero point, None if it is not one number.
    `dtype` is the type that DequantizeLinear reads, "" after other operators.
    """

    step: Array
    axis: int
    low: int
    high: int
    precision: int
    rank: int | None = None
    zero: int | None = 0
    dtype: str = ""

    @property
    def recoverable(self) -> bool:
        """Whether the values divided by the step give the integers exactly."""
        exact = 1 << (min(self.precision, _MOST_PRECISE) - _SPARE)
        return self.low >= -exact and self.high <= exact

    def along(self, axis: int) -> bool:
        """Whether the step varies along `axis`."""
        if self.rank is None:
            return axis == self.axis
        return nonnegative_axis(axis, self.rank) == nonnegative_axis(self.axis, self.rank)

    def integers(self, tensor: Array) -> Array:
        """The integers of a float tensor, int16 if they fit, else int32."""
        small = self.low >= -(1 << 15) and self.high < 1 << 15
        if small and tensor.dtype == np.float32 and self.step.size == 1:
            return compiled.quantize(tensor, self.step, None, np.dtype(np.int16))

        def compute(x: Array, step: Array, out: Array) -> None:
            out[...] = np.rint(x / step)

        dtype = np.dtype(np.int16 if small else np.int32)
        return apply(compute, tensor, aligned(self.step, tensor, self.axis, 0), dtype=dtype)


class TensorScales:
    """The scales of the tensors of one model."""

    def __init__(self, model: Model) -> None:
        self._flow = model.dataflow
        # Bounds of sums hold for any weight that a feed may override. Scales and zero points of a
        # conversion count as constants: without, there are no integers.
        conversions = ("QuantizeLinear", "DequantizeLinear")
        fixed = {
            name
            for node in model.nodes
            if node.op_type in conversions or value_ranges.rounds_to_integers(node)
            for name in node.inputs[1:]
        }
        listed = {value.name: value.type.tensor_type.shape for value in overridable(model)}
        self._ranks = {name: len(shape.dim) for name, shape in listed.items()}
        self.changeable = listed.keys() - fixed
        """Weights that are inputs too, by name."""
        self._stored = value_ranges.StoredValues(model, self.changeable)
        self.ranges = value_ranges.ValueRanges(model, self._stored)
        self._found: dict[Address, TensorScale | None] = {}

    def of(self, name: str, scope: Scope) -> TensorScale | None:
        """The scale of a tensor; None if the graph does not tell."""
        address = self._flow.address(name, scope)
        # it and those that its scale follows from, without those found: rows of nodes may be longer
        # than Python's calls may be deep
        unknown = [] if address in self._found else [address]
        seen = {*unknown}
        for each in unknown:  # grows
            maker = self._ruled(each)
            if maker is not None and not _is_origin(maker):
                new = set(self._flow.read(maker)) - seen - self._found.keys()
                seen |= new
                unknown += new
        makers = ((each, self._flow.makers.get(each)) for each in unknown)
        places = {each: -1 if maker is None else maker.index for each, maker in makers}
        for each in sorted(unknown, key=places.__getitem__):  # in the order of the graph
            maker = self._ruled(each)
            if maker is None:
                self._found[each] = None
            elif value_ranges.rounds_to_integers(maker):
                self._found[each] = self.rounded(maker)
            else:
                self._found[each] = _RULES[maker.op_type](self, maker)
        return self._found[address]

    def _ruled(self, address: Address) -> Node | None:
        """The node that computes a tensor, if a rule tells its scale."""
        maker = self._flow.makers.get(address)
        if maker is None or value_ranges.rounds_to_integers(maker):
            return maker
        return maker if maker.standard_type in _RULES else None

    def constant(self, name: str, scope: Scope) -> bool:
        """Whether a tensor is equal in every run."""
        return self._stored.has(name, scope)

    def value(self, name: str, scope: Scope) -> Array | None:
        """The value of a constant tensor; None for other tensors."""
        return self._stored.value(name, scope)

    def stored_integers(self, name: str, scope: Scope) -> Array | None:
        """The integers, int64, of a dequantised or quantised constant; None for other tensors.

        A zero point that does not fit is told by the run, at its own node.
        """
        producer = self.producer(name, scope)
        if producer is None or not _is_origin(producer):
            return None
        stored = self.value(producer.inputs[0], producer.scope)
        if stored is None:
            return None
        if value_ranges.rounds_to_integers(producer):
            return value_ranges.stored_integers(producer, stored, self._inputs(producer))
        wide, zero = stored.astype(np.int64), self._zero_point(producer)
        if zero is None:
            return wide
        try:
            return wide - aligned(zero.astype(np.int64), wide, _axis(producer), 0)
        except ModelError:
            return None

    def stored_type(self, name: str, scope: Scope) -> np.dtype[Any] | None:
        """The type that `stored_integers` are stored in; None if the graph does not tell."""
        producer = self.producer(name, scope)
        if producer is None or not _is_origin(producer):
            return None
        return self.ranges.of(producer.inputs[0], producer.scope).dtype

    def dequantized(self, node: Node) -> TensorScale | None:
        """The scale of the output of DequantizeLinear, if its scale and type are stored."""
        step, zero = self.value(node.inputs[1], node.scope), self._zero_point(node)
        if step is None or integer_attribute(node.proto, "block_size"):
            return None
        if "float" not in step.dtype.name or not step.size or not (step > 0).all():
            return None
        numbers = self.ranges.of(node.inputs[0], node.scope)
        dtype = numbers.dtype if zero is None else zero.dtype
        is_unknown = zero is None and node.has_input(2)
        if is_unknown or dtype is None or not is_integer(dtype):  # float8 is no integers
            return None
        zeros = np.zeros(1, np.int64) if zero is None else zero.astype(np.int64)
        if not zeros.size:
            return None
        low, high = numbers.integer_ends(dtype)
        least, most = int(zeros.min()), int(zeros.max())
        return TensorScale(
            step.astype(np.float32), _axis(node), low - most, high - least, _precision(step.dtype),
            self._rank(node.inputs[0], node.scope), least if least == most else None, str(dtype),
        )  # fmt: skip

    def rounded(self, node: Node) -> TensorScale | None:
        """The scale of the output of a node of QONNX, if its parameters are stored."""
        x = self.ranges.of(node.inputs[0], node.scope)
        found = value_ranges.qonnx_integers(node, x.low, x.high, self._inputs(node))
        if found is None:
            return None
        axes = [axis for axis, size in enumerate(found.step.shape) if size > 1]
        if len(axes) > 1:  # a scale for each group of numbers
            return None
        axis = axes[0] - found.step.ndim if axes else 0
        rank, precision = self._rank(node.inputs[0], node.scope), _precision(found.step.dtype)
        step = found.step.reshape(-1)
        return TensorScale(step, axis, found.low, found.high, precision, rank, found.zero)

    def _inputs(self, node: Node) -> Callable[[int], Array | None]:
        """Returns the constant input of a node at an index; None if it is not constant."""
        return lambda index: self.value(node.inputs[index], node.scope)

    def _zero_point(self, node: Node) -> Array | None:
        """The stored zero point; None if it is left out, or not constant."""
        return self.value(node.inputs[2], node.scope) if node.has_input(2) else None

    def producer(self, name: str, scope: Scope) -> Node | None:
        """The node that computes a tensor; None for an input or a stored tensor."""
        return self._flow.makers.get(self._flow.address(name, scope))

    def _rank(self, name: str, scope: Scope) -> int | None:
        """The number of axes of a weight."""
        if name in self._ranks and not scope.path:  # a feed may have other numbers for it
            return self._ranks[name]
        tensor = self._stored.tensor(name, scope)
        if tensor is not None:
            return len(tensor.dims)
        value = self.value(name, scope)
        return None if value is None else value.ndim


def _precision(dtype: Any) -> int:
    """Significant bits of a float type, including the one in front of the point."""
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.nmant) + 1


def _axis(node: Node) -> int:
    return integer_attribute(node.proto, "axis", 1)


_Rule = Callable[[TensorScales, Node], "TensorScale | None"]
_RULES = RulesByOperator[_Rule]({
    "DequantizeLinear": TensorScales.dequantized,
    "Identity": lambda scales, node: scales.of(node.inputs[0], node.scope),
})  # fmt: skip
"""How the scale of an operator's output follows from the scales of its inputs."""


@_RULES(*value_ranges.MOVES)
def _rearranged(scales: TensorScales, node: Node) -> TensorScale | None:
    """The single step stays."""
    scale = scales.of(node.inputs[0], node.scope)
    if scale is None or scale.step.size > 1:
        return None
    return replace(scale, low=min(scale.low, 0), high=max(scale.high, 0))


@_RULES("Resize", "Upsample")
def _resized(scales: TensorScales, node: Node) -> TensorScale | None:
    return _rearranged(scales, node) if value_ranges.takes_nearest(node) else None


@_RULES("Relu")
def _positive(scales: TensorScales, node: Node) -> TensorScale | None:
    scale = scales.of(node.inputs[0], node.scope)
    return None if scale is None else replace(scale, low=max(scale.low, 0), high=max(scale.high, 0))


@_RULES("Transpose")
def _transposed(scales: TensorScales, node: Node) -> TensorScale | None:
    scale = scales.of(node.inputs[0], node.scope)
    order = next((list(a.ints) for a in node.proto.attribute if a.name == "perm"), None)
    if scale is None or scale.step.size == 1:
        return scale
    if order is None:
        return None
    axis = order.index(nonnegative_axis(scale.axis, len(order)))
    return replace(scale, axis=axis, rank=len(order))


@_RULES("Pad")
def _padded(scales: TensorScales, node: Node) -> TensorScale | None:
    """Padding with zeros or with elements."""
    fill = scales.value(node.inputs[2], node.scope) if len(node.inputs) > 2 else np.zeros(1)
    if fill is None or np.any(fill) or any(a.name == "pads" for a in node.proto.attribute):
        return None
    return _rearranged(scales, node)


@_RULES("Concat")
def _concat_scale(scales: TensorScales, node: Node) -> TensorScale | None:
    """One scale if all inputs have the same step."""
    parts = [scale for name in node.inputs if (scale := scales.of(name, node.scope)) is not None]
    steps = {float(step) for scale in parts for step in scale.step.reshape(-1)}
    if len(parts) < len(node.inputs) or len(steps) > 1 or any(s.step.size != 1 for s in parts):
        return None
    return replace(parts[0], low=min(s.low for s in parts), high=max(s.high for s in parts))


def _is_origin(node: Node) -> bool:
    """Whether the scale of a node's output follows from its own parameters."""
    return value_ranges.rounds_to_integers(node) or node.standard_type == "DequantizeLinear"


ELEMENTS_KEPT = frozenset(_RULES) - {"DequantizeLinear", "Resize", "Upsample"}
"""Operators that move integers, or leave some of them out, and compute no others."""
