"""Types of the outputs of a node by our own rules: before onnx is asked, or where it has none."""

from collections.abc import Mapping

import onnx

from tracer.graph.model import Node
from tracer.graph.tensor_type import TensorType
from tracer.shapes import fused, standard, trained
from tracer.shapes.known_node import Known, Rule
from tracer.support.types import Array

_MICROSOFT, _LEARNED = "com.microsoft", "ai.onnx.ml"
_ODD = (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError)
"""What rules raise for ranks or numbers that no operator allows; a run tells what does not fit."""


def outputs(
    node: Node,
    version: int,
    types: Mapping[str, TensorType | None],
    values: Mapping[str, Array | None],
) -> dict[str, TensorType] | None:
    """Returns the types of the outputs by name, as far as they are known.

    None where onnx is to be asked: it has inference at this `version`, or there is no rule. Raises
    ModelError for what the interpreter would refuse.
    """
    rule = rule_of(node, version)
    if rule is None:
        return None
    try:
        told = rule(Known(node, types, values))
    except _ODD:
        told = ()
    found = zip(node.outputs, told, strict=False)
    known = {name: kind for name, kind in found if name and kind is not None}
    return known or ({} if node.domain == _MICROSOFT else None)


def rule_of(node: Node, version: int) -> Rule | None:
    """Returns our rule of an operator that onnx does not know at this version, or has wrong."""
    if node.domain == _LEARNED:
        return trained.RULES.get(node.op_type)
    if node.domain not in ("", _MICROSOFT):
        return None
    if not node.domain and node.op_type in standard.RULES:
        return standard.RULES[node.op_type]
    if not node.domain and node.op_type in standard.OLD_RULES:
        last, of_old = standard.OLD_RULES[node.op_type]
        return of_old if version <= last else None
    rule = fused.RULES.get(node.op_type)
    is_ours = node.domain or node.op_type in fused.OF_ONNX
    return rule if is_ours and not onnx.defs.has(node.op_type, version, node.domain) else None
