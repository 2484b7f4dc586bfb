"""One operator: what another implementation computes of it, and what we count."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pandas as pd
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tracer.analyzers.cost import cost
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.graph import loading, shape_inference


def proto_of(
    op_type: str,
    inputs: Sequence[np.ndarray | None],
    attributes: dict[str, object],
    opset: int,
    output: np.ndarray | None = None,
    outputs: Sequence[str] = ("y",),
) -> onnx.ModelProto:
    """A model of one node; its output is declared like `output`, if that is known."""
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in zip(names, inputs, strict=True)
        if value is not None
    ]
    result = helper.make_empty_tensor_value_info("y")
    if output is not None:
        dtype = helper.np_dtype_to_tensor_dtype(output.dtype)
        result = helper.make_tensor_value_info("y", dtype, output.shape)
    node = helper.make_node(op_type, names, outputs, **attributes)
    graph = helper.make_graph([node], "g", values, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run(
    op_type: str,
    inputs: Sequence[np.ndarray | None],
    opset: int = 17,
    evaluator: Callable[[onnx.ModelProto], ReferenceEvaluator] = ReferenceEvaluator,
    outputs: Sequence[str] = ("y",),
    **attributes: object,
) -> tuple[np.ndarray, pd.Series, pd.Series]:
    """The output `y`, and our row of the node under the plain and the channelwise convention."""
    feeds = {f"x{i}": value for i, value in enumerate(inputs) if value is not None}
    reference = evaluator(proto_of(op_type, inputs, attributes, opset, None, outputs))
    expected = np.asarray(reference.run(None, feeds)[0])
    model = loading.from_proto(proto_of(op_type, inputs, attributes, opset, expected, outputs))
    types = shape_inference.infer(model, {})
    plain, channelwise = (
        cost(TypedModel(model, types), convention=name).table.iloc[0]
        for name in ("plain", "channelwise")
    )
    return expected, plain, channelwise
