"""Convert models to opsets newer than onnx_chainer writes."""

import onnx
from onnx import version_converter

from tracer.errors import ModelError
from tracer.exporters import runtime
from tracer.exporters.records import Arrays, ExportOptions
from tracer.exporters.verify import difference


def convert(
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
    _restore_metadata(proto, converted)
    for before, after in zip(
        runtime.run(proto, arrays), runtime.run(converted, arrays), strict=True
    ):
        fault = difference(after, before, options)
        if fault:
            raise ModelError(f"converted to opset {opset}, an output {fault}", "Leave --opset out.")
    return converted


def _restore_metadata(proto: onnx.ModelProto, converted: onnx.ModelProto) -> None:
    """Restores metadata that the converter drops; added nodes get the metadata of a neighbour."""
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
