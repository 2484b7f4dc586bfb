"""Curves and the data-flow graph of a run, for TensorBoard, without TensorFlow."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import onnx

from models.training.loop import Epoch
from tracer.errors import InputError
from tracer.graph.model import Model, Node
from tracer.support.optional import require

EVENT_FILES = "events.out.tfevents.*"
CURVES = {
    "loss/train": "loss",
    "loss/validation": "validation_loss",
    "accuracy/train": "accuracy",
    "accuracy/validation": "validation_accuracy",
    "seconds": "seconds",
}


class Board:
    """An event file in `folder`; `is_new` says that no earlier one lies there.

    Raises UsageError where tensorboardX is not installed, InputError for a folder that cannot be.
    """

    def __init__(self, folder: Path) -> None:
        require("--tensorboard", "tensorboardX")
        from tensorboardX.writer import FileWriter

        earlier = len(list(folder.glob(EVENT_FILES)))
        self.is_new = not earlier
        try:  # two files that begin in one second would have one name
            self._writer: Any = FileWriter(str(folder), filename_suffix=f".{earlier}")
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be written ({error.strerror})", "Give another --tensorboard."
            ) from error

    def add_epoch(self, row: Epoch) -> None:
        """A point on every curve."""
        from tensorboardX.summary import scalar

        for tag, name in CURVES.items():
            self._writer.add_summary(scalar(tag, getattr(row, name)), row.epoch)

    def add_graph(self, model: Model) -> None:
        """The nodes of an ONNX model, folded by the module they came from."""
        self._writer.add_onnx_graph(graph_def(model))

    def close(self) -> None:
        """Writes what is left and close the file."""
        self._writer.close()


def graph_def(model: Model) -> Any:
    """Returns an ONNX model as TensorFlow's GraphDef, which is what TensorBoard draws.

    The slashes of a node's name are the boxes it is folded into, so a node is called
    `module/path/key`. Weights are not drawn. GraphDef knows no subgraphs: what the body of an If,
    Loop or Scan reads from outside is read by the node itself.
    """
    from tensorboardX.proto.graph_pb2 import GraphDef
    from tensorboardX.proto.node_def_pb2 import NodeDef
    from tensorboardX.proto.versions_pb2 import VersionDef

    inputs = [value.name for value in model.inputs]
    nodes = [node for node in model.nodes if not node.scope.path]
    makers = {name: f"inputs/{name}" for name in inputs}
    for node in nodes:
        makers |= {name: _label(node) for name in node.outputs if name}
    captured = _captured(model)
    drawn = [NodeDef(name=makers[name], op="Input") for name in inputs]
    for node in nodes:
        sources = [makers[name] for name in (*node.inputs, *captured[node.key]) if name in makers]
        label, kind = _label(node), node.qualified_type
        drawn.append(NodeDef(name=label, op=kind, input=sources, attr=_attributes(node)))
    for value in model.graph.output:
        sources = [makers[value.name]] if value.name in makers else []  # else it is a weight
        drawn.append(NodeDef(name=f"outputs/{value.name}", op="Output", input=sources))
    return GraphDef(node=drawn, versions=VersionDef(producer=22))


def _label(node: Node) -> str:
    module = (node.module or "").replace(".", "/")
    return f"{module}/{node.key}" if module else node.key


def _captured(model: Model) -> dict[str, list[str]]:
    """What is read inside each node of the main graph, by its key; a local name may be among it."""
    found: dict[str, list[str]] = defaultdict(list)
    for node in model.nodes:
        owners = [scope.owner for scope in node.scope.outward() if scope.owner is not None]
        if owners:
            found[owners[-1].key] += node.inputs
    return found


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
