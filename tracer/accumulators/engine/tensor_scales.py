"""Finds float tensors that are integers times a step, by walking back to DequantizeLinear.

Quantised graphs in QDQ form compute in floats. A tensor that comes from DequantizeLinear, through
operators that do not mix its elements, is an integer tensor times a step. Sums over such tensors
are sums of integers times steps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from tracer.errors import ModelError
from tracer.graph.model import Model, Node, Scope
from tracer.interpreter import values
from tracer.interpreter.numeric import compiled_quantization
from tracer.interpreter.numeric.axes import nonnegative_axis
from tracer.interpreter.numeric.elementwise import apply
from tracer.interpreter.ops.quantization import aligned
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
    """

    step: Array
    axis: int
    low: int
    high: int
    precision: int
    rank: int | None = None
    zero: int | None = 0

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
            return compiled_quantization.quantize(tensor, self.step, None, np.dtype(np.int16))

        def compute(x: Array, step: Array, out: Array) -> None:
            out[...] = np.rint(x / step)

        dtype = np.dtype(np.int16 if small else np.int32)
        return apply(compute, tensor, aligned(self.step, tensor, self.axis, 0), dtype=dtype)


class TensorScales:
    """The scales of the tensors of one model."""

    def __init__(self, model: Model) -> None:
        self._folder = model.path.parent if model.path is not None else None
        self._producers = {
            (node.scope.path, name): node for node in model.nodes for name in node.outputs
        }
        self._initializers = {
            (scope.path, tensor.name): tensor
            for scope in model.scopes
            for tensor in scope.graph.initializer
        }

    def of(self, name: str, scope: Scope) -> TensorScale | None:
        """The scale of a tensor; None if the graph does not tell."""
        producer = self._producer(name, scope)
        if producer is None or producer.domain or producer.op_type not in _RULES:
            return None
        return _RULES[producer.op_type](self, producer)

    def constant(self, name: str, scope: Scope) -> bool:
        """Whether a tensor is equal in every run."""
        if self._stored_tensor(name, scope) is not None:
            return True
        producer = self._producer(name, scope)
        if producer is None or producer.op_type not in {*_RULES, "QuantizeLinear", "Cast"}:
            return False
        return all(self.constant(n, producer.scope) for n in producer.inputs if n)

    def value(self, name: str, scope: Scope) -> Array | None:
        """The value of an initializer or a Constant node; None for other tensors."""
        stored = self._stored_tensor(name, scope)
        return None if stored is None else values.from_tensor(stored, self._folder)

    def stored_integers(self, name: str, scope: Scope) -> Array | None:
        """The integers, int64, of a dequantised initializer; None for other tensors.

        A zero point that does not fit is told by the run, at its own node.
        """
        producer = self._producer(name, scope)
        if producer is None or producer.op_type != "DequantizeLinear":
            return None
        stored = self.value(producer.inputs[0], producer.scope)
        if stored is None:
            return None
        wide, zero = stored.astype(np.int64), self._zero_point(producer)
        try:
            return wide if zero is None else wide - aligned(zero, wide, _axis(producer), 0)
        except ModelError:
            return None

    def dequantized(self, node: Node) -> TensorScale | None:
        """The scale of the output of DequantizeLinear, if its scale and type are stored."""
        step = self.value(node.inputs[1], node.scope)
        limits = self._limits(node)
        if step is None or limits is None or _attribute(node, "block_size"):
            return None
        if not step.size or not (step > 0).all():
            return None
        stored = self._stored_tensor(node.inputs[0], node.scope)
        rank = None if stored is None else len(stored.dims)
        zero = self._zero_point(node)
        zero = np.zeros(1, np.int64) if zero is None else zero
        single_zero = int(zero.flat[0]) if zero.min() == zero.max() else None
        precision = _precision(step.dtype)
        return TensorScale(
            step.astype(np.float32), _axis(node), *limits, precision, rank, single_zero
        )

    def _zero_point(self, node: Node) -> Array | None:
        """The stored zero point, int64."""
        zero = self.value(node.inputs[2], node.scope) if _has_zero_point(node) else None
        return None if zero is None else zero.astype(np.int64)

    def _producer(self, name: str, scope: Scope) -> Node | None:
        nodes = (self._producers.get((outer.path, name)) for outer in scope.outward())
        return next(filter(None, nodes), None)

    def _stored_tensor(self, name: str, scope: Scope) -> onnx.TensorProto | None:
        for outer in scope.outward():
            if (outer.path, name) in self._initializers:
                return self._initializers[outer.path, name]
        producer = self._producer(name, scope)
        if producer is None or producer.op_type != "Constant":
            return None
        return next((a.t for a in producer.proto.attribute if a.name == "value"), None)

    def _limits(self, node: Node) -> tuple[int, int] | None:
        """The least and the greatest integer minus the zero point."""
        zero = self.value(node.inputs[2], node.scope) if _has_zero_point(node) else None
        if zero is None and _has_zero_point(node):
            return None
        dtype = self._quantized_type(node.inputs[0], node.scope) if zero is None else zero.dtype
        if dtype is None or "int" not in dtype.name:  # float8 is no integers
            return None
        low, high = integer_range(dtype)
        zeros = np.zeros(1, np.int64) if zero is None else zero.astype(np.int64)
        if not zeros.size:
            return None
        widest = low - int(zeros.max()), high - int(zeros.min())
        least, most = self._clipped_range(node)
        return int(np.clip(least, *widest)), int(np.clip(most, *widest))

    def _clipped_range(self, node: Node) -> tuple[float, float]:
        """The range of the integers, minus the zero point, after a Clip before QuantizeLinear."""
        quantizer = self._producer(node.inputs[0], node.scope)
        if quantizer is None or quantizer.op_type != "QuantizeLinear":
            return -math.inf, math.inf
        clip = self._producer(quantizer.inputs[0], quantizer.scope)
        step = self.value(quantizer.inputs[1], quantizer.scope)
        if clip is None or clip.op_type != "Clip" or step is None or step.size > 1:
            return -math.inf, math.inf
        ends = [-math.inf, math.inf]
        for end, name in enumerate(clip.inputs[1:]):
            bound = self.value(name, clip.scope) if name else None
            if bound is not None:
                ends[end] = int(np.rint(bound.reshape(()) / step.reshape(())))
        return ends[0], ends[1]

    def _quantized_type(self, name: str, scope: Scope) -> Any:
        """The type of a quantised tensor: stored, declared, or that of QuantizeLinear."""
        stored = self._stored_tensor(name, scope)
        if stored is not None:
            return values.from_tensor(stored, self._folder).dtype
        producer = self._producer(name, scope)
        kind = _declared(name, scope) if producer is None else _quantizer_type(producer)
        return onnx.helper.tensor_dtype_to_np_dtype(kind) if kind else None


