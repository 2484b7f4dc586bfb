"""Imports the domain of QONNX in models that use it and lack the import, as old exporters did."""

import onnx

from tracer.graph import qonnx
from tracer.graph.model import node_protos

_VERSION = 1
"""The version of the domain before it was imported."""


def missing(proto: onnx.ModelProto) -> tuple[str, ...]:
    """Returns the names of QONNX's domain that nodes of the main graph use and nothing imports."""
    imported = {entry.domain for entry in proto.opset_import}
    used = {node.domain for node in node_protos(proto.graph)}
    return tuple(sorted((used & qonnx.SYNONYMS) - imported))


def add(proto: onnx.ModelProto, domains: tuple[str, ...]) -> None:
    """Imports `domains` in `proto`."""
    for domain in domains:
        proto.opset_import.add(domain=domain, version=_VERSION)


def note(domains: tuple[str, ...]) -> str:
    """Returns what a user is told of imports that were missing."""
    listed = " and ".join(f"'{domain}'" for domain in domains)
    return f"the model does not import {listed}: version {_VERSION} of QONNX's operators is assumed"
