"""What onnxruntime makes of every tensor of the main graph, for comparisons node by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from tracer.executors.onnxruntime import node_names, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.model import Model
from tracer.inputs.feedset import Feeds


def tensors(model: Model, feeds: Feeds, threads: int = 0) -> Mapping[str, Any]:
    """Every output of every node of the main graph by name, from one run without optimisation.

    Raises ModelError or InputError for what onnxruntime refuses.
    """
    proto = onnx.ModelProto.FromString(node_names.serialize(model))
    shown = {value.name for value in proto.graph.output}
    for node in proto.graph.node:
        for name in node.output:
            if name and name not in shown:
                proto.graph.output.append(onnx.ValueInfoProto(name=name))
                shown.add(name)
    options = OrtSettings(threads=threads, optimization="none")
    factory = sessions.Factory(model, proto.SerializeToString(), options)
    names = [value.name for value in proto.graph.output]
    session = factory.open()
    run = sessions.translated(model, lambda: session.run(names, dict(feeds)))
    return dict(zip(names, run(), strict=True))
