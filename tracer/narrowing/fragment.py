"""The nodes that take the place of a node, and how a fitted layer is written as such."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tracer.graph import loading
from tracer.graph.provenance import describe_like
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.values import Value
from tracer.narrowing.fitting import Fit
from tracer.narrowing.layers import Grid, Layer
from tracer.narrowing.samples import terms_of
from tracer.quantization.graph_editor import free_name
from tracer.support.types import Array


def write_in_order(fragment: "Fragment", layer: Layer, order: Array) -> None:
    """Adds the layer as it is, with its input channels in an `order` (channels,)."""
    inputs, _, *bias = fragment.node.input
    indices = fragment.constant("order", order.astype(np.int64))
    moved = fragment.add("Gather", [inputs, indices], {"axis": layer.channel_axis})
    integers = layer.integers[:, terms_of(order, layer.window)]
    weights = _weights(fragment, layer, integers, layer.scales)
    fragment.finish(fragment.copy([moved, weights, *bias], "sum"))


def write_layer(fragment: "Fragment", layer: Layer, fit: Fit, parts: int = 1) -> None:
    """Adds the nodes of a layer: it reads its inputs on a grid, in parts of its input channels.

    The sums of the parts, and the means times the sum of the inputs, are added as real numbers.
    """
    inputs = fragment.node.input[0]
    if fit.grid != layer.grid:
        inputs = fragment.on_grid(inputs, fit.grid)
    terms = []
    for cut in cuts(layer, parts):  # the first part has the bias
        part = slice(cut.start * layer.window, cut.stop * layer.window)
        reads = [inputs]
        if parts > 1:
            places = (("start", cut.start), ("end", cut.stop), ("axis", layer.channel_axis))
            ends = [fragment.constant(name, np.array([at], np.int64)) for name, at in places]
            reads = [fragment.add("Slice", [inputs, *ends])]
        reads.append(_weights(fragment, layer, fit.integers[:, part], fit.scales))
        if fit.bias is not None and cut.start == 0:
            units = fit.scales.astype(np.float32) * np.float32(fit.grid.step)
            reads.append(_scaled(fragment, layer, "bias", fit.bias.astype(np.int32), units, 0))
        terms.append(fragment.copy(reads, "sum"))
    if fit.means is not None:
        ones = layer.stored(np.ones((1, layer.depth), np.int8))
        weights = fragment.dequantized("ones", ones, np.ones((), np.float32), None)
        added = fragment.copy([inputs, weights], "inputs")
        shape = (1, -1, *(1 for _ in layer.shape[2:])) if layer.op_type == "Conv" else (1, -1)
        factors = fragment.constant("means", fit.means.astype(np.float32).reshape(shape))
        terms.append(fragment.add("Mul", [added, factors]))
    total = terms[0]
    for term in terms[1:]:
        total = fragment.add("Add", [total, term])
    fragment.finish(total)


def cuts(layer: Layer, parts: int) -> tuple[slice, ...]:
    """Returns the input channels of each of `parts` parts, which are about equally many."""
    channels = layer.depth // layer.window
    ends = [channels * n // parts for n in range(parts + 1)]
    return tuple(slice(a, b) for a, b in pairwise(ends))


def _weights(fragment: "Fragment", layer: Layer, integers: Array, scales: Array) -> str:
    """Adds integers (M, K) in the type of the layer's weights, with the scales (M,) of the rows."""
    stored = layer.stored(integers.astype(layer.weight_type))
    return _scaled(fragment, layer, "weights", stored, scales, 1 if layer.transposed else 0)


def _scaled(
    fragment: "Fragment", layer: Layer, part: str, stored: Array, scales: Array, axis: int
) -> str:
    """Adds integers with a scale for each row along `axis`, or with one where the layer has one."""
    scales = scales.astype(np.float32)
    if layer.has_one_scale:
        return fragment.dequantized(part, stored, scales[0], None)
    return fragment.dequantized(part, stored, scales, axis)


