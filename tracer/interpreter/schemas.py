"""Looks up operators in onnx's schemas: the schema, and attribute defaults."""

from typing import Any

import onnx

from tracer.graph.model import Node


def schema_of(node: Node, opset: int) -> Any:
    """Returns the `onnx.defs.OpSchema` of the node's operator at `opset`, or None."""
    try:
        return onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return None


def completed(node: Node, opset: int) -> onnx.NodeProto:
    """Returns the node with the opset's defaults for the attributes it omits."""
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    schema = schema_of(node, opset)
    names = {attribute.name for attribute in proto.attribute}
    for name, attribute in schema.attributes.items() if schema else ():
        if name not in names and attribute.default_value.type:
            proto.attribute.add().CopyFrom(attribute.default_value)
    return proto
