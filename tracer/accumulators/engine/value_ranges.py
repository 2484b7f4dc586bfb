"""What a graph tells of its tensors before a run: constants, and the range of every tensor.

Constants are stored tensors, and what nodes compute from them alone: exporters of quantised
networks leave weights as floats, and quantise them in the graph. The ranges hold for any input, and
follow in one pass in the order of the graph. They begin where types, Relu, Clip, QuantizeLinear
and QONNX's operators set them, and go on through operators that move elements. Sums set none: in a
narrow accumulator they may wrap.

QONNX's Quant, BipolarQuant, Trunc and MultiThreshold return integers times a scale, where their
parameters are stored. They never decrease, so the ends of their input give those of their output.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from tracer.errors import ModelError
from tracer.graph import operators
from tracer.graph.model import Address, Model, Node, Scope
from tracer.interpreter import values
from tracer.interpreter.operators import evaluated
from tracer.interpreter.ops import quantization
from tracer.interpreter.ops.qonnx import quant_integers, trunc_integers
from tracer.support.types import Array

_KEPT = 1 << 16
"""Bytes of a computed value that is kept; a larger one is computed whenever it is asked for."""


class StoredValues:
    """The constant values of one model.

    Weights that a feed may override are constants, unless they are `excluded`, by name.
    """

    def __init__(self, model: Model, excluded: Collection[str] = ()) -> None:
        self._model = model
        self._flow = model.dataflow
        self._folder = model.folder
        self._initializers = {
            (scope.path, tensor.name): tensor
            for scope in model.scopes
            for tensor in scope.graph.initializer
            if scope.path != model.root or tensor.name not in excluded
        }
        self._sparse = {
            (scope.path, sparse.values.name): sparse
            for scope in model.scopes
            for sparse in scope.graph.sparse_initializer
        }
        self._computed: dict[Address, Array | None] = {}

    def has(self, name: str, scope: Scope) -> bool:
        """Whether a tensor is equal in every run."""
        return self._flow.address(name, scope) in self._constant

    def tensor(self, name: str, scope: Scope) -> onnx.TensorProto | None:
        """The initializer of this name."""
        return self._initializers.get(self._flow.address(name, scope))

    def value(self, name: str, scope: Scope) -> Array | None:
        """A constant value; None for a tensor that depends on inputs, or that cannot be computed.

        Raises ModelError for a stored tensor that cannot be read. Where a node fails, a run tells.
        """
        address = self._flow.address(name, scope)
        if address in self._initializers:
            return values.from_tensor(self._initializers[address], self._folder)
        if address in self._sparse:
            return values.from_sparse(self._sparse[address], self._folder)
        if address not in self._constant:
            return None
        if address in self._computed:
            return self._computed[address]
        found = self._evaluate(address)
        if found is None or found.nbytes <= _KEPT:
            self._computed[address] = found
        return found

    @cached_property
    def _constant(self) -> set[Address]:
        found = {*self._initializers, *self._sparse}
        for node in self._model.nodes:  # makers come first
            has_body = any(a.HasField("g") or a.graphs for a in node.proto.attribute)
            is_known = node.standard_type or node.domain == operators.QONNX_DOMAIN
            if not is_known or has_body or operators.draws_numbers(node.op_type):
                continue
            if all(address in found for address in self._flow.read(node)):
                found.update(self._flow.outputs_of(node))
        return found

    def _evaluate(self, address: Address) -> Array | None:
        """Computes the nodes that a tensor follows from, in the order of the graph."""
        makers: dict[int, Node] = {}
        waiting = [address]
        while waiting:
            maker = self._flow.makers.get(waiting.pop())
            if maker is not None and maker.index not in makers:
                makers[maker.index] = maker
                waiting.extend(self._flow.read(maker))
        known: dict[Address, values.Value] = {}

        def value_at(address: Address) -> values.Value:
            if address in self._initializers:
                return values.from_tensor(self._initializers[address], self._folder)
            if address in self._sparse:
                return values.from_sparse(self._sparse[address], self._folder)
            return known.get(address)

        for _, node in sorted(makers.items()):
            inputs = [
                value_at(self._flow.address(name, node.scope)) if name else None
                for name in node.inputs
            ]
            try:
                opset = self._model.opsets.get(node.domain, 1)
                outputs = evaluated(node, opset, inputs, self._folder)
            except Exception:  # an operator may raise anything for values that do not fit
                return None
            known.update(zip(((node.scope.path, name) for name in node.outputs), outputs,
                             strict=False))  # fmt: skip
        found = known.get(address)
        return np.asarray(found) if isinstance(found, np.ndarray | np.generic) else None


_OTHER_TYPES = frozenset(
    {
        onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING, onnx.TensorProto.BOOL,
        onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128,
    }
)  # fmt: skip
"""Elements without an order."""
_ROUNDING = ("output_dtype", "precision")
Stored = Callable[[int], "Array | None"]
"""Returns the constant input of a node at an index; None if it is not constant, or left out."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Numbers from `low` to `high`, and NaN, of a `dtype`; None if the graph does not tell."""

    low: float = -math.inf
    high: float = math.inf
    dtype: np.dtype[Any] | None = None

    @classmethod
    def of_type(cls, dtype: np.dtype[Any] | None) -> "ValueRange":
        """All numbers of a type."""
        if dtype is None or not quantization.is_integer(dtype):
            return cls(dtype=dtype)
        return cls(*integer_range(dtype), dtype)

    def union(self, other: "ValueRange") -> "ValueRange":
        """The least range that contains both."""
        return replace(self, low=min(self.low, other.low), high=max(self.high, other.high))

    def integer_ends(self, dtype: np.dtype[Any]) -> tuple[int, int]:
        """The ends of the range as integers of a type."""
        ends = self.clipped(*integer_range(dtype))
        return int(ends.low), int(ends.high)

    def clipped(self, low: float, high: float) -> "ValueRange":
        """The range after a Clip; where `low` is above `high`, all numbers become `high`."""
        least, most = (min(max(end, low), high) for end in (self.low, self.high))
        return ValueRange(least, most, self.dtype)


