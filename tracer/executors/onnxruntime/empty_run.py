"""Makes an empty run: the same inputs and outputs as the model, and no node.

Its time is the overhead of every inference: the call from Python, the check of the feeds, and the
return of the outputs.
"""

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
    model: Model, feeds: Feeds, results: list[Any], settings: OrtSettings
) -> Callable[[], object] | None:
    """Returns a function that runs one empty inference; None where onnxruntime refuses the model.

    `results` are the outputs of a real run, in order: the empty run returns as many bytes.
    """
    proto = _proto(model, results)
    if not proto.graph.output:
        return None
    try:
        empty = from_proto(proto)
        session = sessions.Factory(empty, proto.SerializeToString(), settings).open()
        run = feeding.runner(empty, session, feeds)
        run()
    except (ModelError, InputError):  # an element type, say, that stored tensors cannot have
        return None
    return run


def _proto(model: Model, results: list[Any]) -> onnx.ModelProto:
    """Returns the model without nodes; its outputs are stored tensors, others are dropped."""
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
