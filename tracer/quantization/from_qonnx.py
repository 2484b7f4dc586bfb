"""Converts QONNX's operators to ONNX's, which onnxruntime has kernels for.

Quant becomes QuantizeLinear, Clip and DequantizeLinear where its numbers fit into 8 bits; stored
weights become integers and DequantizeLinear. All others become operators on floats
(`qonnx_in_floats`). QuantizeLinear adds the zero point after it has rounded: with an odd zero point
halves round to another integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from tracer.accumulators.engine.stored_values import StoredValues
from tracer.graph import loading, operators
from tracer.graph.model import Scope
from tracer.graph.shape_inference import TensorTypes
from tracer.graph.tensor_type import TensorType
from tracer.interpreter.ops.qonnx import channel_axis
from tracer.quantization import qonnx_in_floats
from tracer.quantization.graph_editor import GraphEditor
from tracer.quantization.qonnx_in_floats import NoFormError, Writer
from tracer.quantization.quant_parameters import (
    QuantParameters,
    integer_range,
    named_attributes,
    rounding_attributes,
    row,
)
from tracer.quantization.raised_opset import keep_imports, raised
from tracer.shapes import infer
from tracer.support.types import Array

_LISTED = 3
"""Nodes that a message names."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A model without QONNX's operators, as far as that can be.

    `integers` nodes became integers, `floats` float operators; those in `left` stayed, each with
    the reason. `origins` has, by the name of a node that was added, the node it is a part of.
    """

    proto: onnx.ModelProto
    integers: int
    floats: int
    left: Mapping[str, str]
    origins: Mapping[str, str]

    @property
    def note(self) -> str:
        """What a user is told."""
        parts = [
            f"{count} of QONNX's nodes became {what}"
            for count, what in (
                (self.integers, "QuantizeLinear, Clip and DequantizeLinear"),
                (self.floats, "float operators"),
            )
            if count
        ]
        kept = f"; {', '.join([*self.left][:_LISTED])} stayed" if self.left else ""
        return f"onnxruntime has no operators of QONNX: {', '.join(parts)}{kept}"


def from_qonnx(proto: onnx.ModelProto, name: str = "the model") -> Converted:
    """Returns a copy of a model, called `name` in messages, with ONNX's operators.

    Weights are in the protobuf. Raises ModelError where onnx cannot raise the opset.
    """
    graph = GraphEditor(raised(proto, name))
    converter = _Converter(graph)
    nodes = [
        node
        for node in graph.proto.graph.node
        if operators.is_qonnx_quantizer(node.domain, node.op_type)
    ]
    origins: dict[str, str] = {}
    left: dict[str, str] = {}
    integers = 0
    for node in nodes:
        before = len(graph.inserted_names)
        try:
            integers += converter.convert(node)
        except NoFormError as error:
            left[node.name] = str(error)
        origins |= dict.fromkeys(graph.inserted_names[before:], node.name)
    graph.prune()
    if not left:
        keep_imports(graph.proto)
    floats = len(nodes) - len(left) - integers
    return Converted(graph.proto, integers, floats, left, origins)


class _Converter:
    """Converts the nodes of one graph."""

    def __init__(self, graph: GraphEditor) -> None:
        self._graph = graph
        self._model = loading.from_proto(graph.proto)
        self._scope = Scope(self._model.graph, path=self._model.root)
        self._stored = StoredValues(self._model)

    def convert(self, node: onnx.NodeProto) -> bool:
        """Makes a node ONNX's; returns whether of integers. Raises NoFormError where it stays."""
        known = self._type(node.input[0])
        if known is not None and known.dtype != "float32":
            raise NoFormError(f"its input is {known.dtype}")
        if node.op_type in ("Quant", "IntQuant", "BipolarQuant") and self._as_integers(node):
            return True
        _FLOAT_FORMS[node.op_type](self, Writer(self._graph, node))
        return False

    def _as_integers(self, node: onnx.NodeProto) -> bool:
        """Makes a node integers; returns False where it has to be floats."""
        parameters = [self._stored.value(each, self._scope) for each in node.input[1:]]
        if any(each is None for each in parameters):
            return False
        quant = QuantParameters.of(node, *(each for each in parameters if each is not None))
        stored = self._stored.value(node.input[0], self._scope)
        dtype = quant.stored_type(stored) if stored is not None else quant.bytes_type
        if dtype is not None:
            self._integers(node, quant, stored, dtype)
        return dtype is not None

    def _integers(
        self, node: onnx.NodeProto, quant: QuantParameters, stored: Array | None, dtype: Any
    ) -> None:
        axis = quant.axis(None if stored is None else stored.ndim)
        scale = self._graph.constant(node, "scale", row(quant.scale))
        zeros = np.broadcast_to(row(quant.zero), row(quant.scale).shape).astype(dtype)
        zero = self._graph.constant(node, "zero", zeros)
        if stored is not None:
            made = self._graph.constant(node, "integers", quant.integers(stored).astype(dtype))
        else:
            made = self._graph.inserted(node, "QuantizeLinear", [node.input[0], scale, zero], axis)
            if quant.ends != integer_range(dtype):
                ends = [self._graph.constant(node, part, np.asarray(end, dtype))
                        for part, end in zip(("low", "high"), quant.ends, strict=True)]  # fmt: skip
                made = self._graph.inserted(node, "Clip", [made, *ends])
        Writer(self._graph, node).become("DequantizeLinear", made, scale, zero)
        if axis is not None:
            node.attribute.append(onnx.helper.make_attribute("axis", axis))

    def quant(self, write: Writer) -> None:
        """Writes Quant or IntQuant in floats."""
        signed, narrow, mode = rounding_attributes(write.node)
        qonnx_in_floats.quant(
            write, self._parameter(write.node, 1), self._parameter(write.node, 2),
            self._number(write.node, 3, "number of bits"), signed=signed, narrow=narrow, mode=mode,
        )  # fmt: skip

    def bipolar(self, write: Writer) -> None:
        """Writes BipolarQuant in floats."""
        qonnx_in_floats.bipolar(write, self._parameter(write.node, 1))

    def trunc(self, write: Writer) -> None:
        """Writes Trunc, of version 1 or 2, in floats."""
        signed, narrow, mode = rounding_attributes(write.node, "FLOOR")
        names = ("scale", "zero point", "number of bits", "result", "number of bits of the result")
        numbers = [self._number(write.node, index, name)
                   for index, name in enumerate(names[: len(write.node.input) - 1], 1)]  # fmt: skip
        out_bits = numbers[4] if len(numbers) > 4 else None
        qonnx_in_floats.trunc(
            write, numbers[0], numbers[1], numbers[2], numbers[3], out_bits, signed=signed,
            narrow=narrow, mode=mode,
        )  # fmt: skip

    def multi_threshold(self, write: Writer) -> None:
        """Writes MultiThreshold in floats."""
        attributes = named_attributes(write.node)
        thresholds = self._number(write.node, 1, "thresholds")
        kind = self._type(write.node.input[0])
        rank = None if kind is None or kind.shape is None else len(kind.shape)
        if rank is None:
            raise NoFormError("the rank of its input is not known")
        axis = channel_axis(str(attributes.get("data_layout", "")), rank)
        qonnx_in_floats.multi_threshold(
            write, thresholds, rank - 1 - axis, out_scale=float(attributes.get("out_scale", 1.0)),
            out_bias=float(attributes.get("out_bias", 0.0)),
        )  # fmt: skip

    def float_quant(self, write: Writer) -> None:
        """Writes FloatQuant in floats."""
        names = ("number of exponent bits", "number of mantissa bits", "bias", "greatest number")
        count = len([name for name in write.node.input if name])
        numbers = [self._number(write.node, index, name)
                   for index, name in enumerate(names[: count - 2], 2)]  # fmt: skip
        for name, number in zip(names, numbers, strict=False):
            if number.size != 1:
                raise NoFormError(f"its {name} differs from channel to channel")
        single = [number.reshape(()) for number in numbers]
        attributes = named_attributes(write.node)
        qonnx_in_floats.float_quant(
            write, self._parameter(write.node, 1), single[0], single[1], single[2],
            single[3] if len(single) > 3 else None, mode=rounding_attributes(write.node)[2],
            attributes=attributes,
        )  # fmt: skip

    def _parameter(self, node: onnx.NodeProto, index: int) -> qonnx_in_floats.Parameter:
        """Returns the values of an input, or its name where the graph computes it."""
        value = self._stored.value(node.input[index], self._scope)
        return node.input[index] if value is None else value.astype(np.float32)

    def _number(self, node: onnx.NodeProto, index: int, what: str) -> Array:
        """Returns the values of an input. Raises NoFormError where the graph computes them."""
        value = self._stored.value(node.input[index], self._scope)
        if value is None:
            raise NoFormError(f"its {what} is computed in the graph")
        return value.astype(np.float32)

    def _type(self, name: str) -> TensorType | None:
        return self._types.of(name, self._scope)

    @cached_property
    def _types(self) -> TensorTypes:
        return infer(self._model, {})


_FLOAT_FORMS = {
    "Quant": _Converter.quant,
    "IntQuant": _Converter.quant,
    "BipolarQuant": _Converter.bipolar,
    "Trunc": _Converter.trunc,
    "MultiThreshold": _Converter.multi_threshold,
    "FloatQuant": _Converter.float_quant,
}
