"""Gives nodes biases that onnxruntime's quantizer can scale: their own, a number for each channel.

The scale of a bias is that of the node's input x that of its weight. The quantizer copies a bias
that several nodes share under a name that a tensor may have already, or (qoperator) gives all of
them the first node's; and it takes the first axis for the channels, also in Gemm, whose bias may
be a row (1, N), or one number.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

import numpy as np
import onnx

from tracer.graph.model import graphs
from tracer.interpreter.values import from_tensor
from tracer.quantization.ordering import reads

_BIAS = 2
"""Index of the bias among the inputs of each of these operators."""
_BIASED = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "InstanceNormalization", "LayerNormalization"}
)


def separate(graph: onnx.GraphProto, folder: Path) -> None:
    """Gives each node a stored bias of its own, and each Gemm one of (N) where its rows are equal.

    External data are in `folder`. Raises ModelError for a bias that cannot be read.
    """
    readers = Counter(name for node in graph.node for name in reads(node))
    taken = _names(graph)
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node, bias in list(_biases(graph)):
        width = _width_of_row(node, bias, stored)
        if readers[bias.name] == 1 and width is None:
            continue
        own = onnx.TensorProto()
        own.CopyFrom(bias)
        if width is not None:
            row = np.broadcast_to(from_tensor(bias, folder).reshape(-1), width)
            own = onnx.numpy_helper.from_array(np.ascontiguousarray(row))
        names = (f"{bias.name}_{node.name}_{number}" for number in count())
        own.name = node.input[_BIAS] = next(name for name in names if name not in taken)
        taken.add(own.name)
        graph.initializer.append(own)


def uneven(graph: onnx.GraphProto) -> list[str]:
    """Returns the names of the Gemms whose stored bias is not the same in all rows."""
    return [
        node.name
        for node, bias in _biases(graph)
        if node.op_type == "Gemm" and math.prod(bias.dims[:-1]) != 1
    ]


def _biases(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, onnx.TensorProto]]:
    """Yields the nodes with a stored bias, and this."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type in _BIASED and len(node.input) > _BIAS and node.input[_BIAS] in stored:
            yield node, stored[node.input[_BIAS]]


def _width_of_row(
    node: onnx.NodeProto, bias: onnx.TensorProto, stored: Mapping[str, onnx.TensorProto]
) -> int | None:
    """Returns the N that the bias of a Gemm should have; None where it has, or cannot have it."""
    weight = stored.get(node.input[1])
    if node.op_type != "Gemm" or weight is None or math.prod(bias.dims[:-1]) != 1:
        return None
    is_transposed = any(each.name == "transB" and each.i for each in node.attribute)
    width = int(weight.dims[0 if is_transposed else 1])
    return None if list(bias.dims) == [width] else width


def _names(graph: onnx.GraphProto) -> set[str]:
    """Returns the names of all tensors, those of bodies too."""
    names: set[str] = set()
    for each in graphs(graph):
        names.update(value.name for value in (*each.input, *each.output))
        names.update(tensor.name for tensor in each.initializer)
        names.update(name for node in each.node for name in (*node.input, *node.output))
    return names
