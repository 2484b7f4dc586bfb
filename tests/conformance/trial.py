"""A model of one operator version, run by tracer and by onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.values import type_proto

IR_VERSION = 10
BASE_OPSET = 17
"""The standard domain's opset beside operators of other domains."""
_PACKED = tuple(
    np.dtype(t)
    for t in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2,
              ml_dtypes.float4_e2m1fn)
)  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """A model, its feeds, and the values of `source`, which means the same, if known."""

    name: str
    model: onnx.ModelProto
    feeds: Mapping[str, Any]
    expected: list[Any] | None = None
    source: str = ""

    @property
    def operator(self) -> str:
        """The operator of the last node."""
        return self.model.graph.node[-1].op_type

    def by_tracer(self) -> list[Any]:
        """The outputs of the interpreter."""
        return list(Interpreter(self.model).run(None, dict(self.feeds)))

    def by_onnxruntime(self) -> list[Any] | None:
        """The outputs of onnxruntime; None where it cannot run the model."""
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        try:
            session = ort.InferenceSession(
                self.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            return list(session.run(None, {n: _fed(v) for n, v in self.feeds.items()}))
        except Exception:  # of many kinds: all mean that this version or type is not supported
            return None

    def by_reference(self) -> list[Any] | None:
        """The outputs of ONNX's reference; None where it cannot run the model."""
        try:
            return list(ReferenceEvaluator(self.model).run(None, dict(self.feeds)))
        except Exception:  # of many kinds, as its operators are written in numpy
            return None


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    opsets: Mapping[str, int],
) -> onnx.ModelProto:
    """A model at these opsets by domain, with inferred types of outputs where they are known.

    Raises onnx.checker.ValidationError for nodes that do not fit the opset.
    """
    graph = helper.make_graph(nodes, "graph", inputs, outputs)
    imports = [helper.make_opsetid(*each) for each in ({"": BASE_OPSET} | dict(opsets)).items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
    for output in model.graph.output:
        output.ClearField("type")
    inferred = onnx.shape_inference.infer_shapes(model)
    for output, own in zip(inferred.graph.output, outputs, strict=True):
        tensor = output.type.tensor_type
        if not output.type.WhichOneof("value") or not tensor.HasField("shape"):
            output.type.CopyFrom(own.type)
    onnx.checker.check_model(inferred)
    return inferred


def declared_as(
    name: str, value: Any, declared: onnx.ValueInfoProto | None, any_size: bool = False
) -> onnx.ValueInfoProto:
    """The declaration of a value: a tensor's by itself, another kind's as in `declared`."""
    if not isinstance(value, np.ndarray) and declared is not None:
        return helper.make_value_info(name, declared.type)
    proto = type_proto(value)
    if any_size:
        for dimension in proto.tensor_type.shape.dim:
            dimension.Clear()
    return helper.make_value_info(name, proto)


def _fed(value: Any) -> Any:
    """onnxruntime takes arrays of numpy's own types; others need to be told their type."""
    if not isinstance(value, np.ndarray) or value.dtype.kind != "V":
        return value
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    if value.dtype in _PACKED:
        raise TypeError(f"onnxruntime packs {value.dtype}")
    bits = value.view(np.dtype(f"uint{8 * value.dtype.itemsize}"))
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, kind)
