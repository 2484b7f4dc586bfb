"""Converts QDQ graphs to QONNX: QuantizeLinear, Clip and DequantizeLinear become one Quant.

The number of bits is the least that holds what the graph lets through: a Clip of integers or of
floats, and stored weights, may need fewer than their type has. FINN, hls4ml and qonnx read it.

Quant adds the zero point before it rounds, QuantizeLinear afterwards. So halves round to another
integer where the zero point is odd.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tracer.accumulators.engine.value_ranges import StoredValues, ValueRanges
from tracer.errors import ModelError
from tracer.graph import loading, operators
from tracer.graph.model import Scope
from tracer.graph.operators import integer_attribute
from tracer.interpreter.ops.quantization import is_integer
from tracer.quantization.graph_editor import GraphEditor
from tracer.support.types import Array

_VERSION = 1
"""The version of QONNX's domain; Quant is the same in all."""
_LEAST_SIGNED_BITS = 2
"""A signed Quant of one bit has the numbers -1 and 1."""


def to_qonnx(proto: onnx.ModelProto, name: str = "the model") -> onnx.ModelProto:
    """Returns a copy of a model in QDQ form with Quant in place of conversions.

    What has no such form stays as it is: integers that other operators read, scales that are
    computed or of blocks, types other than float32. `left_conversions` names these nodes. Weights
    are in the protobuf. Raises ModelError, with the `name` of the model, where no conversion
    becomes a Quant.
    """
    graph = GraphEditor(proto)
    converter = _Converter(graph, name)
    nodes = graph.nodes("DequantizeLinear")
    converted = [node for node in nodes if converter.convert(node)]
    if not converted:
        raise ModelError(
            f"{name} has no DequantizeLinear that is a Quant of QONNX",
            "Quantise it with `tracer quantize --format qdq` first.",
        )
    graph.prune()
    if operators.QONNX_DOMAIN not in {entry.domain for entry in graph.proto.opset_import}:
        graph.proto.opset_import.add(domain=operators.QONNX_DOMAIN, version=_VERSION)
    return graph.proto


