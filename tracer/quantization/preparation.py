"""What onnxruntime advises to do to a float model before it is quantised."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx

from tracer.errors import LimitError, ModelError
from tracer.executors.onnxruntime import node_names, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.model import Model, canonical_domain, node_protos
from tracer.graph.quantized import quantized_node
from tracer.quantization import metadata

_PROTOBUF_LIMIT = 2**31 - 1


def prepare(model: Model) -> onnx.ModelProto:
    """A copy of `model`, its weights inside, as onnxruntime's quantizer should be given it.

    Basic optimisation folds constants and puts BatchNormalization into the convolution before it,
    which would be a node of its own otherwise, quantised for itself. Nodes are called by their
    keys and keep module and source; one that was fused is called after the first of its nodes.
    Raises ModelError for a model that is quantised already or does not run, LimitError for one of
    more than 2 GB.
    """
    _refuse_quantized(model)
    with tempfile.TemporaryDirectory(prefix="tracer-quantize-") as folder:
        path = Path(folder) / "prepared.onnx"
        options = OrtSettings(optimization="basic")
        sessions.Factory(model, node_names.serialize(model), options).open(optimized=path)
        proto = onnx.load(path)
    if proto.ByteSize() > _PROTOBUF_LIMIT:
        raise LimitError(f"{model.name}: quantising takes models of up to 2 GB")
    _rename(proto, model)
    keep_imports(proto, model)
    return onnx.shape_inference.infer_shapes(proto)


def keep_imports(proto: onnx.ModelProto, model: Model) -> None:
    """Leave the opsets of domains that are used: onnxruntime lists all that it knows."""
    used = {canonical_domain(node.domain) for node in node_protos(proto.graph)} | {""}
    kept = {
        canonical_domain(entry.domain): entry.version
        for entry in proto.opset_import
        if canonical_domain(entry.domain) in used | set(model.opsets)
    }
    del proto.opset_import[:]
    for domain, version in kept.items():
        proto.opset_import.add(domain=domain, version=version)


def _refuse_quantized(model: Model) -> None:
    node = quantized_node(model)
    if node is not None:
        raise ModelError(
            f"{model.name}: it is quantised already: node '{node.key}' is a {node.op_type}",
            "Give the float model it was made of.",
        )


def _rename(proto: onnx.ModelProto, model: Model) -> None:
    """From the names that are safe for onnxruntime to keys; metadata are lost in fusions."""
    own = {node.key: node.proto.metadata_props for node in model.nodes}
    known = set()
    for node in node_protos(proto.graph):
        key = node_names.named_node(model, node.name)
        node.name = node_names.original(model, node.name)
        if key is not None:
            known.add(node.name)
            del node.metadata_props[:]
            node.metadata_props.extend(own[key])
    metadata.pass_on(proto, known)
