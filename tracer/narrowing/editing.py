"""Writes layers that were fitted into a copy of their graph."""

from collections.abc import Iterable

import numpy as np
import onnx

from tracer.narrowing.fitting import Fit, as_it_is
from tracer.narrowing.layers import Layer
from tracer.quantization.graph_editor import GraphEditor
from tracer.support.types import Array


def written(proto: onnx.ModelProto, fits: Iterable[tuple[Layer, Fit]]) -> onnx.ModelProto:
    """Returns a copy of `proto` with the weights, biases and activations of `fits`.

    Weights become int8 with a scale for each output channel. What nothing reads any more is
    removed.
    """
    graph = GraphEditor(proto)
    for layer, fit in fits:
        node = graph.producer(layer.output)
        assert node is not None  # the layer was found in this graph
        _write(graph, node, layer, fit)
    graph.prune()
    return graph.proto


def _write(graph: GraphEditor, node: onnx.NodeProto, layer: Layer, fit: Fit) -> None:
    scales, axis = fit.scales.astype(np.float32), 1 if layer.transposed else 0
    weights = layer.stored(fit.integers.astype(np.int8))
    node.input[1] = _dequantized(graph, node, ("weights", weights, scales), axis)
    if fit.bias is not None:
        units = scales * np.float32(fit.grid.step)
        node.input[2] = _dequantized(graph, node, ("bias", fit.bias.astype(np.int32), units), 0)
    if fit.grid != as_it_is(layer):
        node.input[0] = _coarser(graph, node, fit)


def _dequantized(
    graph: GraphEditor, node: onnx.NodeProto, part: tuple[str, Array, Array], axis: int
) -> str:
    """Stores integers with their scales, `part`, before `node`; returns the real tensor's name."""
    name, integers, scales = part
    stored = graph.constant(node, name, integers)
    scale = graph.constant(node, f"{name}_scale", scales)
    zero = graph.constant(node, f"{name}_zero", np.zeros(scales.shape, integers.dtype))
    return graph.inserted(node, "DequantizeLinear", [stored, scale, zero], axis=axis)


def _coarser(graph: GraphEditor, node: onnx.NodeProto, fit: Fit) -> str:
    """Clips and rounds the activations of `node` before it reads them; returns their name."""
    grid, step = fit.grid, np.float32(fit.grid.step)
    low, high = (
        graph.constant(node, part, np.asarray(end * step))
        for part, end in (("low", grid.low), ("high", grid.high))
    )
    scale = graph.constant(node, "step", np.asarray(step))
    zero = graph.constant(node, "zero", np.asarray(-grid.low, np.uint8))
    clipped = graph.inserted(node, "Clip", [node.input[0], low, high])
    stored = graph.inserted(node, "QuantizeLinear", [clipped, scale, zero])
    return graph.inserted(node, "DequantizeLinear", [stored, scale, zero])
