"""Renames nodes by index for onnxruntime, and translates the names it reports to node keys.

onnxruntime reports times by node name. Names may be empty or repeated, or contain characters that
older releases do not escape in the profile. Names that onnxruntime derives are translated too.
"""

import re

import onnx

from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model, encoded, node_protos

_NUMBERED = re.compile(r"_token_\d+$")
_SAFE = re.compile(r"__tracer_(\d+)__")


def serialize(model: Model) -> bytes:
    """Returns the model with safe node names; external data stay in their files.

    Initializers listed as graph inputs are removed from that list: onnxruntime would treat them as
    overridable and neither fold nor fuse them. Before IR 4 the list is required and harmless.
    """
    proto = with_safe_names(model)
    if proto.ir_version >= IR_WITH_UNLISTED_WEIGHTS:
        inputs = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in model.inputs]
        del proto.graph.input[:]
        proto.graph.input.extend(inputs)
    return encoded(proto, model.name)


def with_safe_names(model: Model) -> onnx.ModelProto:
    """Returns a copy of the model with safe node names.

    The metadata are left out: every session would read them again, and nothing asks for them.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    proto.ClearField("metadata_props")
    for index, node in enumerate(node_protos(proto.graph)):
        node.name = safe(index)
    return proto


def safe(index: int) -> str:
    """Returns the safe name of the node with this index."""
    return f"__tracer_{index}__"


def original(model: Model, name: str) -> str:
    """Returns a text of onnxruntime with the keys of the user's nodes instead of safe names."""
    return _SAFE.sub(lambda match: _key(model, match) or match[0], name)


def in_file(model: Model, name: str) -> str:
    """Returns a text of onnxruntime with the names that the user's nodes have in their file."""
    return _SAFE.sub(lambda match: model.nodes[int(match[1])].proto.name, name)


def named_node(model: Model, name: str) -> str | None:
    """Returns the key of the node named `name`, or with a derived name (`…_token_1`)."""
    match = _SAFE.match(name)
    return _key(model, match) if match else None


def unnumbered(name: str) -> str:
    """Returns a name without the number that onnxruntime adds to make it unique.

    Which of several nodes has which number differs from session to session. Without it they share a
    name, and are joined in the order in which they run.
    """
    return _NUMBERED.sub("", name)


def _key(model: Model, match: re.Match[str]) -> str | None:
    index = int(match[1])
    return model.keys[index] if index < len(model.keys) else None  # else a name of the user's
