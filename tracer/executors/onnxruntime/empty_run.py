"""Makes an empty run: the same inputs as the model, as many outputs of few bytes, and no node.

Its time is the overhead of every inference: the call from Python, the check of the feeds, and the
return of outputs. A stored tensor of the size of an output would be copied, which no kernel does:
it writes its output where the caller reads it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tracer.errors import InputError, ModelError
from tracer.executors.onnxruntime import feeding, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.encoding import encoded
from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model
from tracer.inputs.feedset import Feeds
from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class EmptyRun:
    """Runs one empty inference on `session` when it is called."""

    model: Model
    session: Any
    run: Callable[[], object]

    def __call__(self) -> object:
        """Runs one inference."""
        return self.run()


def runner(
    model: Model, feeds: Feeds, results: list[Any], settings: OrtSettings
) -> EmptyRun | None:
    """Returns a function that runs one empty inference; None where onnxruntime refuses the model.

    `results` are the outputs of a real run, in order.
    """
    stored = _stored(model, results)
    if not stored:
        return None
    empty = Model(_proto(model, stored), model.path, "", ())
    serialized = encoded(empty.proto, model.name)
    try:
        session = sessions.Factory(empty, serialized, settings).open()
        run = feeding.runner(empty, session, feeds)
        run()
    except (ModelError, InputError):  # an element type, say, that stored tensors cannot have
        return None
    return EmptyRun(empty, session, run)


def _stored(model: Model, results: list[Any]) -> Mapping[str, Array]:
    """Returns what a model without nodes returns instead of the outputs, by name.

    They have the types and ranks of the outputs, and one element.
    """
    inputs = {value.name for value in model.inputs}
    return {
        output.name: np.zeros([1] * value.ndim, value.dtype)
        for output, value in zip(model.graph.output, results, strict=True)
        if isinstance(value, np.ndarray)
        and value.dtype.kind in "biuf"
        and output.name not in inputs
    }


def _proto(model: Model, stored: Mapping[str, Array]) -> onnx.ModelProto:
    """Returns the model without nodes; its outputs are stored tensors, others are dropped."""
    tensors = [numpy_helper.from_array(value, name) for name, value in stored.items()]
    outputs = [
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in tensors
    ]
    graph = helper.make_graph([], "empty", list(model.inputs), outputs, tensors)
    return helper.make_model(
        graph,
        opset_imports=model.proto.opset_import,
        ir_version=max(model.proto.ir_version, IR_WITH_UNLISTED_WEIGHTS),
    )
