"""Raises the opset of a graph: for scales of channels, or for the operators that replace QONNX's.

A scale for each channel needs the first opset whose DequantizeLinear has one. Operators of other
domains, which onnx does not convert, are put aside meanwhile.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import version_converter

from tracer.errors import ModelError
from tracer.graph import loading
from tracer.graph.model import Model, canonical_domain, encoded
from tracer.inputs.feedset import Feeds
from tracer.interpreter.interpreter import Interpreter
from tracer.quantization import preparation
from tracer.quantization.calibration import CalibrationBatches
from tracer.quantization.options import QuantizationOptions

_PER_CHANNEL_OPSET = 13
_TOLERANCE = 1e-3
"""Error of an output ÷ its greatest value: other nodes for the same sums round otherwise."""


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
    if options.format != "qdq" or not options.per_channel or opset >= _PER_CHANNEL_OPSET:
        return proto
    try:
        converted = version_converter.convert_version(proto, _PER_CHANNEL_OPSET)
    except Exception as error:  # the converter raises all kinds of exceptions
        raise _refused(name, opset, " ".join(str(error).split())) from error
    restore_nodes(converted, proto)
    model, raised = (_stored(each, name, folder) for each in (proto, converted))
    _check(name, opset, model, raised, next(iter(batches)))
    return converted


def _opset(proto: onnx.ModelProto) -> int:
    return next(entry.version for entry in proto.opset_import if not entry.domain)


def restore_nodes(converted: onnx.ModelProto, proto: onnx.ModelProto) -> None:
    """Gives nodes the metadata that conversion to another opset drops, and new nodes names."""
    own = {node.name: node for node in proto.graph.node}
    for index, node in enumerate(converted.graph.node):
        node.name = node.name or f"opset{_PER_CHANNEL_OPSET}_{node.op_type}_{index}"
        del node.metadata_props[:]
        if node.name in own:
            node.metadata_props.extend(own[node.name].metadata_props)
    preparation.pass_on_metadata(converted, set(own))
    del converted.metadata_props[:]
    converted.metadata_props.extend(proto.metadata_props)


def _stored(proto: onnx.ModelProto, name: str, folder: Path) -> Model:
    """Returns the model, from a file beside its external data."""
    path = folder / f"opset{_opset(proto)}.onnx"
    path.write_bytes(encoded(proto, name))
    return replace(loading.load(path), subject=name)


def _check(name: str, opset: int, model: Model, converted: Model, feeds: Feeds) -> None:
    expected, computed = (Interpreter(each).run(None, feeds) for each in (model, converted))
    for value, mine, theirs in zip(model.graph.output, computed, expected, strict=True):
        if not isinstance(theirs, np.ndarray) or theirs.dtype.kind != "f":
            continue
        most = np.abs(theirs).max(initial=0, where=np.isfinite(theirs))
        if not np.allclose(mine, theirs, rtol=0, atol=_TOLERANCE * most, equal_nan=True):
            raise _refused(name, opset, f"it changes the output '{value.name}'")


def _refused(name: str, opset: int, reason: str) -> ModelError:
    return ModelError(
        f"{name}: opset {opset} has no DequantizeLinear with a scale for each channel (it has "
        f"since {_PER_CHANNEL_OPSET}), and onnx cannot convert the model: {reason}",
        "Use --per-tensor, or export the model with a newer opset.",
    )


_OPSET = 13
"""The first whose QuantizeLinear has a scale for each channel, and Clip takes integers."""


def raise_for_qonnx(proto: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Returns a copy in an opset that has what is needed, with weights that are no inputs.

    onnx converts a graph of its own operators alone: in place of others it sees Identity.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    weights = {tensor.name for tensor in copy.graph.initializer}
    preparation.list_inputs(copy, {value.name for value in copy.graph.input} - weights)
    if next(o.version for o in copy.opset_import if not canonical_domain(o.domain)) >= _OPSET:
        return copy
    own: dict[str, onnx.NodeProto] = {}
    for node in copy.graph.node:
        if node.domain:
            own[node.output[0]] = onnx.NodeProto.FromString(node.SerializeToString())
            node.op_type, node.domain = "Identity", ""
            del node.attribute[:], node.input[1:]
    imports = [o for o in copy.opset_import if canonical_domain(o.domain)]
    foreign = [onnx.OperatorSetIdProto.FromString(o.SerializeToString()) for o in imports]
    keep_imports(copy)
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


def keep_imports(proto: onnx.ModelProto) -> None:
    """Imports ONNX's own domain alone."""
    version = next(o.version for o in proto.opset_import if not canonical_domain(o.domain))
    del proto.opset_import[:]
    proto.opset_import.add(domain="", version=version)
