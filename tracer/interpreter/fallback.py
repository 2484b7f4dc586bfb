"""Runs operators that `ops/` lacks by the classes of onnx.reference."""

import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tracer.graph.model import Node
from tracer.interpreter.binding import Body, Kernel
from tracer.interpreter.schemas import completed
from tracer.interpreter.values import Value

_HOMES = {
    "": "onnx.reference.ops._op_list",
    "ai.onnx.ml": "onnx.reference.ops.aionnxml._op_list",
    "ai.onnx.preview": "onnx.reference.ops.aionnx_preview._op_list",
    "ai.onnx.preview.training": "onnx.reference.ops.aionnx_preview_training._op_list",
}


def reference_kernel(node: Node, opset: int, opsets: Mapping[str, int]) -> Kernel | None:
    """Returns the kernel of onnx.reference for `node`, or None if it has none at this opset."""
    implementation = reference_class(node, opset)
    if implementation is None or any(a.HasField("g") for a in node.proto.attribute):
        return None
    run_params = {
        "log": _ignore,
        "opsets": dict(opsets),
        "verbose": 0,
        "new_ops": None,
        "existing_functions": {},
        "evaluator_cls": None,
    }
    instance = implementation(completed(node, opset), run_params)

    def kernel(inputs: Sequence[Value], graphs: Mapping[str, Body]) -> Sequence[Value]:
        outputs: Sequence[Value] = instance.run(*inputs)
        return outputs

    return kernel


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
