"""The model as onnxruntime is given it: the same graph, its nodes under names that are safe.

onnxruntime reports times under node names. They may be empty, repeated, or hold characters that
older releases write into their profile unescaped; so each node is named after its index, and the
names that come back, derived ones included, are translated to node keys.
"""

from __future__ import annotations

import re
from pathlib import Path

import onnx

from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model, node_protos

_SAFE = re.compile(r"__tracer_(\d+)__")


def serialize(model: Model) -> bytes:
    """The model with safe node names, external data left where they are.

    Initializers listed as graph inputs are taken off that list: onnxruntime would treat them as
    overridable and neither fold nor fuse them. Before IR 4 the list is obligatory and harmless.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for index, node in enumerate(node_protos(proto.graph)):
        node.name = f"__tracer_{index}__"
    if proto.ir_version >= IR_WITH_UNLISTED_WEIGHTS:
        kept = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in model.inputs]
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
    return proto.SerializeToString()


def original(model: Model, name: str) -> str:
    """`name` as onnxruntime reports it, with the keys of the user's nodes put back in."""
    return _SAFE.sub(lambda match: _key(model, match) or match[0], name)


def named_node(model: Model, name: str) -> str | None:
    """The key of the node that `name` is, or is derived from (`…_token_1`, `…/duplicated`)."""
    match = _SAFE.match(name)
    return _key(model, match) if match else None


def _key(model: Model, match: re.Match[str]) -> str | None:
    index = int(match[1])
    return model.keys[index] if index < len(model.keys) else None  # else a name of the user's


def folder_of(model: Model) -> Path | None:
    """Where the external data lie."""
    return model.path.resolve().parent if model.path is not None else None
