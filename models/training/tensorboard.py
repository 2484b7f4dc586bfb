"""Write curves and the model graph of a run for TensorBoard, without TensorFlow."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import onnx

from models.training.loop import Epoch
from tracer.errors import InputError
from tracer.graph.model import Model, Node
from tracer.support.imports import require

EVENT_FILES = "events.out.tfevents.*"
CURVES = {
    "loss/train": "loss",
    "loss/validation": "validation_loss",
    "accuracy/train": "accuracy",
    "accuracy/validation": "validation_accuracy",
    "seconds": "seconds",
    "batch/load_ms": "loading_ms",
    "batch/learn_ms": "learning_ms",
}


class Board:
    """An event file in `folder`; `is_new` is whether the folder has no earlier one.

    Raises UsageError without tensorboardX, InputError for a folder that cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        require("--tensorboard", "tensorboardX")
        from tensorboardX.writer import FileWriter

        earlier = len(list(folder.glob(EVENT_FILES)))
        self.is_new = not earlier
        try:  # file names have a resolution of one second
            self._writer: Any = FileWriter(str(folder), filename_suffix=f".{earlier}")
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be written ({error.strerror})", "Give another --tensorboard."
            ) from error

    def add_epoch(self, row: Epoch) -> None:
        """Adds a point to each curve."""
        from tensorboardX.summary import scalar

        for tag, name in CURVES.items():
            value = getattr(row, name)
            if value is not None:
                self._writer.add_summary(scalar(tag, value), row.epoch)

    def add_graph(self, model: Model) -> None:
        """Adds the nodes of an ONNX model, grouped by module."""
        self._writer.add_onnx_graph(graph_def(model))

    def close(self) -> None:
        """Flushes and closes the file."""
        self._writer.close()


def graph_def(model: Model) -> Any:
    """Returns an ONNX model as TensorFlow's GraphDef, the format that TensorBoard draws.

    TensorBoard groups nodes by the slashes of their names, so a node is called `module/path/key`.
    Weights are not drawn. GraphDef has no subgraphs: outer tensors that the body of an If, Loop or
    Scan reads become inputs of the node.
    """
    from tensorboardX.proto.graph_pb2 import GraphDef
    from tensorboardX.proto.node_def_pb2 import NodeDef
    from tensorboardX.proto.versions_pb2 import VersionDef

    inputs = [value.name for value in model.inputs]
    nodes = [node for node in model.nodes if not node.scope.path]
    producers = {name: f"inputs/{name}" for name in inputs}
    for node in nodes:
        producers |= {name: _label(node) for name in node.outputs if name}
    captured = _captured(model)
    drawn = [NodeDef(name=producers[name], op="Input") for name in inputs]
    for node in nodes:
        sources = [
            producers[name] for name in (*node.inputs, *captured[node.key]) if name in producers
        ]
        label, kind = _label(node), node.qualified_type
        drawn.append(NodeDef(name=label, op=kind, input=sources, attr=_attributes(node)))
    for value in model.graph.output:
        sources = (
            [producers[value.name]] if value.name in producers else []
        )  # weights have no producer
        drawn.append(NodeDef(name=f"outputs/{value.name}", op="Output", input=sources))
    return GraphDef(node=drawn, versions=VersionDef(producer=22))


def _label(node: Node) -> str:
    module = (node.module or "").replace(".", "/")
    return f"{module}/{node.key}" if module else node.key


def _captured(model: Model) -> dict[str, list[str]]:
    """Returns the names that the bodies of each node read, by node key; may include local names."""
    captured: dict[str, list[str]] = defaultdict(list)
    for node in model.nodes:
        owners = [scope.owner for scope in node.scope.outward() if scope.owner is not None]
        if owners:
            captured[owners[-1].key] += node.inputs
    return captured


def _attributes(node: Node) -> dict[str, Any]:
    from tensorboardX.proto.attr_value_pb2 import AttrValue

    texts = {
        a.name: str(onnx.helper.printable_attribute(a))
        for a in node.proto.attribute
        if not _is_body(a)
    }
    if node.source:
        texts["source"] = node.source
    return {name: AttrValue(s=text.encode()) for name, text in texts.items()}


def _is_body(attribute: onnx.AttributeProto) -> bool:
    return attribute.HasField("g") or bool(attribute.graphs)
