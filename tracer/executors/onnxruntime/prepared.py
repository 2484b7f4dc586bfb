"""The model as onnxruntime is given it: the same graph, its nodes under names that are safe.

onnxruntime reports times under node names. They may be empty, repeated, or hold characters that
older releases write into their profile unescaped; so each node is named after its index, and the
names that come back, derived ones included, are translated to node keys.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

    from tracer.model import Model

_SAFE = re.compile(r"__tracer_(\d+)__")
_FIRST_IR_WITHOUT_LISTED_WEIGHTS = 4


def serialize(model: Model) -> bytes:
    """The model with safe node names, external data left where they are.

    Initializers listed as graph inputs are taken off that list: onnxruntime would treat them as
    overridable and neither fold nor fuse them. Before IR 4 the list is obligatory and harmless.
    """
    import onnx

    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for index, node in enumerate(_nodes(proto.graph)):
        node.name = f"__tracer_{index}__"
    if proto.ir_version >= _FIRST_IR_WITHOUT_LISTED_WEIGHTS:
        kept = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in model.inputs]
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
    return proto.SerializeToString()


def original(model: Model, name: str) -> str:
    """`name` as onnxruntime reports it, with the keys of the user's nodes put back in."""
    return _SAFE.sub(lambda match: model.keys[int(match[1])], name)


def exact_key(model: Model, name: str) -> str | None:
    """The key of the node whose safe name is just `name`, else None."""
    match = _SAFE.fullmatch(name)
    return model.keys[int(match[1])] if match else None


def folder_of(model: Model) -> Path | None:
    """Where the external data lie."""
    return model.path.resolve().parent if model.path is not None else None


def _nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Every node, in the order of `Model.nodes`."""
    found: list[onnx.NodeProto] = []
    for node in graph.node:
        found.append(node)
        for attribute in node.attribute:
            bodies = [attribute.g] if attribute.HasField("g") else []
            for body in (*bodies, *attribute.graphs):
                found += _nodes(body)
    return found
