"""Maps the tensors of a quantised graph to the tensors of the float graph they represent."""

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from tracer.interpreter.ops.quantization import dequantize_linear
from tracer.support.types import Array

_DEQUANTIZED, _QUANTIZED, _BEFORE = (
    "_DequantizeLinear_Output",
    "_quantized",
    "_QuantizeLinear_Input",
)
"""Suffixes that onnxruntime.quantization appends to the name of a tensor."""

_CLIPPING = frozenset({"Relu", "Clip"})
"""Operators that the range of a quantised tensor can replace."""


@dataclass(frozen=True, slots=True)
class Twin:
    """A tensor of the quantised graph that represents `original`; integers have a `scale`."""

    original: str
    scale: Array | None = None
    zero_point: Array | None = None

    def real(self, value: Array) -> Array:
        """Returns the float32 values of the tensor."""
        if self.scale is None:
            return value
        return dequantize_linear(value, self.scale, self.zero_point)


def twins(prepared: onnx.ModelProto, quantized: onnx.ModelProto) -> dict[str, Twin]:
    """Returns the twins by their names in the quantised graph.

    An activation function that the quantised graph lacks is part of the node before it.
    """
    producers = {name: node for node in quantized.graph.node for name in node.output}
    stored = {w.name: w for w in quantized.graph.initializer}
    names = [value.name for value in prepared.graph.input]
    names += [name for node in prepared.graph.node for name in node.output]
    by_name: dict[str, Twin] = {}
    for name in names:
        if name + _DEQUANTIZED in producers:
            by_name[name + _DEQUANTIZED] = Twin(name)
        elif name + _QUANTIZED in producers:
            scale, zero = _parameters(name + _QUANTIZED, producers, stored)
            if scale is not None:
                by_name[name + _QUANTIZED] = Twin(_clipped(name, prepared, quantized), scale, zero)
        elif name in producers:
            by_name[name] = Twin(name)
    return by_name


def measured(name: str, twins_by_name: Mapping[str, Twin]) -> str | None:
    """Returns the name of the twin that has the values of the tensor `name`."""
    base = name.removesuffix(_BEFORE)
    forms = (base + _DEQUANTIZED, name, base, base + _QUANTIZED)
    return next((each for each in forms if each in twins_by_name), None)


def _parameters(
    name: str, producers: Mapping[str, onnx.NodeProto], stored: Mapping[str, onnx.TensorProto]
) -> tuple[Array | None, Array | None]:
    """Scale and zero point; a node that only moves elements has those of its input."""
    while name in producers:
        base = name.removesuffix(_QUANTIZED)
        if f"{base}_scale" in stored:
            zero = stored.get(f"{base}_zero_point")
            scale = onnx.numpy_helper.to_array(stored[f"{base}_scale"])
            return scale, None if zero is None else onnx.numpy_helper.to_array(zero)
        name = producers[name].input[0]
    return None, None


def _clipped(name: str, prepared: onnx.ModelProto, quantized: onnx.ModelProto) -> str:
    remaining = {node.name for node in quantized.graph.node}
    for node in prepared.graph.node:
        if node.op_type in _CLIPPING and node.input[0] == name and node.name not in remaining:
            return str(node.output[0])
    return name
