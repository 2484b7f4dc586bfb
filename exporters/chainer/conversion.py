"""Converts Chainer models to ONNX by onnx_chainer, which is part of Chainer.

The result is repaired for current runtimes, and its batch made dynamic. Chainer works on numbers:
`F.reshape(h, (h.shape[0], -1))` is traced as a reshape to (2, -1). The model is therefore traced at
two batches. What differs depends on the batch: the target of a Reshape is repaired, a constant that
is the same for every example, as the first state of an LSTM, is repeated for the examples, and any
other node is refused by name.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, version_converter

from tracer.errors import ModelError, TracerError, UsageError
from tracer.exporters import pipeline
from tracer.exporters.chainer import trace
from tracer.exporters.chainer.trace import ChainerTrace, check_constants
from tracer.exporters.records import BATCH, Arrays, Conversion, ExportOptions, InputSpec, draw
from tracer.graph import provenance

_EXPAND = 8
"""The first operator set with Expand."""
_REMEDY = "Give --static-batch, or have the model work on any batch."
_OPSET = 11
_OTHERS = re.compile(r"param_.*|v\d+")
"""What onnx_chainer calls persistent values, as it does parameters, and variables."""


def convert(model: object, inputs: Sequence[InputSpec], options: ExportOptions) -> Conversion:
    """Returns `model` as ONNX. Raises UsageError or ModelError where that is impossible."""
    if options.keep_batchnorm:
        raise UsageError(
            "--keep-batchnorm is for torch", "Chainer's BatchNormalization always stays."
        )
    if not inputs:
        raise UsageError("the shape of the input is not known", "Give it: --input-shape 1,3,32,32.")
    written = min(options.opset or _OPSET, max(trace.OPSETS))
    if written < min(trace.OPSETS):
        raise UsageError(
            f"onnx_chainer does not write opset {written}",
            f"The oldest is {min(trace.OPSETS)}.",
        )
    try:
        proto = _converted(model, inputs, options, written)
    except TracerError:
        raise
    except Exception as error:  # whatever the model's own code raises
        shapes = " and ".join(str(list(spec.shape)) for spec in inputs)
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = "; ".join(lines[:4]) or type(error).__name__
        raise ModelError(
            f"Chainer cannot export {type(model).__name__} for inputs of {shapes}: {reason}",
            "Check --input-shape and --input-dtype first; --debug shows where.",
        ) from error
    return Conversion(
        proto,
        lambda arrays: trace.run(model, arrays),
        lambda arrays: trace.trace(model, arrays, written).values,
        tuple(inputs),
    )


def convert_opset(
    proto: onnx.ModelProto, opset: int, arrays: Arrays, options: ExportOptions
) -> onnx.ModelProto:
    """Returns the model at `opset`, by onnx's version converter, with its metadata.

    Runs both under onnxruntime on `arrays`. Raises ModelError if an operator cannot be converted or
    the results differ.
    """
    try:
        converted = version_converter.convert_version(proto, opset)
    except (RuntimeError, version_converter.ConvertError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f"the model cannot be converted to opset {opset}: {reason}", "Leave --opset out."
        ) from error
    origin = {name: node for node in proto.graph.node for name in node.output}
    readers = {name: node for node in reversed(proto.graph.node) for name in node.input}
    for node in reversed(converted.graph.node):
        source = next((origin[n] for n in node.output if n in origin), None)
        source = source or next((readers[n] for n in node.output if n in readers), None)
        if source is None:
            continue
        del node.metadata_props[:]
        node.metadata_props.extend(source.metadata_props)
        readers.update(dict.fromkeys(node.input, source))
    for before, after in zip(
        pipeline.run(proto, arrays), pipeline.run(converted, arrays), strict=True
    ):
        fault = pipeline.difference(after, before, options)
        if fault:
            raise ModelError(f"converted to opset {opset}, an output {fault}", "Leave --opset out.")
    return converted


def repair(proto: onnx.ModelProto) -> None:
    """Turns constants into initializers, removes weights from the inputs, makes names unique.

    Works in place. Drops unread parameters, since runtimes warn of each.
    """
    pipeline.fit_ir_version(proto)  # onnx_chainer's may be too new for the runtime
    nodes = []
    for node in proto.graph.node:
        if node.op_type != "Constant":
            nodes.append(node)
            continue
        weight = proto.graph.initializer.add()
        weight.CopyFrom(node.attribute[0].t)
        weight.name = node.output[0]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    weights = {weight.name for weight in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in weights]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    # drop parameters of links that were not called; onnx_chainer writes no subgraphs
    read = {name for node in proto.graph.node for name in node.input}
    read |= {value.name for value in proto.graph.output}
    stored = [weight for weight in proto.graph.initializer if weight.name in read]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(stored)
    counts = Counter(node.name for node in proto.graph.node)
    taken = set(counts)
    for index, node in enumerate(proto.graph.node):
        if not node.name or counts[node.name] > 1:
            name = f"{node.name or node.op_type}_{index}"
            while name in taken:
                name += "_"
            taken.add(name)
            node.name = name


def make_dynamic(first: ChainerTrace, second: ChainerTrace, batches: tuple[int, int]) -> None:
    """Makes the batch of `first` dynamic, in place; `second` is a trace at another batch.

    Raises ModelError if the batch is baked in.
    """
    proto, other = first.proto, second.proto
    for mine, yours in zip(proto.graph.node, other.graph.node, strict=False):
        if trace.serialized(mine) != trace.serialized(yours):
            raise _baked(mine)
    weights = {weight.name: weight for weight in proto.graph.initializer}
    theirs = {weight.name: weight for weight in other.graph.initializer}
    if len(proto.graph.node) != len(other.graph.node) or weights.keys() != theirs.keys():
        raise ModelError("the model computes another graph for another batch", _REMEDY)
    _name_batch(proto.graph, other.graph, batches)
    for name, weight in weights.items():
        if weight.SerializeToString() == theirs[name].SerializeToString():
            continue
        if _repeat(proto, weight, theirs[name], batches):
            continue
        for node in [n for n in proto.graph.node if name in n.input]:
            if node.op_type != "Reshape" or node.input[1] != name:
                raise _baked(node)
            _free(node, weight, theirs[name], first, second)


def _name_batch(graph: onnx.GraphProto, other: onnx.GraphProto, batches: tuple[int, int]) -> None:
    """Names the dimensions that are the batch; clears others that depend on the batch."""
    values, others = (*graph.input, *graph.output), (*other.input, *other.output)
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
    """Returns whether a constant is the same for every example, and has it repeated for each.

    Nodes then repeat the constant of one example by the batch of an input.
    """
    ours, theirs = numpy_helper.to_array(weight), numpy_helper.to_array(other)
    sizes = list(zip(ours.shape, theirs.shape, strict=False))
    axes = [axis for axis, pair in enumerate(sizes) if pair[0] != pair[1]]
    if ours.ndim != theirs.ndim or [sizes[axis] for axis in axes] != [batches]:
        return False
    one = ours.take([0], axes[0])
    same = all(np.array_equal(all_, np.broadcast_to(one, all_.shape)) for all_ in (ours, theirs))
    if not same or proto.opset_import[0].version < _EXPAND:
        return False
    graph, name, axis = proto.graph, weight.name, axes[0]
    reader = next(node for node in graph.node if name in node.input)
    batched = next(
        v
        for v in graph.input
        if any(dim.dim_param == BATCH for dim in v.type.tensor_type.shape.dim[:1])
    )
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
        provenance.describe(node, provenance.module_of(reader), provenance.source_of(reader))
    nodes += graph.node
    del graph.node[:]
    graph.node.extend(nodes)
    return True


def _free(
    node: onnx.NodeProto,
    weight: onnx.TensorProto,
    other: onnx.TensorProto,
    first: ChainerTrace,
    second: ChainerTrace,
) -> None:
    """Writes 0 (the size of the input) or -1 (the remaining size) for the size that varies."""
    shapes = [trace.values[node.input[0]].shape for trace in (first, second)]
    targets = []
    for proto, shape in zip((weight, other), shapes, strict=True):
        target = numpy_helper.to_array(proto)
        rest = int(np.prod(target[target != -1]))  # the batch may need the -1
        targets.append(np.where(target == -1, math.prod(shape) // max(rest, 1), target))
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


def _baked(node: onnx.NodeProto) -> ModelError:
    module, source = provenance.module_of(node), provenance.source_of(node)
    where = f" of module '{module}'" if module else ""
    where += f" at {source}" if source else ""
    return ModelError(
        f"the batch is baked into node '{node.name}' ({node.op_type}){where}", _REMEDY
    )


def _converted(
    model: Any, inputs: Sequence[InputSpec], options: ExportOptions, written: int
) -> onnx.ModelProto:
    def trace_at(specs: Sequence[InputSpec], number: int) -> ChainerTrace:
        traced = trace.trace(model, draw(specs, (options.seed, number)), written)
        repair(traced.proto)
        return traced

    batches = {spec.shape[0] for spec in inputs if spec.shape}
    if not options.dynamic_batch or not batches:
        first = trace_at(inputs, 0)
        check_constants(first, trace_at(inputs, 1))
    elif len(batches) > 1:
        raise ModelError(
            f"the inputs have different batches: {sorted(batches)}", "Give --static-batch."
        )
    else:
        # Other dimensions may be 1 too, so neither trace uses a batch of 1.
        sizes = (max(2, *batches), max(2, *batches) + 1)
        small, large = ([s.with_batch(size) for s in inputs] for size in sizes)
        first = trace_at(small, 0)
        try:
            make_dynamic(first, trace_at(large, 1), sizes)
        except ModelError:  # values of the input may be the cause rather than the batch
            check_constants(trace_at(small, 0), trace_at(small, 1))
            raise
    proto = first.proto
    if options.opset not in (None, written):
        proto = convert_opset(proto, options.opset, draw(inputs, options.seed), options)
        repair(proto)  # the version converter adds Constant nodes
    parameters = {f"param{name.replace('/', '_')}": name for name, _ in model.namedparams()}
    for weight in proto.graph.initializer:
        if weight.name in parameters:
            provenance.mark_parameters(weight, [parameters[weight.name]])
        elif _OTHERS.fullmatch(weight.name):
            provenance.mark_parameters(weight, [])
    return proto
