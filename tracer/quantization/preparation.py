"""Prepares a float model for onnxruntime's quantizer, and restores what it drops.

Constants are folded and nodes fused, as onnxruntime advises; nodes are selected by patterns; each
node gets a bias that the quantizer can scale: its own, a number for each channel. The scale of a
bias is that of the node's input x that of its weight. The quantizer copies a bias that several
nodes share under a name that a tensor may have already, or (qoperator) gives all of them the first
node's; and it takes the first axis for the channels, also in Gemm, whose bias may be a row (1, N),
or one number. Names, modules and sources of nodes are restored afterwards.

A scale for each channel needs the first opset whose DequantizeLinear has one, and so do the
operators that replace QONNX's. Operators of other domains, which onnx does not convert, are put
aside meanwhile.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path

import numpy as np
import onnx
from onnx import version_converter
from onnxruntime.quantization.quant_utils import TENSOR_NAME_QUANT_SUFFIX

from tracer.errors import ModelError, UsageError
from tracer.executors.onnxruntime import kernel_nodes, sessions
from tracer.executors.settings import OrtSettings
from tracer.graph import loading, provenance, stored_weights
from tracer.graph.model import Model, Node, canonical_domain, encoded, graphs, names_read
from tracer.graph.operators import quantized_node
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.values import from_tensor
from tracer.quantization.calibration import CalibrationBatches
from tracer.quantization.options import QuantizationOptions, WeightOptions

_OPSET = 13
"""The first whose QuantizeLinear and DequantizeLinear have a scale for each channel, and whose Clip
takes integers."""
_TOLERANCE = 1e-3
"""Error of an output ÷ its greatest value: other nodes for the same sums round otherwise."""


def select_nodes(proto: onnx.ModelProto, options: QuantizationOptions) -> list[str]:
    """Returns the names of the nodes that `nodes` matches (default: all) and `exclude` does not.

    A pattern is a node's name, operator or module, with `*`, `?` and `[…]` as in a shell. Nodes
    stay float if the body of an If, Loop or Scan reads their outputs or shares their weights:
    onnxruntime's quantizer renames these tensors, but not in bodies. Raises UsageError for a
    pattern that matches nothing, or where `exclude` leaves no node.
    """
    nodes = proto.graph.node
    matching = matching_nodes(nodes, options)
    captured = {name for node in nodes for name in set(names_read(node)) - set(node.input)}
    shared = {node.name for node in nodes if captured.intersection((*node.input, *node.output))}
    chosen = matching - shared
    if not chosen and options.exclude:
        raise UsageError("no node remains to be quantised", "Exclude fewer.")
    return [node.name for node in nodes if node.name in chosen]


def matching_nodes(
    nodes: Sequence[onnx.NodeProto], options: QuantizationOptions | WeightOptions
) -> set[str]:
    """Returns the names of the nodes that `nodes` matches (default: all) and `exclude` does not.

    Raises UsageError for a pattern that matches nothing.
    """
    every = {node.name for node in nodes}
    included = _names_matching(nodes, options.nodes) if options.nodes else every
    return included - _names_matching(nodes, options.exclude)


def _names_matching(nodes: Sequence[onnx.NodeProto], patterns: Sequence[str]) -> set[str]:
    names: set[str] = set()
    for pattern in patterns:
        matching = set()
        for node in nodes:
            own = filter(None, (node.name, node.op_type, provenance.module_of(node)))
            if any(name == pattern or fnmatchcase(name, pattern) for name in own):
                matching.add(node.name)
        if not matching:
            operators = ", ".join(dict.fromkeys(node.op_type for node in nodes))
            raise UsageError(
                f"'{pattern}' matches no node, operator or module",
                f"The operators, after constant folding, are {operators}.",
            )
        names |= matching
    return names


_BIAS = 2
"""Index of the bias among the inputs of each of these operators."""
_BIASED = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "InstanceNormalization", "LayerNormalization"}
)


def separate_biases(graph: onnx.GraphProto, folder: Path) -> None:
    """Gives each node a stored bias of its own, and each Gemm one of (N) where its rows are equal.

    External data are in `folder`. Raises ModelError for a bias that cannot be read.
    """
    readers = Counter(name for node in graph.node for name in names_read(node))
    taken = set()
    for each in graphs(graph):
        taken |= {value.name for value in (*each.input, *each.output)}
        taken |= {tensor.name for tensor in each.initializer}
        taken |= {name for node in each.node for name in (*node.input, *node.output)}
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node, bias in list(biases(graph)):
        width = _width_of_row(node, bias, stored)
        if readers[bias.name] == 1 and width is None:
            continue
        own = deepcopy(bias)
        if width is not None:
            row = np.broadcast_to(from_tensor(bias, folder).reshape(-1), width)
            own = onnx.numpy_helper.from_array(np.ascontiguousarray(row))
        names = (f"{bias.name}_{node.name}_{number}" for number in count())
        own.name = node.input[_BIAS] = next(name for name in names if name not in taken)
        taken.add(own.name)
        graph.initializer.append(own)


def biases(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, onnx.TensorProto]]:
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


_SUFFIX = "_quant"
"""Suffix that onnxruntime appends to the name of an operator that it quantises."""


def restore_metadata(proto: onnx.ModelProto, prepared: onnx.ModelProto) -> None:
    """Gives the nodes of `proto` the names and the metadata that they have in `prepared`.

    A new node gets module and source line of the node it reads from; one that reads an input or a
    weight of the model gets those of the first node that reads from it. A quantised weight gets the
    mark of the weight that it is made of.
    """
    original = {node.name: node for node in prepared.graph.node if node.name}
    taken = {node.name for node in proto.graph.node}
    for node in proto.graph.node:
        name = node.name.removesuffix(_SUFFIX)
        if name in original and (name == node.name or name not in taken):
            node.name = name
            del node.metadata_props[:]
            node.metadata_props.extend(original[name].metadata_props)
    provenance.pass_on_metadata(proto, set(original))
    marks = provenance.parameter_marks(prepared.graph)
    _pass_on_marks(proto.graph, marks, TENSOR_NAME_QUANT_SUFFIX)
    keys = {entry.key for entry in prepared.metadata_props}
    missing = keys - {entry.key for entry in proto.metadata_props}
    proto.metadata_props.extend(e for e in prepared.metadata_props if e.key in missing)


def _pass_on_marks(graph: onnx.GraphProto, marks: provenance.Marks, suffix: str) -> None:
    """Gives weights the marks of those that they are made of, to whose names a suffix was added."""
    known = provenance.parameter_marks(graph)
    for weight in graph.initializer:
        made_of = weight.name.removesuffix(suffix)
        if weight.name not in known and made_of in marks:
            provenance.mark_parameters(weight, marks[made_of])


def quantized_already(model: Model, node: Node) -> ModelError:
    """Returns the error for a model with a `node` that is quantised."""
    what = f"{model.name}: it is quantised already: node '{node.key}' is a {node.op_type}"
    return ModelError(what, "Give the float model.")


def prepare(model: Model, folder: Path) -> onnx.ModelProto:
    """Returns a copy of `model` for onnxruntime's quantizer, with its weights.

    The weights of a large model are external data in `folder`. Basic optimisation folds constants,
    and BatchNormalization into the convolution before it, so that it is not quantised by itself.
    Raises ModelError for a model that is already quantised or does not run.
    """
    node = quantized_node(model)
    if node is not None:
        raise quantized_already(model, node)
    proto = sessions.optimize(model, OrtSettings(optimization="basic"), folder)
    marks = dict(provenance.parameter_marks(model.proto.graph))
    if model.proto.producer_name == "pytorch":  # whose constants are no parameters
        constants = (node for node in model.proto.graph.node if node.op_type == "Constant")
        marks |= {node.output[0]: () for node in constants}
    _pass_on_marks(proto.graph, marks, "")
    if not stored_weights.is_large(model):
        return onnx.shape_inference.infer_shapes(encoded(proto, model.name))
    path = folder / sessions.FILE
    path.write_bytes(encoded(proto, model.name))
    onnx.shape_inference.infer_shapes_path(path, path)
    return onnx.load(path, load_external_data=False)


def raise_for_channels(
    name: str,
    proto: onnx.ModelProto,
    options: QuantizationOptions,
    batches: CalibrationBatches,
    folder: Path,
) -> onnx.ModelProto:
    """Returns `proto`, called `name` in messages, in the opset that `options` need.

    Its external data are in `folder`. All nodes have names, and keep them with their metadata.
    Raises ModelError where onnx cannot convert the graph, or the result computes something else on
    the first batch.
    """
    opset = _opset(proto)
    if options.format != "qdq" or not options.per_channel or opset >= _OPSET:
        return proto
    try:
        converted = version_converter.convert_version(proto, _OPSET)
    except Exception as error:  # the converter raises all kinds of exceptions
        raise _refused(name, opset, " ".join(str(error).split())) from error
    restore_nodes(converted, proto)
    feeds, runs = next(iter(batches)), []
    for each in (proto, converted):  # files beside their external data
        path = folder / f"opset{_opset(each)}.onnx"
        path.write_bytes(encoded(each, name))
        runs.append(Interpreter(replace(loading.load(path), subject=name)).run(None, feeds))
    for value, theirs, mine in zip(proto.graph.output, *runs, strict=True):
        if not isinstance(theirs, np.ndarray) or theirs.dtype.kind != "f":
            continue
        most = np.abs(theirs).max(initial=0, where=np.isfinite(theirs))
        if not np.allclose(mine, theirs, rtol=0, atol=_TOLERANCE * most, equal_nan=True):
            raise _refused(name, opset, f"it changes the output '{value.name}'")
    return converted


def _opset(proto: onnx.ModelProto) -> int:
    return next(entry.version for entry in proto.opset_import if not entry.domain)


def restore_nodes(converted: onnx.ModelProto, proto: onnx.ModelProto) -> None:
    """Gives nodes the metadata that conversion to another opset drops, and new nodes names."""
    own = {node.name: node for node in proto.graph.node}
    for index, node in enumerate(converted.graph.node):
        node.name = node.name or f"opset{_OPSET}_{node.op_type}_{index}"
        del node.metadata_props[:]
        if node.name in own:
            node.metadata_props.extend(own[node.name].metadata_props)
    provenance.pass_on_metadata(converted, set(own))
    del converted.metadata_props[:]
    converted.metadata_props.extend(proto.metadata_props)


def _refused(name: str, opset: int, reason: str) -> ModelError:
    return ModelError(
        f"{name}: opset {opset} has no DequantizeLinear with a scale for each channel (it has "
        f"since {_OPSET}), and onnx cannot convert the model: {reason}",
        "Use --per-tensor, or export the model with a newer opset.",
    )


def raise_for_qonnx(proto: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Returns a copy in an opset that has what is needed, with weights that are no inputs.

    onnx converts a graph of its own operators alone: in place of others it sees Identity.
    """
    copy = deepcopy(proto)
    weights = {tensor.name for tensor in copy.graph.initializer}
    kernel_nodes.list_inputs(copy, {value.name for value in copy.graph.input} - weights)
    if next(o.version for o in copy.opset_import if not canonical_domain(o.domain)) >= _OPSET:
        return copy
    own: dict[str, onnx.NodeProto] = {}
    for node in copy.graph.node:
        if node.domain:
            own[node.output[0]] = deepcopy(node)
            node.op_type, node.domain = "Identity", ""
            del node.attribute[:], node.input[1:]
    foreign = [deepcopy(o) for o in copy.opset_import if canonical_domain(o.domain)]
    import_onnx_alone(copy)
    try:
        newer = version_converter.convert_version(copy, _OPSET)
    except Exception as error:  # the converter raises all kinds of exceptions
        raise ModelError(
            f"{name}: onnx cannot convert it to opset {_OPSET}, whose operators stand for QONNX's: "
            f"{' '.join(str(error).split())}",
            f"Export the model with opset {_OPSET} or newer.",
        ) from error
    for node in newer.graph.node:
        original = own.get(node.output[0])
        if original is not None:
            original.input[0] = node.input[0]
            node.CopyFrom(original)
    newer.opset_import.extend(foreign)
    restore_nodes(newer, copy)
    return newer


def import_onnx_alone(proto: onnx.ModelProto) -> None:
    """Imports ONNX's own domain alone."""
    version = next(o.version for o in proto.opset_import if not canonical_domain(o.domain))
    del proto.opset_import[:]
    proto.opset_import.add(domain="", version=version)
