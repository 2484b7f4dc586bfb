"""Small models for the tests, and onnxruntime as the oracle."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime as ort
from hypothesis import HealthCheck, settings
from onnx import helper

from tracer.interpreter.interpreter import Interpreter


def single(
    op_type: str,
    inputs: Mapping[str, np.ndarray],
    outputs: int = 1,
    opset: int = 21,
    **attributes: object,
) -> onnx.ModelProto:
    """A model of one node; its inputs have the types of the arrays, '' names are left out."""
    names = [name if value is not None else "" for name, value in inputs.items()]
    results = [f"out{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, results, **attributes)
    graph = helper.make_graph(
        [node],
        "single",
        [value_info(n, v) for n, v in inputs.items() if v is not None],
        [onnx.ValueInfoProto(name=name) for name in results],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def fused(
    op_type: str,
    inputs: Mapping[str, np.ndarray | None],
    outputs: Sequence[str] = ("out0",),
    stored: Collection[str] = (),
    domain: str = "com.microsoft",
    **attributes: object,
) -> onnx.ModelProto:
    """A model of one operator of onnxruntime; inputs named in `stored` are weights.

    An input of None and an output of '' are left out.
    """
    names = [name if value is not None else "" for name, value in inputs.items()]
    node = helper.make_node(op_type, names, list(outputs), "node", domain=domain, **attributes)
    given = {name: value for name, value in inputs.items() if value is not None}
    graph = helper.make_graph(
        [node],
        "fused",
        [value_info(n, v) for n, v in given.items() if n not in stored],
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
        [onnx.numpy_helper.from_array(given[n], n) for n in given if n in stored],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def value_info(name: str, value: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
    )


def onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
    """What onnxruntime makes of the model as it is, on one thread."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {n: v for n, v in feeds.items() if v is not None})


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


quick = settings(
    max_examples=12 if settings.default.derandomize else 60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def agree(model, feeds, rtol=1e-4, atol=1e-5):
    expected = onnxruntime(model, feeds)
    given_feeds = {name: value for name, value in feeds.items() if value is not None}
    outputs = Interpreter(model, threads=2).run(None, given_feeds)
    for ours, theirs in zip(outputs, expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)
