"""Finds the node in which onnxruntime crashes, by running ever smaller parts of a model."""

from collections.abc import Callable
from typing import Any

import onnx

from tracer.containment import search
from tracer.executors.onnxruntime import node_names, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.encoding import encoded
from tracer.graph.model import Model


def find(model: Model, run: Callable[[Any], object]) -> None:
    """Tells the node of the main graph with which `model` crashes; returns where it does not.

    `run` runs a session once. The parts run without optimisation, and begin with the first node:
    the last node of the smallest part that crashes is the cause.
    """
    proto = onnx.ModelProto.FromString(node_names.serialize(model))

    def dies(count: int) -> bool:
        return search.crashes(lambda: run(_session(model, proto, count)))

    runs, crashes = 0, len(proto.graph.node)
    if not dies(crashes):
        return
    while crashes - runs > 1:
        middle = (runs + crashes) // 2
        if dies(middle):
            crashes = middle
        else:
            runs = middle
    node = proto.graph.node[crashes - 1]
    key = node_names.named_node(model, node.name) or node.name
    search.tell(model.name, sessions.ran(f"node {key} ({node.op_type})"), sessions.WITHOUT)


def _session(model: Model, proto: onnx.ModelProto, count: int) -> Any:
    """Returns a session on the first `count` nodes, whose outputs nothing reads."""
    part = onnx.ModelProto()
    part.CopyFrom(proto)
    graph = part.graph
    del graph.node[count:], graph.output[:]
    read = {name for node in graph.node for name in node.input}
    made = dict.fromkeys(name for node in graph.node for name in node.output if name)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name not in read)
    settings = OrtSettings(threads=1, optimization="none")
    return sessions.Factory(model, encoded(part, model.name), settings).open()
