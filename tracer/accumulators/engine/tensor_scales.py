"""Which float tensors are whole multiples of a step, and of which: what DequantizeLinear began.

Quantised graphs in QDQ form compute in floats. A tensor that comes from DequantizeLinear, through
nothing that mixes its elements, is an integer tensor times a scale, and the sums over it are sums
of integers times scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from tracer.graph.model import Model, Node, Scope
from tracer.interpreter import values
from tracer.interpreter.numeric import compiled_quantization
from tracer.interpreter.numeric.axes import nonnegative_axis
from tracer.interpreter.numeric.elementwise import apply
from tracer.interpreter.ops.quantization import aligned
from tracer.support.types import Array

_SPARE = 2
"""Bits of a float's precision that an integer leaves free if it is to survive a scale."""
_MOST_PRECISE = 22
"""Bits of precision relied on: integers are recovered in float32."""


@dataclass(frozen=True, slots=True)
class TensorScale:
    """A tensor is an integer tensor, of values from `low` to `high`, times `scale`.

    `scale`, float32, is one number, or one for each slice of `axis`; `precision` are the
    significant bits of the float type of the tensor; `rank` is how many axes there are, if the
    graph tells. `zero` is the zero point, None where it is not one number.
    """

    scale: Array
    axis: int
    low: int
    high: int
    precision: int
    rank: int | None = None
    zero: int | None = 0

    @property
    def recoverable(self) -> bool:
        """Whether the tensor's values tell their integers exactly, divided by the scale."""
        exact = 1 << (min(self.precision, _MOST_PRECISE) - _SPARE)
        return self.low >= -exact and self.high <= exact

    def along(self, axis: int) -> bool:
        """Whether `axis` is the one that the scale varies along."""
        if self.rank is None:
            return axis == self.axis
        return nonnegative_axis(axis, self.rank) == nonnegative_axis(self.axis, self.rank)

    def integers(self, tensor: Array) -> Array:
        """The integers of a float tensor, int16 where they fit, else int32."""
        small = self.low >= -(1 << 15) and self.high < 1 << 15
        if small and tensor.dtype == np.float32 and self.scale.size == 1:
            return compiled_quantization.quantize(tensor, self.scale, None, np.dtype(np.int16))

        def compute(x: Array, scale: Array, out: Array) -> None:
            out[...] = np.rint(x / scale)

        wanted = np.dtype(np.int16 if small else np.int32)
        return apply(compute, tensor, aligned(self.scale, tensor, self.axis, 0), dtype=wanted)


class TensorScales:
    """The units of the tensors of one model, found by walking back to where they were made."""

    def __init__(self, model: Model) -> None:
        self._folder = model.path.parent if model.path is not None else None
        self._makers = {
            (node.scope.path, name): node for node in model.nodes for name in node.outputs
        }
        self._stored = {
            (scope.path, tensor.name): tensor
            for scope in model.scopes
            for tensor in scope.graph.initializer
        }

    def of(self, name: str, scope: Scope) -> TensorScale | None:
        """The unit of a tensor, if it has one that the graph tells."""
        maker = self._maker(name, scope)
        rule = _RULES.get(maker.op_type) if maker is not None and not maker.domain else None
        return rule(self, maker) if rule is not None and maker is not None else None

    def constant(self, name: str, scope: Scope) -> bool:
        """Whether a tensor is the same in every run."""
        if self._tensor(name, scope) is not None:
            return True
        maker = self._maker(name, scope)
        if maker is None or maker.op_type not in {*_RULES, "QuantizeLinear", "Cast"}:
            return False
        return all(self.constant(n, maker.scope) for n in maker.inputs if n)

    def value(self, name: str, scope: Scope) -> Array | None:
        """The stored tensor of this name, or that of a Constant node; None if there is none."""
        stored = self._tensor(name, scope)
        return None if stored is None else values.from_tensor(stored, self._folder)

    def stored_integers(self, name: str, scope: Scope) -> Array | None:
        """The integers, int64, of a tensor that DequantizeLinear makes of stored ones."""
        maker = self._maker(name, scope)
        if maker is None or maker.op_type != "DequantizeLinear":
            return None
        stored = self.value(maker.inputs[0], maker.scope)
        if stored is None:
            return None
        wide = stored.astype(np.int64)
        zero = self._zero_point(maker)
        return wide if zero is None else wide - aligned(zero, wide, _axis(maker), 0)

    def _zero_point(self, node: Node) -> Array | None:
        named = len(node.inputs) > 2 and node.inputs[2]
        zero = self.value(node.inputs[2], node.scope) if named else None
        return None if zero is None else zero.astype(np.int64)

    def _maker(self, name: str, scope: Scope) -> Node | None:
        found = (self._makers.get((around.path, name)) for around in scope.outward())
        return next(filter(None, found), None)

    def _tensor(self, name: str, scope: Scope) -> onnx.TensorProto | None:
        for around in scope.outward():
            if (around.path, name) in self._stored:
                return self._stored[around.path, name]
        maker = self._maker(name, scope)
        if maker is None or maker.op_type != "Constant":
            return None
        return next((a.t for a in maker.proto.attribute if a.name == "value"), None)

    def dequantized(self, node: Node) -> TensorScale | None:
        """The unit that DequantizeLinear gives its output, where scale and type are stored."""
        scale = self.value(node.inputs[1], node.scope)
        limits = self._limits(node)
        blocked = any(a.name == "block_size" and a.i for a in node.proto.attribute)
        if scale is None or limits is None or blocked or not np.all(scale > 0):
            return None
        stored = self._tensor(node.inputs[0], node.scope)
        rank = None if stored is None else len(stored.dims)
        zero = self._zero_point(node)
        alike = zero is None or zero.min() == zero.max()
        one = (0 if zero is None else int(zero.flat[0])) if alike else None
        precision = _precision(scale.dtype)
        return TensorScale(scale.astype(np.float32), _axis(node), *limits, precision, rank, one)

    def _limits(self, node: Node) -> tuple[int, int] | None:
        """The least and the greatest integer after the zero point is taken off."""
        zero = None
        if len(node.inputs) > 2 and node.inputs[2]:
            zero = self.value(node.inputs[2], node.scope)
            if zero is None:
                return None
        dtype = self._type(node.inputs[0], node.scope) if zero is None else zero.dtype
        if dtype is None:
            return None
        low, high = integer_range(dtype)
        ends = self._clipped(node)
        around = np.zeros(1, np.int64) if zero is None else zero.astype(np.int64)
        whole = low - int(around.max()), high - int(around.min())
        return int(np.clip(ends[0], *whole)), int(np.clip(ends[1], *whole))

    def _clipped(self, node: Node) -> tuple[float, float]:
        """Where a Clip before QuantizeLinear ends the integers, the zero point taken off."""
        quantizer = self._maker(node.inputs[0], node.scope)
        if quantizer is None or quantizer.op_type != "QuantizeLinear":
            return -math.inf, math.inf
        clip = self._maker(quantizer.inputs[0], quantizer.scope)
        scale = self.value(quantizer.inputs[1], quantizer.scope)
        if clip is None or clip.op_type != "Clip" or scale is None or scale.size > 1:
            return -math.inf, math.inf
        ends = [-math.inf, math.inf]
        for end, name in enumerate(clip.inputs[1:]):
            bound = self.value(name, clip.scope) if name else None
            if bound is not None:
                ends[end] = int(np.rint(bound.reshape(()) / scale.reshape(())))
        return ends[0], ends[1]

    def _type(self, name: str, scope: Scope) -> Any:
        """The type of a quantised tensor: as stored or declared, else QuantizeLinear's own."""
        stored = self._tensor(name, scope)
        if stored is not None:
            return values.from_tensor(stored).dtype
        maker = self._maker(name, scope)
        kind = _declared(name, scope) if maker is None else _quantizers_own(maker)
        return onnx.helper.tensor_dtype_to_np_dtype(kind) if kind else None


