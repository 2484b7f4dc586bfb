"""Operators that are defined by a graph: functions of the model, and of the ONNX standard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from tracer.graph.model import Model, Node, canonical_domain, expanded_keys
from tracer.interpreter import values
from tracer.interpreter.schemas import completed, schema_of
from tracer.interpreter.values import Value


def instantiate(function: onnx.FunctionProto, node: Node, opset: int) -> Model:
    """The function's body as a model of its own, with the attributes of the calling node.

    Keys of its nodes are put below the caller's: `call/inner`.
    """
    given = {attribute.name: attribute for attribute in completed(node, opset).attribute}
    given = {a.name: a for a in function.attribute_proto} | given
    proto = onnx.ModelProto(ir_version=onnx.IR_VERSION, opset_import=function.opset_import)
    proto.graph.name = function.name
    for inner in function.node:
        _resolve(proto.graph.node.add(), inner, given)
    for name in function.input:
        proto.graph.input.add().name = name
    for name in function.output:
        proto.graph.output.add().name = name
    keys = tuple(f"{node.key}/{key}" for key in expanded_keys(proto, ()))
    return Model(proto, None, "", keys)


def local_functions(model: Model) -> Mapping[tuple[str, str, str], onnx.FunctionProto]:
    """Functions of the model that could not be inlined, by domain, name and overload."""
    functions = model.proto.functions
    return {(canonical_domain(f.domain), f.name, f.overload): f for f in functions}


def standard_function(
    node: Node, opsets: Mapping[str, int], inputs: Sequence[Value]
) -> onnx.FunctionProto:
    """The body the ONNX standard gives the operator for inputs of these types."""
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
    if "" not in imported:  # functions of other domains forget what they are written in
        version = opsets.get("", onnx.defs.onnx_opset_version())
        function.opset_import.add().version = version
    return function


def has_body(node: Node, opset: int) -> bool:
    """Whether the ONNX standard defines the operator by a graph."""
    schema = schema_of(node, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _resolve(
    target: onnx.NodeProto,
    source: onnx.NodeProto,
    given: Mapping[str, onnx.AttributeProto],
) -> None:
    """Copy a node with its references to the function's attributes resolved, bodies included.

    A reference to an attribute that neither the call nor the function sets is left out, so that
    the operator's own default holds.
    """
    target.CopyFrom(source)
    del target.attribute[:]
    for attribute in source.attribute:
        if not attribute.ref_attr_name:
            copy = target.attribute.add()
            copy.CopyFrom(attribute)
            for graph in [copy.g] if copy.HasField("g") else copy.graphs:
                _resolve_graph(graph, given)
        elif attribute.ref_attr_name in given:
            copy = target.attribute.add()
            copy.CopyFrom(given[attribute.ref_attr_name])
            copy.name = attribute.name


def _resolve_graph(graph: onnx.GraphProto, given: Mapping[str, onnx.AttributeProto]) -> None:
    nodes = list(graph.node)
    copies = [type(node)() for node in nodes]
    for copy, node in zip(copies, nodes, strict=True):
        _resolve(copy, node, given)
    del graph.node[:]
    graph.node.extend(copies)
