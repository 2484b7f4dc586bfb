"""Which nodes of a graph are quantised."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import onnx

from tracer.errors import UsageError
from tracer.graph.provenance import module_of
from tracer.interpreter.plan import reads
from tracer.quantization.options import Options


def select(proto: onnx.ModelProto, options: Options) -> list[str]:
    """Names of the nodes that `nodes` matches, or all, without those that `exclude` matches.

    A pattern is a node's name, its operator or its module, with `*`, `?` and `[…]` as a shell
    has them. Nodes stay float that make, or share a weight with, what the body of an If, Loop or
    Scan reads: onnxruntime's quantizer renames it and does not look into bodies. Raises UsageError
    for a pattern that matches nothing, or where nothing is left.
    """
    nodes = proto.graph.node
    wanted = _matched(nodes, options.nodes) if options.nodes else {node.name for node in nodes}
    chosen = wanted - _matched(nodes, options.exclude) - _shared_with_bodies(nodes)
    if not chosen:
        raise UsageError("no node is left to quantise", "Exclude fewer.")
    return [node.name for node in nodes if node.name in chosen]


def _shared_with_bodies(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    captured = {name for node in nodes for name in set(reads(node)) - set(node.input)}
    return {node.name for node in nodes if captured.intersection((*node.input, *node.output))}


def _matched(nodes: Sequence[onnx.NodeProto], patterns: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        matched = {node.name for node in nodes if _matches(node, pattern)}
        if not matched:
            names = ", ".join(dict.fromkeys(node.op_type for node in nodes))
            raise UsageError(
                f"'{pattern}' matches no node, operator or module",
                f"The operators, once constants are folded, are {names}.",
            )
        found |= matched
    return found


def _matches(node: onnx.NodeProto, pattern: str) -> bool:
    names = (node.name, node.op_type, module_of(node) or "")
    return any(name == pattern or fnmatchcase(name, pattern) for name in names if name)