def integer_range(dtype: Any) -> tuple[int, int]:
    """What an integer type holds, the 2- and 4-bit ones of ml_dtypes too."""
    info: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def _precision(dtype: Any) -> int:
    """Significant bits of a float type, the one in front of the point too."""
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.nmant) + 1


def _declared(name: str, scope: Scope) -> int:
    """The ONNX type of the nearest graph input of this name; 0 if there is none."""
    inputs = (value for around in scope.outward() for value in around.graph.input)
    return next((v.type.tensor_type.elem_type for v in inputs if v.name == name), 0)


def _quantizers_own(node: Node) -> int:
    """The ONNX type that QuantizeLinear without zero point makes; 0 for another node."""
    if node.op_type != "QuantizeLinear" or len(node.inputs) > 2:
        return 0
    asked = next((a.i for a in node.proto.attribute if a.name == "output_dtype"), 0)
    return asked or onnx.TensorProto.UINT8


def _axis(node: Node) -> int:
    return next((a.i for a in node.proto.attribute if a.name == "axis"), 1)


_Rule = Callable[[TensorScales, Node], "TensorScale | None"]


def _same(units: TensorScales, node: Node) -> TensorScale | None:
    """Elements are moved or left out, or 0 is put between them: one scale stays one scale."""
    unit = units.of(node.inputs[0], node.scope)
    if unit is None or unit.scale.size > 1:
        return None
    return replace(unit, low=min(unit.low, 0), high=max(unit.high, 0))


def _positive(units: TensorScales, node: Node) -> TensorScale | None:
    unit = units.of(node.inputs[0], node.scope)
    return None if unit is None else replace(unit, low=max(unit.low, 0), high=max(unit.high, 0))


def _identity(units: TensorScales, node: Node) -> TensorScale | None:
    return units.of(node.inputs[0], node.scope)


def _transposed(units: TensorScales, node: Node) -> TensorScale | None:
    unit = units.of(node.inputs[0], node.scope)
    order = next((list(a.ints) for a in node.proto.attribute if a.name == "perm"), None)
    if unit is None or unit.scale.size == 1:
        return unit
    if order is None:
        return None
    axis = order.index(nonnegative_axis(unit.axis, len(order)))
    return replace(unit, axis=axis, rank=len(order))


def _padded(units: TensorScales, node: Node) -> TensorScale | None:
    """Padding with zeros, or with elements."""
    given = units.value(node.inputs[2], node.scope) if len(node.inputs) > 2 else np.zeros(1)
    filled = given is not None and not np.any(given)
    return _same(units, node) if filled and "pads" not in _attributes(node) else None


def _joined(units: TensorScales, node: Node) -> TensorScale | None:
    """One unit if all inputs have the same scale."""
    found = [units.of(name, node.scope) for name in node.inputs]
    known = [unit for unit in found if unit is not None and unit.scale.size == 1]
    if len(known) < len(found) or len({float(unit.scale.reshape(())) for unit in known}) > 1:
        return None
    return replace(known[0], low=min(u.low for u in known), high=max(u.high for u in known))


def _attributes(node: Node) -> set[str]:
    return {attribute.name for attribute in node.proto.attribute}


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
        _same,
    ),
}  # fmt: skip
"""How the unit of an operator's output follows from those of its inputs."""
