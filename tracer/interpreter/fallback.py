"""Runs operators that `ops/` lacks by the classes of onnx.reference."""

import importlib
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx

from tracer import limits
from tracer.graph import tensor_type
from tracer.graph.model import Node
from tracer.interpreter import values
from tracer.interpreter.binding import Body, Kernel
from tracer.interpreter.schemas import completed
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
"""Inputs of up to so many elements may hold sizes."""

_WIDE, _PIECES = 12, 32
"""Bytes that operators on texts need ÷ those of the texts: numpy's own strings have four bytes a
character, and pieces of a text are objects of 50 bytes."""


def reference_kernel(node: Node, opset: int, opsets: Mapping[str, int]) -> Kernel | None:
    """Returns the kernel of onnx.reference for `node`, or None if it has none at this opset."""
    if not has_reference(node, opset):
        return None
    implementation = reference_class(node, opset)
    run_params = {
        "log": _ignore,
        "opsets": dict(opsets),
        "verbose": 0,
        "new_ops": None,
        "existing_functions": {},
        "evaluator_cls": None,
    }
    proto = completed(node, opset)
    instance = implementation(proto, run_params)

    def kernel(inputs: Sequence[Value], graphs: Mapping[str, Body]) -> Sequence[Value]:
        _allow_outputs(proto, opset, inputs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numpy and Pillow: users cannot act on them
            return [_of_objects(output) for output in instance.run(*inputs)]

    return kernel


def has_reference(node: Node, opset: int) -> bool:
    """Whether onnx.reference computes `node`; it runs no bodies."""
    has_bodies = any(a.HasField("g") for a in node.proto.attribute)
    return not has_bodies and reference_class(node, opset) is not None


def _of_objects(value: Value) -> Value:
    """Returns texts as objects, as all other operators hold them."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "US":
        return value.astype(object)
    return value


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


def _ignore(pattern: str, *values: object) -> None:
    """Drops the log messages of onnx.reference."""
