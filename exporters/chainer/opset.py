"""From the opsets onnx_chainer writes to newer ones."""

from __future__ import annotations

import onnx
from onnx import version_converter

from exporters import runtime
from exporters.records import Arrays, ExportOptions
from exporters.verify import difference
from tracer.errors import ModelError


def convert(
    proto: onnx.ModelProto, opset: int, arrays: Arrays, options: ExportOptions
) -> onnx.ModelProto:
    """Returns the model at `opset`, by onnx's version converter, with its metadata.

    Both are run under onnxruntime on `arrays`. Raises ModelError where an operator has no way
    there or the two do not agree.
    """
    try:
        converted = version_converter.convert_version(proto, opset)
    except (RuntimeError, version_converter.ConvertError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(
            f"the model cannot be converted to opset {opset}: {reason}", "Leave --opset out."
        ) from error
    _restore_metadata(proto, converted)
    for before, after in zip(
        runtime.run(proto, arrays), runtime.run(converted, arrays), strict=True
    ):
        fault = difference(after, before, options)
        if fault:
            raise ModelError(f"converted to opset {opset}, an output {fault}", "Leave --opset out.")
    return converted


def _restore_metadata(proto: onnx.ModelProto, converted: onnx.ModelProto) -> None:
    """The converter drops metadata; what it adds to a node counts for the node's module too."""
    origin = {name: node for node in proto.graph.node for name in node.output}
    readers = {name: node for node in reversed(proto.graph.node) for name in node.input}
    for node in reversed(converted.graph.node):
        known = next((origin[n] for n in node.output if n in origin), None)
        known = known or next((readers[n] for n in node.output if n in readers), None)
        if known is None:
            continue
        del node.metadata_props[:]
        node.metadata_props.extend(known.metadata_props)
        readers.update(dict.fromkeys(node.input, known))
