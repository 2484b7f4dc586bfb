"""How long it takes to quantise a model, from quantising small ones on this machine."""

from __future__ import annotations

import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph import footprint, loading
from tracer.inputs.feedset import FeedSet
from tracer.tuning.changes import Step
from tracer.tuning.setup import Setup

_SMALL = 64 << 20
"""Bytes of weights up to which quantising takes a second or less, and is not estimated."""
_ROWS, _COLUMNS = 512, (512, 2048)
"""Shapes of the weights that are quantised as a probe: 1 MiB, and 4 MiB."""
_FLOAT_BYTES = 4


def seconds(setup: Setup, step: Step) -> float:
    """Returns about how many seconds `step` takes on a model; 0 for a small one.

    Two products are quantised in the same way, and their times extended to the weights of the
    model. Raises the errors of the change.
    """
    stored = footprint.stored_bytes(setup.model)
    if step.change.effect != "quantize" or stored <= _SMALL:
        return 0.0
    _timed(step, _COLUMNS[0])  # imports the quantizer
    fewer, more = (_timed(step, columns) for columns in _COLUMNS)
    few, many = (_FLOAT_BYTES * _ROWS * columns for columns in _COLUMNS)
    return fewer + max(0.0, more - fewer) * (stored - few) / (many - few)


def _timed(step: Step, columns: int) -> float:
    probe = _product(columns)
    began = time.monotonic()
    step.apply(probe)
    return time.monotonic() - began


def _product(columns: int) -> Setup:
    """Returns a product by stored weights (`_ROWS`, columns)."""
    weights = np.random.default_rng(0).standard_normal((_ROWS, columns), np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    graph = helper.make_graph(
        [node], "probe",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, _ROWS])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, columns])],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(proto)
    feedset = FeedSet({"x": np.ones((1, _ROWS), np.float32)}, None, ())
    return Setup(loading.from_proto(proto), feedset, OrtSettings())
