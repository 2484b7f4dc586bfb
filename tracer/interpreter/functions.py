"""Expands operators defined by a graph: the model's functions and the ONNX standard's."""

from collections.abc import Mapping, Sequence

import onnx

from tracer.graph.model import Model, Node, canonical_domain, expanded_keys
from tracer.interpreter import values
from tracer.interpreter.schemas import completed, schema_of
from tracer.interpreter.values import Value


def instantiate(function: onnx.FunctionProto, node: Node, opset: int) -> Model:
    """Returns the function's body as a model, with the attributes of the calling node.

    The keys of its nodes begin with the caller's: `call/inner`.
    """
    attributes = {a.name: a for a in function.attribute_proto}
    attributes |= {a.name: a for a in completed(node, opset).attribute}
    proto = onnx.ModelProto(ir_version=onnx.IR_VERSION, opset_import=function.opset_import)
    proto.graph.name = function.name
    for inner in function.node:
        _resolve(proto.graph.node.add(), inner, attributes)
    for name in function.input:
        proto.graph.input.add().name = name
    for name in function.output:
        proto.graph.output.add().name = name
    keys = tuple(f"{node.key}/{key}" for key in expanded_keys(proto))
    return Model(proto, None, "", keys, root=node.key)


def local_functions(model: Model) -> Mapping[tuple[str, str, str], onnx.FunctionProto]:
    """Returns the model's functions by domain, name and overload."""
    functions = model.proto.functions
    return {(canonical_domain(f.domain), f.name, f.overload): f for f in functions}


def standard_function(
    node: Node, opsets: Mapping[str, int], inputs: Sequence[Value]
) -> onnx.FunctionProto:
    """Returns the body that the ONNX standard defines for inputs of these types."""
    opset = opsets[node.domain]
    schema = schema_of(node, opset)
    function = onnx.FunctionProto()
    if schema.has_function:
        function.CopyFrom(schema.function_body)
    else:
        types = [values.type_proto(value).SerializeToString() for value in inputs]
        version = max(v for v in schema.context_dependent_function_opset_versions if v <= opset)
        body = schema.get_context_dependent_function_with_opset_version(
            version, node.proto.SerializeToString(), types
        )
        function.ParseFromString(body)
    imported = {canonical_domain(entry.domain) for entry in function.opset_import}
    if "" not in imported:  # functions of other domains may not import the opset of their nodes
        version = opsets.get("", onnx.defs.onnx_opset_version())
        function.opset_import.add().version = version
    return function


def has_body(node: Node, opset: int) -> bool:
    """Whether the ONNX standard defines the operator by a graph."""
    schema = schema_of(node, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _resolve(
    target: onnx.NodeProto, source: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]
) -> None:
    """Copies a node and its bodies, with references to the function's attributes resolved.

    A reference to an attribute that neither the call nor the function sets is dropped, so that
    the operator's default applies.
    """
    target.CopyFrom(source)
    del target.attribute[:]
    for attribute in source.attribute:
        if not attribute.ref_attr_name:
            copy = target.attribute.add()
            copy.CopyFrom(attribute)
            for graph in [copy.g] if copy.HasField("g") else copy.graphs:
                _resolve_graph(graph, attributes)
        elif attribute.ref_attr_name in attributes:
            copy = target.attribute.add()
            copy.CopyFrom(attributes[attribute.ref_attr_name])
            copy.name = attribute.name


def _resolve_graph(graph: onnx.GraphProto, attributes: Mapping[str, onnx.AttributeProto]) -> None:
    nodes = list(graph.node)
    copies = [type(node)() for node in nodes]
    for copy, node in zip(copies, nodes, strict=True):
        _resolve(copy, node, attributes)
    del graph.node[:]
    graph.node.extend(copies)
