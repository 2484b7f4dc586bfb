"""Which tensor of a quantised graph stands for which tensor of the float one."""

from __future__ import annotations

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
"""What onnxruntime.quantization appends to the name of a tensor."""

_CLIPPING = frozenset({"Relu", "Clip"})
"""Operators that the range of a quantised tensor makes superfluous."""


@dataclass(frozen=True, slots=True)
class Twin:
    """A tensor of the quantised graph: that of `original`, times `scale` if it is integers."""

    original: str
    scale: Array | None = None
    zero_point: Array | None = None

    def real(self, value: Array) -> Array:
        """float32 values of the tensor."""
        if self.scale is None:
            return value
        return dequantize_linear(value, self.scale, self.zero_point)


def twins(prepared: onnx.ModelProto, quantized: onnx.ModelProto) -> dict[str, Twin]:
    """The twin that each tensor of the quantised graph is, by the name it has there.

    An activation function that is gone from the quantised graph is part of the node before it.
    """
    made = {name: node for node in quantized.graph.node for name in node.output}
    stored = {w.name: w for w in quantized.graph.initializer}
    names = [value.name for value in prepared.graph.input]
    names += [name for node in prepared.graph.node for name in node.output]
    found: dict[str, Twin] = {}
    for name in names:
        if name + _DEQUANTIZED in made:
            found[name + _DEQUANTIZED] = Twin(name)
        elif name + _QUANTIZED in made:
            scale, zero = _parameters(name + _QUANTIZED, made, stored)
            if scale is not None:
                found[name + _QUANTIZED] = Twin(_clipped(name, prepared, quantized), scale, zero)
        elif name in made:
            found[name] = Twin(name)
    return found


def measured(name: str, known: Mapping[str, Twin]) -> str | None:
    """The tensor that has a twin and carries what a node reads or writes as `name`."""
    base = name.removesuffix(_BEFORE)
    return next((n for n in (base + _DEQUANTIZED, name, base) if n in known), None)


def _parameters(
    name: str, made: Mapping[str, onnx.NodeProto], stored: Mapping[str, onnx.TensorProto]
) -> tuple[Array | None, Array | None]:
    """Scale and zero point; a node that only moves elements leaves those of its input."""
    while name in made:
        base = name.removesuffix(_QUANTIZED)
        if f"{base}_scale" in stored:
            zero = stored.get(f"{base}_zero_point")
            scale = onnx.numpy_helper.to_array(stored[f"{base}_scale"])
            return scale, None if zero is None else onnx.numpy_helper.to_array(zero)
        name = made[name].input[0]
    return None, None


def _clipped(name: str, prepared: onnx.ModelProto, quantized: onnx.ModelProto) -> str:
    left = {node.name for node in quantized.graph.node}
    for node in prepared.graph.node:
        if node.op_type in _CLIPPING and node.input[0] == name and node.name not in left:
            return str(node.output[0])
    return name
