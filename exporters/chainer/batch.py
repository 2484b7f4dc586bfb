"""Make the batch of a traced Chainer model dynamic.

Chainer works on numbers: `F.reshape(h, (h.shape[0], -1))` is traced as a reshape to (2, -1). The
model is therefore traced at two batches. What differs depends on the batch: the target of a Reshape
is repaired, a constant that is the same for every example, as the first state of an LSTM, is
repeated for the examples, and any other node is refused by name.
"""

import math
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from tracer.errors import ModelError
from tracer.exporters.chainer.constants import ChainerTrace
from tracer.exporters.metadata import describe
from tracer.exporters.records import BATCH
from tracer.graph import provenance

_EXPAND = 8
"""The first operator set with Expand."""

_REMEDY = "Give --static-batch, or have the model work on any batch."


def make_dynamic(first: ChainerTrace, second: ChainerTrace, batches: tuple[int, int]) -> None:
    """Makes the batch of `first` dynamic, in place; `second` is a trace at another batch.

    Raises ModelError if the batch is baked in.
    """
    proto, other = first.proto, second.proto
    _check_same_nodes(proto, other)
    _name_batch(proto.graph, other.graph, batches)
    weights = {weight.name: weight for weight in proto.graph.initializer}
    theirs = {weight.name: weight for weight in other.graph.initializer}
    for name, weight in weights.items():
        if weight.SerializeToString() == theirs[name].SerializeToString():
            continue
        if _repeat(proto, weight, theirs[name], batches):
            continue
        for node in [n for n in proto.graph.node if name in n.input]:
            if node.op_type != "Reshape" or node.input[1] != name:
                raise _baked(node)
            _free(node, weight, theirs[name], first, second)


def _check_same_nodes(proto: onnx.ModelProto, other: onnx.ModelProto) -> None:
    ours, theirs = proto.graph.node, other.graph.node
    for mine, yours in zip(ours, theirs, strict=False):
        if mine.SerializeToString(deterministic=True) != yours.SerializeToString(
            deterministic=True
        ):
            raise _baked(mine)
    names = [{w.name for w in p.graph.initializer} for p in (proto, other)]
    if len(ours) != len(theirs) or names[0] != names[1]:
        raise ModelError("the model computes another graph for another batch", _REMEDY)


def _name_batch(graph: onnx.GraphProto, other: onnx.GraphProto, batches: tuple[int, int]) -> None:
    """Names the dimensions that are the batch; clears others that depend on the batch."""
    for values, others in ((graph.input, other.input), (graph.output, other.output)):
        for value, twin in zip(values, others, strict=True):
            dims = value.type.tensor_type.shape.dim
            for dim, theirs in zip(dims, twin.type.tensor_type.shape.dim, strict=True):
                sizes = dim.dim_value, theirs.dim_value
                if sizes[0] != sizes[1]:
                    dim.Clear()
                if sizes == batches:
                    dim.dim_param = BATCH


def _repeat(
    proto: onnx.ModelProto,
    weight: onnx.TensorProto,
    other: onnx.TensorProto,
    batches: tuple[int, int],
) -> bool:
    """Returns whether a constant is the same for every example, and has it repeated for each."""
    ours, theirs = numpy_helper.to_array(weight), numpy_helper.to_array(other)
    sizes = list(zip(ours.shape, theirs.shape, strict=False))
    axes = [axis for axis, pair in enumerate(sizes) if pair[0] != pair[1]]
    if ours.ndim != theirs.ndim or [sizes[axis] for axis in axes] != [batches]:
        return False
    one = ours.take([0], axes[0])
    same = all(np.array_equal(all_, np.broadcast_to(one, all_.shape)) for all_ in (ours, theirs))
    if not same or proto.opset_import[0].version < _EXPAND:
        return False
    _expand(proto.graph, weight, one, axes[0])
    return True


def _expand(graph: onnx.GraphProto, weight: onnx.TensorProto, one: NDArray[Any], axis: int) -> None:
    """Has nodes repeat `one` along `axis` by the batch of an input, in place of `weight`."""
    name = weight.name
    reader = next(node for node in graph.node if name in node.input)
    batched = next(v for v in graph.input if _is_batched(v))
    weight.CopyFrom(numpy_helper.from_array(one, f"{name}_one"))
    for part, values in (("axis", [0]), ("after", [1] * (one.ndim - axis - 1))):
        array = np.array(values, np.int64)
        graph.initializer.append(numpy_helper.from_array(array, f"{name}_{part}"))
    nodes = [
        helper.make_node("Shape", [batched.name], [f"{name}_shape"]),
        helper.make_node("Gather", [f"{name}_shape", f"{name}_axis"], [f"{name}_batch"]),
        helper.make_node("Concat", [f"{name}_batch", f"{name}_after"], [f"{name}_sizes"], axis=0),
        helper.make_node("Expand", [weight.name, f"{name}_sizes"], [name]),
    ]
    for node in nodes:
        node.name = node.output[0]
        describe(node, provenance.module_of(reader), provenance.source_of(reader))
    nodes += graph.node
    del graph.node[:]
    graph.node.extend(nodes)


def _is_batched(value: onnx.ValueInfoProto) -> bool:
    return any(dim.dim_param == BATCH for dim in value.type.tensor_type.shape.dim[:1])


def _free(
    node: onnx.NodeProto,
    weight: onnx.TensorProto,
    other: onnx.TensorProto,
    first: ChainerTrace,
    second: ChainerTrace,
) -> None:
    """Writes 0 (the size of the input) or -1 (the remaining size) for the size that varies."""
    shapes = [trace.values[node.input[0]].shape for trace in (first, second)]
    targets = [
        _resolved(numpy_helper.to_array(proto), shape)
        for proto, shape in zip((weight, other), shapes, strict=True)
    ]
    free = np.array(targets[0])
    for axis in np.flatnonzero(targets[0] != targets[1]):
        unchanged = all(
            axis < len(shape) and target[axis] == shape[axis]
            for target, shape in zip(targets, shapes, strict=True)
        )
        free[axis] = 0 if unchanged else -1
    if np.count_nonzero(free == -1) > 1:
        raise _baked(node)
    weight.CopyFrom(numpy_helper.from_array(free, weight.name))


def _resolved(target: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Replaces -1 in the target by its size, since the batch may need the -1."""
    rest = int(np.prod(target[target != -1]))
    return np.where(target == -1, math.prod(shape) // max(rest, 1), target)


def _baked(node: onnx.NodeProto) -> ModelError:
    module, source = provenance.module_of(node), provenance.source_of(node)
    where = f" of module '{module}'" if module else ""
    where += f" at {source}" if source else ""
    return ModelError(
        f"the batch is baked into node '{node.name}' ({node.op_type}){where}", _REMEDY
    )