class ValueRanges:
    """The ranges of the tensors of one model."""

    def __init__(self, model: Model, stored: StoredValues) -> None:
        self._model = model
        self._stored = stored

    def of(self, name: str, scope: Scope) -> ValueRange:
        """The range of a tensor."""
        return self._ranges.of(name, scope)

    @cached_property
    def _ranges(self) -> "_Known":
        known = _Known(self._model, self._stored)
        for scope in self._model.scopes:
            given = [(v.name, v.type.tensor_type.elem_type) for v in scope.graph.input]
            given += [(tensor.name, tensor.data_type) for tensor in scope.graph.initializer]
            for name, kind in given:
                if kind not in _OTHER_TYPES:
                    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
                    known.ranges[scope.path, name] = ValueRange.of_type(dtype)
        for node in self._model.nodes:  # makers come first
            rule = _rounded if rounds_to_integers(node) else _RULES.get(node.standard_type)
            if rule is not None:
                made = rule(known, node)
                outputs = node.outputs if node.op_type == "Split" else node.outputs[:1]
                known.ranges.update(((node.scope.path, name), made) for name in outputs)
        return known


@dataclass(frozen=True, slots=True)
class _Known:
    """What rules read: the ranges so far, and constants."""

    model: Model
    stored: StoredValues
    ranges: dict[Address, ValueRange] = field(default_factory=dict)

    def of(self, name: str, scope: Scope) -> ValueRange:
        address = self.model.dataflow.address(name, scope)
        return self.ranges.get(address, ValueRange())

    def input(self, node: Node, index: int = 0) -> ValueRange:
        return self.of(node.inputs[index], node.scope)

    def constant(self, node: Node, index: int) -> Array | None:
        """The value of an input that is not left out; None where it is not constant."""
        return self.stored.value(node.inputs[index], node.scope)

    def zero_point(self, node: Node) -> Array | None:
        """The zero points (C) of a conversion; None if it has none, or they are not constant."""
        zero = self.constant(node, 2) if node.has_input(2) else None
        return None if zero is None else zero.reshape(-1)


_Rule = Callable[[_Known, Node], ValueRange]
MOVES = (
    "MaxPool", "GlobalMaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather",
    "Split", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "ReduceMax",
)  # fmt: skip
"""Operators whose elements are moved, left out, or separated by 0."""
_RULES = operators.RulesByOperator[_Rule]({
    "Relu": lambda known, node: known.input(node).clipped(0, math.inf),
    "Concat": lambda known, node: reduce(
        ValueRange.union, (known.of(name, node.scope) for name in node.inputs), known.input(node)
    ),
    **dict.fromkeys(
        ("Resize", "Upsample"),
        lambda known, node: known.input(node) if takes_nearest(node) else ValueRange(),
    ),
    **dict.fromkeys(("Identity", "Transpose", *MOVES), _Known.input),
})  # fmt: skip
"""How the range of an operator's output follows from the ranges of its inputs."""


