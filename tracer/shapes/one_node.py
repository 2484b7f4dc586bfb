"""Infers the types of the outputs of one node by onnx, from types and values of its inputs."""

from collections.abc import Mapping

import onnx

from tracer.errors import ModelError
from tracer.graph import tensor_type
from tracer.graph.model import Model, Node
from tracer.graph.shape_inference import FAILURES
from tracer.graph.tensor_type import TensorType
from tracer.shapes import rules
from tracer.shapes.contrib import as_standard, with_one_dtype
from tracer.support.types import Array


class MisfitError(Exception):
    """The inputs of a node do not fit together, or do not fit its attributes."""


def node_outputs(
    node: Node,
    model: Model,
    types: Mapping[str, TensorType | None],
    values: Mapping[str, Array | None],
) -> dict[str, TensorType]:
    """Returns the types of the outputs by name, as far as onnx can tell them.

    `types` and `values` of the inputs are by name; a value is None where it is not known. Raises
    MisfitError where a rule or onnx finds a contradiction.
    """
    version = model.opsets.get(node.domain)
    if version is None:
        return {}
    like = model.operators.shapes.get((node.domain, node.op_type))
    if like is not None:
        return _like(node, like, types)
    try:
        own = rules.outputs(node, version, types, values)
    except ModelError as error:
        raise MisfitError from error
    if own is not None:
        return own
    proto, domain, version = as_standard(node, version)
    if any(types[name] is None for name in proto.input if name):
        return {}
    known = {name: kind for name, kind in types.items() if kind is not None and name in proto.input}
    if domain != node.domain:
        known = with_one_dtype(known)
    protos = {name: tensor_type.to_type_proto(kind) for name, kind in known.items()}
    data = {n: onnx.numpy_helper.from_array(v, n) for n, v in values.items() if v is not None}
    try:
        outputs = onnx.shape_inference.infer_node_outputs(
            onnx.defs.get_schema(proto.op_type, version, domain), proto, protos, data,
            opset_imports=[onnx.helper.make_opsetid(domain, version)],
            ir_version=model.proto.ir_version,
        )  # fmt: skip
    except onnx.defs.SchemaError:  # an operator that it does not know
        return {}
    except FAILURES as error:
        raise MisfitError from error
    found = {name: tensor_type.from_type_proto(kind) for name, kind in outputs.items()}
    return {name: kind for name, kind in found.items() if kind is not None}


def _like(node: Node, like: int, types: Mapping[str, TensorType | None]) -> dict[str, TensorType]:
    """Returns the type of the first output, that of the input at `like`, if it is known."""
    known = types.get(node.inputs[like]) if like < len(node.inputs) else None
    return {} if known is None else {node.outputs[0]: known}
