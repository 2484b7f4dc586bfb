"""Raises the opset of a graph with operators of other domains, which onnx does not convert."""

import onnx
from onnx import version_converter

from tracer.errors import ModelError
from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, canonical_domain
from tracer.quantization.lifting import restore

_OPSET = 13
"""The first whose QuantizeLinear has a scale for each channel, and Clip takes integers."""


def raised(proto: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Returns a copy in an opset that has what is needed, with weights that are no inputs.

    onnx converts a graph of its own operators alone: in place of others it sees Identity.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    weights = {tensor.name for tensor in copy.graph.initializer}
    kept = [value for value in copy.graph.input if value.name not in weights]
    inputs = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del copy.graph.input[:]
    copy.graph.input.extend(inputs)
    copy.ir_version = max(copy.ir_version, IR_WITH_UNLISTED_WEIGHTS)
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
    _put_back(newer, own)
    newer.opset_import.extend(foreign)
    restore(newer, copy)
    return newer


def _put_back(proto: onnx.ModelProto, own: dict[str, onnx.NodeProto]) -> None:
    for node in proto.graph.node:
        original = own.get(node.output[0])
        if original is not None:
            original.input[0] = node.input[0]
            node.CopyFrom(original)


def keep_imports(proto: onnx.ModelProto) -> None:
    """Imports ONNX's own domain alone."""
    version = next(o.version for o in proto.opset_import if not canonical_domain(o.domain))
    del proto.opset_import[:]
    proto.opset_import.add(domain="", version=version)
