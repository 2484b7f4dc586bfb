"""Raises the opset of a graph to the first whose DequantizeLinear has a scale for each channel."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import version_converter

from tracer.errors import ModelError
from tracer.graph import loading
from tracer.graph.encoding import encoded
from tracer.graph.model import Model
from tracer.inputs.feedset import Feeds
from tracer.interpreter.interpreter import Interpreter
from tracer.quantization import metadata
from tracer.quantization.calibration import CalibrationBatches
from tracer.quantization.options import QuantizationOptions

_PER_CHANNEL_OPSET = 13
_TOLERANCE = 1e-3
"""Error of an output ÷ its greatest value: other nodes for the same sums round otherwise."""


def lifted(
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
    restore(converted, proto)
    model, raised = (_stored(each, name, folder) for each in (proto, converted))
    _check(name, opset, model, raised, next(iter(batches)))
    return converted


def _opset(proto: onnx.ModelProto) -> int:
    return next(entry.version for entry in proto.opset_import if not entry.domain)


def restore(converted: onnx.ModelProto, proto: onnx.ModelProto) -> None:
    """Gives nodes the metadata that conversion to another opset drops, and new nodes names."""
    own = {node.name: node for node in proto.graph.node}
    for index, node in enumerate(converted.graph.node):
        node.name = node.name or f"opset{_PER_CHANNEL_OPSET}_{node.op_type}_{index}"
        del node.metadata_props[:]
        if node.name in own:
            node.metadata_props.extend(own[node.name].metadata_props)
    metadata.pass_on(converted, set(own))
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