def left_conversions(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Returns the names of conversions of the main graph that did not become a Quant."""
    conversions = ("QuantizeLinear", "DequantizeLinear")
    return tuple(node.name for node in proto.graph.node if node.op_type in conversions)


@dataclass(frozen=True, slots=True)
class _Integers:
    """Integers from `low` to `high` before DequantizeLinear, and their smallest Quant."""

    low: int
    high: int
    signed: bool

    @property
    def bits(self) -> int:
        if not self.signed:
            return max(1, self.high.bit_length())
        magnitude = max(-self.low - 1, self.high, 0)
        return max(_LEAST_SIGNED_BITS, magnitude.bit_length() + 1)

    @property
    def narrow(self) -> bool:
        """Whether the least signed number is never reached."""
        return self.signed and self.low > -(1 << self.bits - 1)

    @property
    def are_all(self) -> bool:
        """Whether these are all integers of the Quant, so that it clips as the graph does."""
        if not self.signed:
            return self.low == 0 and self.high == (1 << self.bits) - 1
        half = 1 << self.bits - 1
        return self.low == -half + self.narrow and self.high == half - 1


class _Converter:
    """Converts the nodes of one graph."""

    def __init__(self, graph: GraphEditor, name: str) -> None:
        self._graph = graph
        model = loading.from_proto(graph.proto, name)
        self._scope = Scope(model.graph, path=model.root)
        self._stored = StoredValues(model)
        self._ranges = ValueRanges(model, self._stored)
        inferred = onnx.shape_inference.infer_shapes(graph.proto).graph
        values = (*inferred.input, *inferred.value_info, *inferred.output)
        self._ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in values
                       if value.type.tensor_type.HasField("shape")}  # fmt: skip
        self._ranks |= {tensor.name: len(tensor.dims) for tensor in inferred.initializer}

    def convert(self, node: onnx.NodeProto) -> bool:
        """Makes a DequantizeLinear a Quant. Returns whether that can be."""
        scale, zero = self._value(node, 1), self._value(node, 2)
        if scale is None or scale.dtype != np.float32 or integer_attribute(node, "block_size"):
            return False
        if zero is None and len(node.input) > 2 and node.input[2]:
            return False
        stored = self._graph.stored(node.input[0])
        if stored is None:
            return self._convert_pair(node, scale, zero)
        if not is_integer(stored.dtype):
            return False
        integers = _Integers(
            int(stored.min(initial=0)), int(stored.max(initial=0)), _is_signed(stored.dtype)
        )
        rank, axis = stored.ndim, integer_attribute(node, "axis", 1)
        step = _spread(scale, rank, axis)
        shift = np.zeros((), np.float32) if zero is None else _spread(zero, rank, axis)
        real = (stored.astype(np.float64) - shift) * step
        name = self._graph.constant(node, "floats", real.astype(np.float32))
        self._become_quant(node, name, step, shift, integers)
        return True

    def _convert_pair(self, node: onnx.NodeProto, scale: Array, zero: Array | None) -> bool:
        """Follows the integers back to a QuantizeLinear with the same scale and zero point."""
        maker, clips = self._graph.producer(node.input[0]), False
        if maker is not None and maker.op_type == "Clip":
            maker, clips = self._graph.producer(maker.input[0]), True
        if maker is None or maker.op_type != "QuantizeLinear" or not self._is_same(maker, node):
            return False
        known = self._ranges.of(node.input[0], self._scope)
        if known.dtype is None or not is_integer(known.dtype):
            return False
        integers = _Integers(*known.integer_ends(known.dtype), _is_signed(known.dtype))
        rank = None if scale.size == 1 else self._ranks.get(maker.input[0])
        if scale.size > 1 and (rank is None or (clips and not integers.are_all)):
            return False
        axis = integer_attribute(node, "axis", 1)
        step = _spread(scale, rank or 0, axis)
        shift = np.zeros((), np.float32) if zero is None else _spread(zero, rank or 0, axis)
        name = maker.input[0]
        if integers.are_all:  # what the Quant clips itself, no node before it does
            before = self._graph.producer(name)
            name = before.input[0] if before is not None and before.op_type == "Clip" else name
        elif clips:
            low, high = (
                ((np.float32(end) - shift) * step).reshape(()).astype(np.float32)
                for end in (integers.low, integers.high)
            )
            name = self._graph.clipped(node, name, low, high)
        self._become_quant(node, name, step, shift, integers)
        return True

    def _become_quant(
        self, node: onnx.NodeProto, name: str, step: Array, shift: Array, integers: _Integers
    ) -> None:
        bits = np.asarray(integers.bits, np.float32)
        constants = {"scale": step, "zeropt": shift, "bitwidth": bits}
        names = [self._graph.constant(node, part, each) for part, each in constants.items()]
        del node.input[:], node.attribute[:]
        node.input.extend([name, *names])
        node.op_type, node.domain = "Quant", operators.QONNX_DOMAIN
        for name, value in (("signed", integers.signed), ("narrow", integers.narrow)):
            node.attribute.append(onnx.helper.make_attribute(name, int(value)))
        node.attribute.append(onnx.helper.make_attribute("rounding_mode", "ROUND"))

    def _is_same(self, quantize: onnx.NodeProto, node: onnx.NodeProto) -> bool:
        """Whether both convert with one scale and zero point for the same slices."""
        if integer_attribute(quantize, "axis", 1) != integer_attribute(node, "axis", 1):
            scale = self._value(node, 1)
            if scale is not None and scale.size > 1:
                return False
        if any(integer_attribute(quantize, each) for each in ("block_size", "precision")):
            return False
        pairs = ((self._value(quantize, index), self._value(node, index)) for index in (1, 2))
        return all(
            theirs is None if own is None else theirs is not None and np.array_equal(own, theirs)
            for own, theirs in pairs
        )

    def _value(self, node: onnx.NodeProto, index: int) -> Array | None:
        if len(node.input) <= index or not node.input[index]:
            return None
        return self._stored.value(node.input[index], self._scope)


def _spread(parameter: Array, rank: int, axis: int) -> Array:
    """A scale or zero point, float32, that fits a tensor by numpy's rules; 0 once for all."""
    if parameter.size == 1 or not parameter.any():
        return parameter.reshape(-1)[:1].reshape(()).astype(np.float32)
    shape = [1] * rank
    shape[axis] = -1
    return parameter.reshape(shape).astype(np.float32)


def _is_signed(dtype: Any) -> bool:
    return not np.dtype(dtype).name.startswith("uint")
