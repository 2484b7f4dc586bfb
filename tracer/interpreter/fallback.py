"""What computes the nodes that `ops/` lacks: onnx.reference, a function body, another runtime."""

import importlib
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np
import onnx

from tracer import limits
from tracer.errors import ModelError
from tracer.graph import tensor_type
from tracer.graph.model import Model, Node, canonical_domain, expanded_keys
from tracer.interpreter import values
from tracer.interpreter.operators import Body, Kernel
from tracer.interpreter.values import Value

_HOMES = {
    "": "onnx.reference.ops._op_list",
    "ai.onnx.ml": "onnx.reference.ops.aionnxml._op_list",
    "ai.onnx.preview": "onnx.reference.ops.aionnx_preview._op_list",
    "ai.onnx.preview.training": "onnx.reference.ops.aionnx_preview_training._op_list",
}
_FAILURES = (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError,
             ValueError, IndexError)  # fmt: skip
"""What inference raises for inputs that do not fit, and for types that it does not know."""
_SMALL = 64
"""Inputs with at most this many elements are read as shapes or axes, so their values are needed."""
_WIDE, _PIECES = 12, 32
"""Bytes that operators on texts need ÷ those of the texts: numpy's own strings have four bytes a
character, and pieces of a text are objects of 50 bytes."""


class Fallback(Protocol):
    """Computes nodes that nothing else does; the seam for another runtime."""

    name: str
    """What it is, for messages."""

    def refuses(self, node: Node, opsets: Mapping[str, int]) -> str:
        """Returns why it cannot compute a node; '' if it can, as far as can be told before."""

    def kernel(self, node: Node, model: Model, constants: Collection[str]) -> Kernel:
        """Returns the kernel of a node, whose inputs in `constants` are the same in all runs."""


def refusal(model: Model, nodes: Sequence[Node], fallback: Fallback | None) -> ModelError:
    """Returns the error that names all operators of `nodes`, which nothing computes."""
    by_operator: dict[str, list[Node]] = {}
    for node in nodes:
        by_operator.setdefault(node.qualified_type, []).append(node)
    listed = []
    for name, found in by_operator.items():
        first = f"'{found[0].key}'"
        where = f"node {first}" if len(found) == 1 else f"{len(found)} nodes, the first is {first}"
        why = "" if fallback is None else f"; {fallback.refuses(found[0], model.opsets)}"
        listed.append(f"{name} ({where}{why})")
    many = len(by_operator) > 1
    what = "these operators have" if many else "this operator has"
    hint = "Write functions for them: --operators FILE.py computes them."
    if fallback is None:
        hint = f"tracer interpret --fallback ort computes those that onnxruntime has. {hint}"
    return ModelError(f"{model.name}: {what} no implementation here: {', '.join(listed)}", hint)


def note(nodes: Sequence[Node], fallback: Fallback) -> str:
    """Returns the sentence that says which nodes the fallback computes."""
    by_operator: dict[str, list[str]] = {}
    for node in nodes:
        by_operator.setdefault(node.qualified_type, []).append(f"'{node.key}'")
    listed = "; ".join(f"{name}: {', '.join(keys)}" for name, keys in by_operator.items())
    count = f"{len(nodes)} node{'s' * (len(nodes) > 1)}"
    return f"{fallback.name} computes {count} that the interpreter has no operator for ({listed})"


def reference_kernel(node: Node, opset: int, opsets: Mapping[str, int]) -> Kernel | None:
    """Returns the kernel of onnx.reference for `node`, or None if it has none at this opset."""
    if not has_reference(node, opset):
        return None
    implementation = reference_class(node, opset)
    run_params = {
        "log": lambda pattern, *values: None, "opsets": dict(opsets), "verbose": 0,
        "new_ops": None, "existing_functions": {}, "evaluator_cls": None,
    }  # fmt: skip
    proto = completed(node, opset)
    instance = implementation(proto, run_params)

    def kernel(inputs: Sequence[Value], graphs: Mapping[str, Body]) -> Sequence[Value]:
        _allow_outputs(proto, opset, inputs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numpy and Pillow: users cannot act on them
            outputs = instance.run(*inputs)
        return [  # texts are objects, as all other operators have them
            v.astype(object) if isinstance(v, np.ndarray) and v.dtype.kind in "US" else v
            for v in outputs
        ]

    return kernel


def has_reference(node: Node, opset: int) -> bool:
    """Whether onnx.reference computes `node`; it runs no bodies."""
    has_bodies = any(a.HasField("g") for a in node.proto.attribute)
    return not has_bodies and reference_class(node, opset) is not None


def reference_class(node: Node, opset: int) -> Any:
    """Returns the class of onnx.reference that computes the node's operator, or None."""
    versions = _operators(node.domain).get(node.op_type, {})
    since = max((v for v in versions if v is not None and v <= opset), default=None)
    return versions.get(since)


@cache
def _operators(domain: str) -> Mapping[str, Mapping[int | None, Any]]:
    """Returns the classes by operator and version; version None serves all versions."""
    if domain not in _HOMES:
        return {}
    classes: dict[str, dict[int | None, Any]] = importlib.import_module(
        _HOMES[domain]
    )._build_registered_operators()
    for versions in classes.values():
        if len(versions) > 1:  # onnx adds the newest one as the default of all versions
            versions.pop(None, None)
    return classes


def _allow_outputs(proto: onnx.NodeProto, opset: int, inputs: Sequence[Value]) -> None:
    """Raises LimitError for outputs beyond the limit, as far as onnx can tell their shapes.

    Sizes may be among the values of small inputs.
    """
    texts = [v for v in inputs if isinstance(v, np.ndarray) and v.dtype == object]
    copies = _PIECES if proto.op_type == "StringSplit" else _WIDE
    limits.in_force().room(sum(map(values.nbytes, texts)) * copies)
    given = {name: value for name, value in zip(proto.input, inputs, strict=False) if name}
    small = {
        name: onnx.numpy_helper.from_array(value)
        for name, value in given.items()
        if isinstance(value, np.ndarray) and value.size <= _SMALL and value.dtype.kind in "iuf"
    }
    try:
        outputs = onnx.shape_inference.infer_node_outputs(
            onnx.defs.get_schema(proto.op_type, opset, proto.domain),
            proto,
            {name: values.type_proto(value) for name, value in given.items()},
            small,
            opset_imports=[onnx.helper.make_opsetid(proto.domain, opset)],
            ir_version=onnx.IR_VERSION,
        )
    except _FAILURES:
        return  # the operator tells what does not fit
    for output in outputs.values():
        type_ = tensor_type.from_type_proto(output)
        if type_ is not None and type_.concrete is not None:
            limits.allow(type_.concrete, type_.dtype)


def has_body(node: Node, opset: int) -> bool:
    """Whether the ONNX standard defines the operator by a graph."""
    schema = schema_of(node, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


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
            bodies = [(copy.g, attribute.g)] if copy.HasField("g") else zip(
                copy.graphs, attribute.graphs, strict=True)  # fmt: skip
            for body, unresolved in bodies:
                del body.node[:]
                for node in unresolved.node:
                    _resolve(body.node.add(), node, attributes)
        elif attribute.ref_attr_name in attributes:
            copy = target.attribute.add()
            copy.CopyFrom(attributes[attribute.ref_attr_name])
            copy.name = attribute.name


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
