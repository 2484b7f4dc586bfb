"""A run that does nothing: the same inputs and outputs, and no node.

What it takes is what every inference costs besides its nodes: the call from Python, checking the
feeds, and handing out the results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tracer.errors import InputError, ModelError
from tracer.executors.onnxruntime import feeding, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.loading import from_proto
from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model
from tracer.inputs.feedset import Feeds


def runner(
    model: Model, feeds: Feeds, results: list[Any], options: OrtSettings
) -> Callable[[], object] | None:
    """One empty inference as a function; None where onnxruntime makes no such session.

    `results` are the outputs of a real run, in order: the empty one hands out as much.
    """
    proto = _proto(model, results)
    if not proto.graph.output:
        return None
    try:
        empty = from_proto(proto)
        session = sessions.Factory(empty, proto.SerializeToString(), options).open()
        run = feeding.runner(empty, session, feeds)
        run()
    except (ModelError, InputError):  # an element type, say, that stored tensors cannot have
        return None
    return run


def _proto(model: Model, results: list[Any]) -> onnx.ModelProto:
    """The model without nodes; outputs are stored tensors, those that are none are left out."""
    stored = [
        numpy_helper.from_array(value, output.name)
        for output, value in zip(model.graph.output, results, strict=True)
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufc"
    ]
    names = {tensor.name for tensor in stored} - {value.name for value in model.inputs}
    graph = onnx.helper.make_graph(
        [],
        "empty",
        list(model.inputs),
        [output for output in model.graph.output if output.name in names],
        [tensor for tensor in stored if tensor.name in names],
    )
    return onnx.helper.make_model(
        graph,
        opset_imports=model.proto.opset_import,
        ir_version=max(model.proto.ir_version, IR_WITH_UNLISTED_WEIGHTS),
    )
