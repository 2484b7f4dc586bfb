"""What the ONNX standard says of an operator."""

from __future__ import annotations

from typing import Any

import onnx

from tracer.graph.model import Node


def schema_of(node: Node, opset: int) -> Any:
    """The `onnx.defs.OpSchema` of the node's operator at `opset`, or None where onnx has none."""
    try:
        return onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return None


def completed(node: Node, opset: int) -> onnx.NodeProto:
    """The node with the defaults its opset gives to the attributes it leaves out."""
    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    schema = schema_of(node, opset)
    given = {attribute.name for attribute in proto.attribute}
    for name, attribute in schema.attributes.items() if schema else ():
        if name not in given and attribute.default_value.type:
            proto.attribute.add().CopyFrom(attribute.default_value)
    return proto
