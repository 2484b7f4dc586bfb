"""Cases of operator versions for which no case of ONNX's suite can be rewritten.

A case is a graph in ONNX's text format. Inputs are drawn from a normal distribution, or are small
integers. What onnxruntime cannot run is held against the graph `like`, which means the same in
operators that onnxruntime has, or against the same graph at the newest opset of onnxruntime.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tests.conformance.operators import Key
from tests.conformance.trial import BASE_OPSET, IR_VERSION, Trial

_LIKE_OPSET = 13
_OPSETS = 26, 21
"""The newest opset of onnxruntime 1.31, and the newest at which it has every old operator."""


@dataclass(frozen=True)
class Written:
    """A graph, without its name, for versions `since` to `until` of an operator.

    The model has the opset `opset`, or the version's own number. `like` is a graph of opset 13
    that means the same.
    """

    text: str
    since: int = 1
    until: int = 99
    opset: int = 0
    like: str = ""


def trials(key: Key, cases: Sequence[Written]) -> Iterator[Trial]:
    """The cases of an operator version."""
    domain, name, since = key
    for number, case in enumerate(cases):
        if not case.since <= since <= case.until:
            continue
        model = _parsed(case.text, domain, case.opset or since)
        feeds = {value.name: _fed(value) for value in model.graph.input}
        yield Trial(f"{name}_{number}", model, feeds, *_values(case, domain, feeds))


def _values(case: Written, domain: str, feeds: Mapping[str, Any]) -> tuple[list[Any] | None, str]:
    """What onnxruntime gives for the meaning of a case at another opset, and the opset."""
    for opset in () if domain else (_LIKE_OPSET,) if case.like else _OPSETS:
        model = _parsed(case.like or case.text, "", opset)
        values = Trial("", model, feeds).by_onnxruntime()
        if values is not None:
            return values, f"opset {opset}"
    return None, ""


def _parsed(text: str, domain: str, opset: int) -> onnx.ModelProto:
    opsets = f'"" : {opset}' if not domain else f'"" : {BASE_OPSET}, "{domain}" : {opset}'
    header = f"<ir_version: {IR_VERSION}, opset_import: [{opsets}]>"
    return onnx.parser.parse_model(f"{header} graph {text}")


def _fed(declared: onnx.ValueInfoProto) -> Any:
    """A value of the declared type; the same for the same name."""
    if declared.type.WhichOneof("value") == "map_type":
        return {"a": np.float32(1.5), "b": np.float32(-2.0)}
    tensor = declared.type.tensor_type
    shape = [dimension.dim_value for dimension in tensor.shape.dim]
    rng = np.random.default_rng(sum(declared.name.encode()))
    if tensor.elem_type == onnx.TensorProto.INT64:
        return rng.integers(0, 5, shape)
    if tensor.elem_type == onnx.TensorProto.STRING:
        return rng.choice(["a", "b", "c"], shape).astype(object)
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    numbers = rng.standard_normal(shape)
    return numbers > 0 if kind == np.bool_ else np.abs(numbers).astype(kind)
