"""Gives a model in QONNX a stand-in that onnxruntime runs."""

from collections.abc import Mapping
from dataclasses import replace

import onnx
from onnx.external_data_helper import load_external_data_for_model

from tracer.errors import ModelError
from tracer.graph import loading, operators
from tracer.graph.model import Model, StandIn
from tracer.quantization.from_qonnx import from_qonnx

_LISTED = 3
"""Nodes that a message names."""


def for_onnxruntime(model: Model) -> Model:
    """Returns `model` with a stand-in that onnxruntime can run, and a note; itself without QONNX.

    Raises ModelError where the opset is too old and onnx cannot convert the graph, and for nodes
    that ONNX's operators do not express.
    """
    rounding = [
        node for node in model.nodes if operators.is_qonnx_quantizer(node.domain, node.op_type)
    ]
    if not rounding or model.stand_in is not None:
        return model
    _refuse(model, {node.key: "it is in a body" for node in rounding if node.scope.path})
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    main = [node for node in model.nodes if not node.scope.path]
    for node, known in zip(proto.graph.node, main, strict=True):
        node.name = known.key
    if model.path is not None:
        load_external_data_for_model(proto, str(model.path.parent))
    converted = from_qonnx(proto, model.name)
    _refuse(model, converted.left)
    own = {node.key: node.key for node in model.nodes}
    stand_in = StandIn(
        replace(loading.from_proto(converted.proto), subject=model.name),
        {**own, **converted.origins},
    )
    return replace(model, stand_in=stand_in, notes=(*model.notes, converted.note))


def _refuse(model: Model, left: Mapping[str, str]) -> None:
    """Raises ModelError for nodes that stay, with the reasons, by key."""
    if not left:
        return
    types = {node.key: node.op_type for node in model.nodes}
    named = [f"'{key}' ({types[key]}): {why}" for key, why in [*left.items()][:_LISTED]]
    raise ModelError(
        f"{model.name}: onnxruntime has no operators of QONNX, and {len(left)} of its nodes cannot "
        f"be converted to ONNX's: {'; '.join(named)}",
        "`tracer interpret` and `tracer count` need no onnxruntime.",
    )
