"""Selects the nodes to quantise, by patterns."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import onnx

from tracer.errors import UsageError
from tracer.graph.provenance import module_of
from tracer.quantization.options import QuantizationOptions
from tracer.quantization.ordering import reads


def select(proto: onnx.ModelProto, options: QuantizationOptions) -> list[str]:
    """Returns the names of the nodes that `nodes` matches (default: all) and `exclude` does not.

    A pattern is a node's name, operator or module, with `*`, `?` and `[…]` as in a shell. Nodes
    stay float if the body of an If, Loop or Scan reads their outputs or shares their weights:
    onnxruntime's quantizer renames these tensors, but not in bodies. Raises UsageError for a
    pattern that matches nothing, or where `exclude` leaves no node.
    """
    nodes = proto.graph.node
    included = matched(nodes, options.nodes) if options.nodes else {node.name for node in nodes}
    chosen = included - matched(nodes, options.exclude) - _shared_with_bodies(nodes)
    if not chosen and options.exclude:
        raise UsageError("no node remains to be quantised", "Exclude fewer.")
    return [node.name for node in nodes if node.name in chosen]


def _shared_with_bodies(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    captured = {name for node in nodes for name in set(reads(node)) - set(node.input)}
    return {node.name for node in nodes if captured.intersection((*node.input, *node.output))}


def matched(nodes: Sequence[onnx.NodeProto], patterns: Sequence[str]) -> set[str]:
    """Returns the names of the nodes that match. Raises UsageError for a pattern without any."""
    names: set[str] = set()
    for pattern in patterns:
        matched = {node.name for node in nodes if _matches(node, pattern)}
        if not matched:
            operators = ", ".join(dict.fromkeys(node.op_type for node in nodes))
            raise UsageError(
                f"'{pattern}' matches no node, operator or module",
                f"The operators, after constant folding, are {operators}.",
            )
        names |= matched
    return names


def _matches(node: onnx.NodeProto, pattern: str) -> bool:
    names = (node.name, node.op_type, module_of(node) or "")
    return any(name == pattern or fnmatchcase(name, pattern) for name in names if name)
