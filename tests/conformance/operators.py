"""Every version of every operator that the installed onnx defines, and what computes it."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import onnx

from tracer.graph.model import Node, Scope, canonical_domain
from tracer.interpreter.fallback import has_body, reference_class
from tracer.interpreter.operators import standard

Key = tuple[str, str, int]
"""Domain, name and version of an operator."""


def operators() -> Iterator[Key]:
    """Domain, name and version of every operator that is not deprecated and that we compute."""
    yield from sorted(key for key in _schemas() if computed_by(key))


def schema_of(key: Key) -> Any:
    """The schema of an operator's version."""
    return _schemas()[key]


def computed_by(key: Key) -> str:
    """What computes an operator at a version; '' for nothing."""
    domain, name, since = key
    node = node_of(key)
    if standard().find(domain, name, since):
        return "tracer"
    if reference_class(node, since) is not None:
        return "onnx.reference"
    return "its graph" if has_body(node, since) else ""


def node_of(key: Key) -> Node:
    """A node of an operator, without inputs and attributes."""
    domain, name, _ = key
    proto = onnx.NodeProto(op_type=name, domain=domain)
    scope = Scope(onnx.GraphProto())
    return Node(name, 0, name, canonical_domain(domain), proto, scope, (), ())


@cache
def _schemas() -> dict[Key, Any]:
    schemas = onnx.defs.get_all_schemas_with_history()
    return {(s.domain, s.name, s.since_version): s for s in schemas if not s.deprecated}