class Fragment:
    """Nodes and constants instead of `node`, whose inputs they read, and whose output they write.

    `taken` are the names that the graph has; the names of the fragment are added to them. The nodes
    have the metadata of `node`: its module and its source. `sums` are the names of the copies of
    the node, the first of which is named by the `key` of the node.
    """

    def __init__(self, node: onnx.NodeProto, key: str, taken: set[str]) -> None:
        self.node = node
        self._key = key
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.sums: list[str] = []
        self._taken = taken

    def constant(self, part: str, value: Array) -> str:
        """Adds a constant; returns its name."""
        name = self._free(part)
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(
        self, op_type: str, inputs: Sequence[str], attributes: Mapping[str, Any] | None = None
    ) -> str:
        """Adds a node; returns the name of its output."""
        name = self._free(op_type)
        self._append(helper.make_node(op_type, list(inputs), [name], name, **(attributes or {})))
        return name

    def copy(self, inputs: Sequence[str], part: str) -> str:
        """Adds a copy of the node that reads other inputs; returns the name of its output."""
        made, name = deepcopy(self.node), self._free(part)
        del made.input[:], made.output[:], made.metadata_props[:]
        made.input.extend(inputs)
        made.output.append(name)
        made.name = name if self.sums else self._key
        self.sums.append(made.name)
        self._append(made)
        return name

    def dequantized(self, part: str, integers: Array, scales: Array, axis: int | None) -> str:
        """Adds stored integers times their scales; returns the name of the real tensor."""
        stored = self.constant(part, integers)
        scale = self.constant(f"{part}_scale", scales)
        zero = self.constant(f"{part}_zero", np.zeros(scales.shape, integers.dtype))
        attributes = None if axis is None else {"axis": axis}
        return self.add("DequantizeLinear", [stored, scale, zero], attributes)

    def on_grid(self, name: str, grid: Grid) -> str:
        """Adds nodes that clip and round a real tensor to a grid; returns the name of the result.

        The grid has at most 256 integers. The Clip tells any reader of the graph the range.
        """
        step = np.float32(grid.step)
        low, high = (
            self.constant(part, np.asarray(end * step))
            for part, end in (("low", grid.low), ("high", grid.high))
        )
        scale = self.constant("step", np.asarray(step))
        zero = self.constant("zero", np.asarray(-grid.low, np.uint8))
        clipped = self.add("Clip", [name, low, high])
        stored = self.add("QuantizeLinear", [clipped, scale, zero])
        return self.add("DequantizeLinear", [stored, scale, zero])

    def finish(self, output: str) -> None:
        """Makes the tensor `output` the output of the fragment."""
        maker = next(node for node in self.nodes if output in node.output)
        maker.output[0] = self.node.output[0]

    def runner(
        self, source: onnx.ModelProto, inputs: Sequence[Value]
    ) -> Callable[[Sequence[Value]], Value]:
        """Returns a function that computes the output from the inputs of the node.

        `source` is the model that the node is in, and `inputs` have the types of its inputs.
        """
        made = {name for node in self.nodes for name in node.output}
        made |= {weight.name for weight in self.weights}
        read = {name for node in self.nodes for name in node.input} - made
        names = [name if name in read else "" for name in self.node.input]
        declared = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), None)
            for name, each in zip(names, inputs, strict=True)
            if name
        ]
        output = helper.make_tensor_value_info(self.node.output[0], onnx.TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "fragment", declared, [output], self.weights)
        model = helper.make_model(
            graph, opset_imports=source.opset_import, ir_version=source.ir_version
        )
        interpreter = Interpreter(loading.from_proto(model))

        def run(inputs: Sequence[Value]) -> Value:
            feeds = {name: each for name, each in zip(names, inputs, strict=True) if name}
            return interpreter.run(None, feeds)[0]

        return run

    def _append(self, made: onnx.NodeProto) -> None:
        describe_like(made, self.node)
        self.nodes.append(made)

    def _free(self, part: str) -> str:
        name = free_name(f"{self.node.output[0]}_{part}", self._taken)
        self._taken.add(name)
        return name