def takes_nearest(node: Node) -> bool:
    """Whether Resize or Upsample repeats elements, and adds none."""
    attributes = {a.name: a.s for a in node.proto.attribute}
    crops = attributes.get("coordinate_transformation_mode") == b"tf_crop_and_resize"
    return attributes.get("mode", b"nearest") == b"nearest" and not crops


def integer_range(dtype: Any) -> tuple[int, int]:
    """The range of an integer type, including the 2- and 4-bit types of ml_dtypes."""
    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


@_RULES("Clip")
def _clipped(known: _Known, node: Node) -> ValueRange:
    """A limit that is not one constant number may move any number anywhere."""
    x = known.input(node)
    attributes = {a.name: a.f for a in node.proto.attribute}
    ends = [attributes.get("min", -math.inf), attributes.get("max", math.inf)]
    for index in range(1, len(node.inputs)):
        if node.inputs[index]:
            limit = known.constant(node, index)
            ends[index - 1] = _number(limit)
            x = x if limit is None else replace(x, dtype=limit.dtype)
    return ValueRange.of_type(x.dtype) if any(map(math.isnan, ends)) else x.clipped(*ends)


@_RULES("Pad")
def _padded(known: _Known, node: Node) -> ValueRange:
    """Padding is a number, or elements."""
    fill = next((a.f for a in node.proto.attribute if a.name == "value"), 0.0)
    if node.has_input(2):
        fill = _number(known.constant(node, 2))
    x = known.input(node)
    return ValueRange.of_type(x.dtype) if math.isnan(fill) else x.union(ValueRange(fill, fill))


@_RULES("QuantizeLinear")
def _quantized(known: _Known, node: Node) -> ValueRange:
    """The operator itself quantises the ends: it rounds as it will in a run."""
    x, scale, zero = known.input(node), known.constant(node, 1), known.zero_point(node)
    options = {a.name: a.i for a in node.proto.attribute if a.name in _ROUNDING}
    try:
        dtype = quantization.quantized_type(zero, options.get("output_dtype", 0))
        if (zero is None and node.has_input(2)) or not quantization.is_integer(dtype):
            return ValueRange()
        is_step = scale is not None and "float" in scale.dtype.name and scale.size > 0
        if scale is None or not is_step or not ((scale > 0) & np.isfinite(scale)).all():
            return ValueRange.of_type(dtype)
        wide = scale.dtype if x.dtype is None or quantization.is_integer(x.dtype) else x.dtype
        ends = _ends(x.low, x.high, wide, scale, zero)
        with np.errstate(all="ignore"):
            found = quantization.quantize_linear(ends, scale.reshape(-1), zero, axis=1, **options)
    except ModelError:  # a run tells at its own node
        return ValueRange()
    return _spanned(found, dtype)


@_RULES("DequantizeLinear")
def _dequantized(known: _Known, node: Node) -> ValueRange:
    """The operator itself dequantises the ends; a step may be negative."""
    x, scale, zero = known.input(node), known.constant(node, 1), known.zero_point(node)
    dtype = x.dtype if zero is None else zero.dtype
    if scale is None or dtype is None or not quantization.is_integer(dtype) or not scale.size:
        return ValueRange()
    if zero is None and node.has_input(2):
        return ValueRange()
    ends = _ends(*x.integer_ends(dtype), dtype, scale, zero)
    try:
        with np.errstate(all="ignore"):
            found = quantization.dequantize_linear(ends, scale.reshape(-1), zero, axis=1)
    except ModelError:  # a run tells at its own node
        return ValueRange()
    return ValueRange() if np.isnan(found).any() else _spanned(found, found.dtype)


def _rounded(known: _Known, node: Node) -> ValueRange:
    """One of QONNX's operators rounds the ends, and returns floats."""
    x = known.input(node)
    found = qonnx_integers(node, x.low, x.high, lambda index: known.constant(node, index))
    return ValueRange(dtype=x.dtype) if found is None else replace(
        x, low=found.least, high=found.most
    )  # fmt: skip


def _ends(low: float, high: float, dtype: np.dtype[Any], scale: Array, zero: Array | None) -> Array:
    """Both ends of a range (2, C) for C scales or zero points."""
    channels = max(scale.size, 1 if zero is None else zero.size)
    return np.repeat(np.array([[low], [high]], dtype), channels, axis=1)


def _spanned(found: Array, dtype: np.dtype[Any]) -> ValueRange:
    wide = found.astype(np.float64)
    return ValueRange(float(wide.min()), float(wide.max()), dtype)


def _number(value: Array | None) -> float:
    """NaN for a value that is not constant, or not one number."""
    return math.nan if value is None or value.size != 1 else float(value.item())