def integer_range(dtype: Any) -> tuple[int, int]:
    """The range of an integer type, including the 2- and 4-bit types of ml_dtypes."""
    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def _precision(dtype: Any) -> int:
    """Significant bits of a float type, including the one in front of the point."""
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.nmant) + 1


def _declared(name: str, scope: Scope) -> int:
    """The ONNX type of the nearest graph input of this name; 0 if there is none."""
    inputs = (value for outer in scope.outward() for value in outer.graph.input)
    return next((v.type.tensor_type.elem_type for v in inputs if v.name == name), 0)


def _quantizer_type(node: Node) -> int:
    """The ONNX type of the output of QuantizeLinear without zero point; 0 for other nodes."""
    if node.op_type != "QuantizeLinear" or len(node.inputs) > 2:
        return 0
    return _attribute(node, "output_dtype") or onnx.TensorProto.UINT8


def _has_zero_point(node: Node) -> bool:
    return len(node.inputs) > 2 and bool(node.inputs[2])


def _axis(node: Node) -> int:
    return _attribute(node, "axis", 1)


def _attribute(node: Node, name: str, default: int = 0) -> int:
    return next((a.i for a in node.proto.attribute if a.name == name), default)


_Rule = Callable[[TensorScales, Node], "TensorScale | None"]


def _rearranged(scales: TensorScales, node: Node) -> TensorScale | None:
    """Elements are moved, left out, or separated by 0: the single step stays."""
    scale = scales.of(node.inputs[0], node.scope)
    if scale is None or scale.step.size > 1:
        return None
    return replace(scale, low=min(scale.low, 0), high=max(scale.high, 0))


def _positive(scales: TensorScales, node: Node) -> TensorScale | None:
    scale = scales.of(node.inputs[0], node.scope)
    return None if scale is None else replace(scale, low=max(scale.low, 0), high=max(scale.high, 0))


def _identity(scales: TensorScales, node: Node) -> TensorScale | None:
    return scales.of(node.inputs[0], node.scope)


def _transposed(scales: TensorScales, node: Node) -> TensorScale | None:
    scale = scales.of(node.inputs[0], node.scope)
    order = next((list(a.ints) for a in node.proto.attribute if a.name == "perm"), None)
    if scale is None or scale.step.size == 1:
        return scale
    if order is None:
        return None
    axis = order.index(nonnegative_axis(scale.axis, len(order)))
    return replace(scale, axis=axis, rank=len(order))


def _padded(scales: TensorScales, node: Node) -> TensorScale | None:
    """Padding with zeros or with elements."""
    fill = scales.value(node.inputs[2], node.scope) if len(node.inputs) > 2 else np.zeros(1)
    if fill is None or np.any(fill) or any(a.name == "pads" for a in node.proto.attribute):
        return None
    return _rearranged(scales, node)


def _joined(scales: TensorScales, node: Node) -> TensorScale | None:
    """One scale if all inputs have the same step."""
    parts = [scale for name in node.inputs if (scale := scales.of(name, node.scope)) is not None]
    steps = {float(step) for scale in parts for step in scale.step.reshape(-1)}
    if len(parts) < len(node.inputs) or len(steps) > 1 or any(s.step.size != 1 for s in parts):
        return None
    return replace(parts[0], low=min(s.low for s in parts), high=max(s.high for s in parts))


_RULES: dict[str, _Rule] = {
    "DequantizeLinear": TensorScales.dequantized,
    "Identity": _identity,
    "Relu": _positive,
    "Transpose": _transposed,
    "Pad": _padded,
    "Concat": _joined,
    **dict.fromkeys(
        ("MaxPool", "GlobalMaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice",
         "Gather", "Split", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "ReduceMax"),
        _rearranged,
    ),
}  # fmt: skip
"""How the scale of an operator's output follows from the scales of its inputs."""

ELEMENTS_KEPT = frozenset(_RULES) - {"DequantizeLinear"}
"""Operators that move integers, or leave some of them out, and compute no others."""
