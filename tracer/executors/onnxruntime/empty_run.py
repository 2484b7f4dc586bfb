"""Makes an empty run: the same inputs and outputs as the model, and no node.

Its time is the overhead of every inference: the call from Python, the check of the feeds, and the
return of the outputs.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from tracer.errors import InputError, ModelError
from tracer.executors.onnxruntime import feeding, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.encoding import encoded
from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model
from tracer.inputs.feedset import Feeds
from tracer.support.types import Array


def runner(
    model: Model, feeds: Feeds, results: list[Any], settings: OrtSettings
) -> Callable[[], object] | None:
    """Returns a function that runs one empty inference; None where onnxruntime refuses the model.

    `results` are the outputs of a real run, in order: the empty run returns as many bytes.
    """
    stored = _stored(model, results)
    if not stored:
        return None
    empty = Model(_proto(model, stored), model.path, "", ())
    serialized = encoded(empty.proto, model.name)
    values = {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in stored.items()}
    try:
        session = sessions.Factory(empty, serialized, settings, values).open()
        run = feeding.runner(empty, session, feeds)
        run()
    except (ModelError, InputError):  # an element type, say, that stored tensors cannot have
        return None
    return partial(_run, run, stored)


def _run(run: Callable[[], object], stored: Mapping[str, Array]) -> object:
    """Runs a session, which reads the arrays `stored` where they are: they must live as long."""
    return run()


def _stored(model: Model, results: list[Any]) -> Mapping[str, Array]:
    """Returns the outputs that a model without nodes can return, by name."""
    inputs = {value.name for value in model.inputs}
    return {
        output.name: value
        for output, value in zip(model.graph.output, results, strict=True)
        if isinstance(value, np.ndarray)
        and value.dtype.kind in "biuf"
        and output.name not in inputs
    }


def _proto(model: Model, stored: Mapping[str, Array]) -> onnx.ModelProto:
    """Returns the model without nodes; its outputs are stored tensors, others are dropped.

    The values of the tensors are elsewhere: a protobuf would copy them, and holds 2 GiB at most.
    """
    tensors = [sessions.elsewhere(name, value) for name, value in stored.items()]
    outputs = [output for output in model.graph.output if output.name in stored]
    graph = helper.make_graph([], "empty", list(model.inputs), outputs, tensors)
    return helper.make_model(
        graph,
        opset_imports=model.proto.opset_import,
        ir_version=max(model.proto.ir_version, IR_WITH_UNLISTED_WEIGHTS),
    )