@dataclass(frozen=True, slots=True)
class RoundedIntegers:
    """Integers from `low` to `high`, minus their zero point, times `step`.

    `step` has the shape of the node's scale. `zero` is the zero point, None if it is not one
    number. `least` and `most` are the ends times the step.
    """

    low: int
    high: int
    step: Array
    zero: int | None
    least: float
    most: float


def rounds_to_integers(node: Node) -> bool:
    """Whether a node is one of QONNX's that return integers times a scale."""
    return node.domain == operators.QONNX_DOMAIN and node.op_type in operators.INTEGER_QUANTIZERS


def qonnx_integers(node: Node, low: float, high: float, stored: Stored) -> RoundedIntegers | None:
    """Returns the integers that a node makes of numbers from `low` to `high`.

    None where parameters are not stored or not positive, where the zero point is no integer, or
    where nothing clips numbers without ends.
    """
    parameters = [stored(index) for index in range(1, len(node.inputs))]
    given = [each for each in parameters if each is not None]
    attributes = values.attributes_of(node.proto)
    if len(given) < len(parameters) or not given:
        return None
    try:
        with np.errstate(all="ignore"):
            return _ENDS[node.op_type](low, high, given, attributes)
    except (ModelError, ValueError, IndexError, TypeError):  # a run tells at its own node
        return None


def stored_integers(node: Node, x: Array, stored: Stored) -> Array | None:
    """Returns the integers, int64, that Quant makes of stored numbers, minus its zero point."""
    given = [stored(index) for index in range(1, len(node.inputs))]
    parameters = [each for each in given if each is not None]
    if node.op_type not in ("Quant", "IntQuant") or len(parameters) < len(given):
        return None
    attributes = values.attributes_of(node.proto)
    try:
        integers = quant_integers(x, *parameters, **attributes)
    except (ModelError, ValueError, TypeError):  # a run tells at its own node
        return None
    return integers.astype(np.int64) if np.array_equal(integers, np.rint(integers)) else None


_ENDS = operators.RulesByOperator[Callable[..., RoundedIntegers | None]]({
    **dict.fromkeys(("Quant", "IntQuant"), lambda low, high, parameters, attributes: _checked(
        quant_integers(_both_ends(low, high, parameters), *parameters, **attributes),
        *parameters[:2],
    )),
    "BipolarQuant": lambda low, high, parameters, _: _checked(
        np.where(_both_ends(low, high, parameters) >= 0, np.float32(1), np.float32(-1)),
        parameters[0], np.zeros(1),
    ),
    "Trunc": lambda low, high, parameters, attributes: _checked(
        *trunc_integers(_both_ends(low, high, parameters), *parameters, **attributes)
    ),
})  # fmt: skip


@_ENDS("MultiThreshold")
def _of_thresholds(
    low: float, high: float, parameters: list[Array], attributes: dict[str, Any]
) -> RoundedIntegers | None:
    """Counts of thresholds times a scale, plus a bias that is a multiple of half the scale."""
    (thresholds,) = parameters
    scale, bias = (np.float32(attributes.get(f"out_{name}", value))
                   for name, value in (("scale", 1), ("bias", 0)))  # fmt: skip
    halves = 2 * bias / scale
    step = scale if halves % 2 == 0 else scale / 2
    counts = [np.sum(thresholds <= end, axis=-1) for end in (low, high)]
    integers = (scale * np.array([counts[0].min(), counts[1].max()]) + bias) / step
    return _checked(integers.astype(np.float32), np.asarray(step), np.zeros(1))


def _both_ends(low: float, high: float, parameters: list[Array]) -> Array:
    """Both ends, for each number that a parameter has: (2, …)."""
    shape = np.broadcast_shapes(*(each.shape for each in parameters))
    ends = np.array([low, high], np.float32).reshape(2, *(1 for _ in shape))
    return np.broadcast_to(ends, (2, *shape))


def _checked(integers: Array, step: Array, zero: Array) -> RoundedIntegers | None:
    """Returns the integers; None where they are none, or a step is not above 0."""
    is_whole = np.isfinite(integers).all() and np.array_equal(integers, np.rint(integers))
    if not is_whole or not (step > 0).all() or not np.isfinite(step).all() or not step.size:
        return None
    is_single = bool(zero.size) and zero.min() == zero.max()
    ends = integers * step.astype(np.float32)
    return RoundedIntegers(
        int(integers.min()), int(integers.max()), step.astype(np.float32),
        int(zero.flat[0]) if is_single else None, float(ends.min()), float(ends.max()),
    )  # fmt: skip
