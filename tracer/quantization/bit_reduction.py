"""Reduces weights and activations of a quantised graph to fewer bits than their types have.

The graph stays plain ONNX: a number of N bits is an integer of the same type (int8, uint8 …) on a
coarser grid of 2^N steps.

- Weights are rounded again: to -(2^(N-1) - 1) … 2^(N-1) - 1 with the zero point at 0, or to
  0 … 2^N - 1 for unsigned types. The scale grows so that it covers the largest value of a channel.
- The scale of an activation grows so that 2^N steps span the calibrated range. A Clip before its
  QuantizeLinear limits the range, as an N-bit type would.
- The bias of a convolution or Gemm gets the scale of the sums it is added to.

`tracer.accumulators` reads the Clip to bound sums by N bits. Rounding 8-bit weights again adds at
most half an 8-bit step to the error of N bits; start from 16-bit weights where that matters.
"""

from typing import Any

import numpy as np
import onnx

from tracer.accumulators.engine.value_ranges import integer_range
from tracer.errors import ModelError, UsageError
from tracer.graph.operators import integer_attribute
from tracer.interpreter.ops.quantization import aligned
from tracer.quantization.graph_editor import GraphEditor
from tracer.text import plural

LEAST_BITS = 2
_CLIP_OPSET = 11
_BIASED = frozenset({"Conv", "ConvTranspose", "Gemm"})


def narrow(
    proto: onnx.ModelProto, weight_bits: int | None = None, activation_bits: int | None = None
) -> onnx.ModelProto:
    """Returns a copy of a graph in qdq form with weights and activations of so many bits.

    None leaves them unchanged. Raises UsageError for fewer than 2 bits or more than the type of a
    tensor has, ModelError for a graph that is not in the qdq form of onnxruntime's quantizer.
    """
    graph = GraphEditor(proto)
    opset = next(e.version for e in proto.opset_import if not e.domain)
    foreign = next((n.op_type for n in proto.graph.node if n.op_type.startswith("Q")
                    and n.op_type != "QuantizeLinear"), None)  # fmt: skip
    if foreign or not graph.nodes("QuantizeLinear"):
        reason = f"it has a {foreign}" if foreign else "it has no QuantizeLinear"
        raise ModelError(
            f"only graphs in qdq form can have fewer bits: {reason}",
            "Quantise the float model with --format qdq.",
        )
    if opset < _CLIP_OPSET:
        raise ModelError(
            f"fewer bits need Clip with bounds as inputs, which opset {opset} lacks",
            f"Export the model with opset {_CLIP_OPSET} or newer.",
        )
    for node in graph.nodes("DequantizeLinear"):
        if weight_bits is not None and graph.stored(node.input[0], np.int32) is not None:
            _narrow_weight(graph, node, weight_bits)
    widened: set[str] = set()
    for node in graph.nodes("QuantizeLinear"):
        if activation_bits is not None:
            _narrow_activation(graph, node, activation_bits, widened)
    for node in graph.nodes(*_BIASED):
        _fit_bias(graph, node)
    return graph.proto


def _narrow_weight(graph: GraphEditor, node: onnx.NodeProto, bits: int) -> None:
    """Rounds the stored integers of a DequantizeLinear to `bits` bits."""
    stored, scale, zero = graph.parameters(node)
    assert stored is not None
    low, high = _range(node, stored.dtype, bits)
    if (low, high) == integer_range(stored.dtype):
        return
    axis = integer_attribute(node, "axis", 1)  # of the channels that have a scale each
    real = stored.astype(np.float64) - aligned(zero.astype(np.float64), stored, axis, 0)
    real *= aligned(scale.astype(np.float64), stored, axis, 0)
    channels = np.moveaxis(real, axis, 0) if scale.size > 1 else real[None]
    flat = channels.reshape(len(channels), -1)
    least, most = flat.min(1, initial=0), flat.max(1, initial=0)
    signed = low < 0
    span = np.maximum(-least, most) if signed else most - least
    steps = np.where(span > 0, span / (high if signed else high - low), scale.reshape(-1))
    steps = steps.astype(scale.dtype)
    zeros = np.zeros(len(steps)) if signed else np.rint(-least / steps)
    integers = np.rint(real / aligned(steps, real, axis, 0)) + aligned(zeros, real, axis, 0)
    narrowed = np.clip(integers, -high if signed else low, high).astype(stored.dtype)
    graph.store(node, 0, narrowed)
    graph.store(node, 1, steps.reshape(scale.shape))
    graph.store(node, 2, zeros.astype(stored.dtype).reshape(scale.shape))


def _narrow_activation(
    graph: GraphEditor, node: onnx.NodeProto, bits: int, widened: set[str]
) -> None:
    """Widens the scale of a QuantizeLinear, and clips its input to the range of `bits` bits.

    `widened` are the scales that are done: nodes share scales.
    """
    _, scale, zero = graph.parameters(node)
    full, narrowed = integer_range(zero.dtype), _range(node, zero.dtype, bits)
    if narrowed == full:
        return
    if scale.size > 1:
        raise ModelError(
            f"node '{node.name}' (QuantizeLinear) has a scale for each channel",
            "Activations of fewer bits need one scale for the tensor.",
        )
    if node.input[1] not in widened:
        widened.add(node.input[1])
        start = (full[0] - int(zero.item())) * scale.item()
        wide = np.float64(scale.item()) * (full[1] - full[0]) / (narrowed[1] - narrowed[0])
        scale = wide.astype(scale.dtype).reshape(scale.shape)
        moved = np.clip(np.rint(narrowed[0] - start / wide), *narrowed)
        zero = np.asarray(moved, zero.dtype).reshape(zero.shape)
        graph.store(node, 1, scale)
        graph.store(node, 2, zero)
    ends = [np.asarray((end - int(zero.item())) * scale.item(), scale.dtype) for end in narrowed]
    node.input[0] = graph.clipped(node, node.input[0], *ends)


def _fit_bias(graph: GraphEditor, node: onnx.NodeProto) -> None:
    """Rounds the stored bias of a node to multiples of the scale of its sums."""
    producers = [graph.producer(name) for name in (*node.input, "", "")[:3]]
    if any(producer is None or producer.op_type != "DequantizeLinear" for producer in producers):
        return
    x, w, b = (producer for producer in producers if producer is not None)
    stored, scale, _ = graph.parameters(b)
    if stored is None or stored.dtype != np.int32 or len(graph.readers(b.output[0])) > 1:
        return
    step = graph.parameters(x)[1].astype(np.float64) * graph.parameters(w)[1].astype(np.float64)
    if np.allclose(step, scale, 1e-6, 0):
        return
    real = stored * scale.astype(np.float64)
    graph.store(b, 0, np.rint(real / step).astype(np.int32))
    graph.store(b, 1, np.broadcast_to(step.astype(scale.dtype), scale.shape).copy())


def _range(node: onnx.NodeProto, dtype: Any, bits: int) -> tuple[int, int]:
    """The smallest and the largest integer of so many bits, signed as `dtype` is."""
    low, high = integer_range(dtype)
    most = (high - low).bit_length()
    if not LEAST_BITS <= bits <= most:
        raise UsageError(
            f"{plural(bits, 'bit')} for node '{node.name}', whose integers are {np.dtype(dtype)}",
            f"Give from {LEAST_BITS} to {most}.",
        )
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if low else (0, (1 << bits) - 1)
