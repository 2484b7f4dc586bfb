"""Converts QONNX's operators to ONNX's, which onnxruntime has kernels for.

Quant becomes QuantizeLinear, Clip and DequantizeLinear where its numbers fit into 8 bits; stored
weights become integers and DequantizeLinear. All others become operators on floats
(`qonnx_in_floats`). QuantizeLinear adds the zero point after it has rounded: with an odd zero point
halves round to another integer.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx.external_data_helper import load_external_data_for_model

from tracer.accumulators.engine.value_ranges import StoredValues, integer_range
from tracer.errors import ModelError
from tracer.graph import loading, operators
from tracer.graph.model import Model, Node, Scope, StandIn
from tracer.graph.shape_inference import TensorTypes
from tracer.graph.tensor_type import TensorType
from tracer.interpreter import values
from tracer.interpreter.ops.qonnx import channel_axis, integer_ends, quant_integers
from tracer.quantization import qonnx_in_floats
from tracer.quantization.graph_editor import GraphEditor
from tracer.quantization.preparation import import_onnx_alone, raise_for_qonnx
from tracer.shapes import infer
from tracer.support.types import Array

_MOST_BITS = 8


@dataclass(frozen=True, slots=True)
class QuantParameters:
    """The parameters of a Quant, all float32."""

    scale: Array
    zero: Array
    bits: Array
    signed: bool
    narrow: bool
    rounding: str

    @classmethod
    def of(cls, node: onnx.NodeProto, scale: Array, *others: Array) -> "QuantParameters":
        """The parameters of a node; BipolarQuant is a Quant of one bit."""
        zero, bits = others or (np.zeros(()), np.ones(()))
        signed, narrow, rounding = rounding_attributes(node)
        scale, zero, bits = (each.astype(np.float32) for each in (scale, zero, bits))
        return cls(scale, zero, bits, signed, narrow, rounding)

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest integer of the first channel, with the zero point."""
        low, high = integer_ends(self.bits, self.signed, self.narrow)
        return int(low.flat[0]), int(high.flat[0])

    @property
    def is_bipolar(self) -> bool:
        """Whether the numbers are -1 and 1."""
        return self.signed and bool((self.bits == 1).any())

    @property
    def bytes_type(self) -> Any:
        """The type with which QuantizeLinear, Clip and DequantizeLinear compute it, or None."""
        bits = float(self.bits.flat[0]) if self.bits.size == 1 else 0.0
        fits = bits.is_integer() and 1 <= bits <= _MOST_BITS and not self.is_bipolar
        is_even = self.rounding in ("ROUND", "HALF_EVEN")
        dtype = np.dtype(np.int8 if self.signed else np.uint8)
        return (
            dtype if fits and is_even and self._has_vectors and _holds(dtype, self.zero) else None
        )

    def stored_type(self, x: Array) -> Any:
        """The type that holds the integers of stored numbers, or None."""
        if not self._has_vectors:
            return None
        integers = self.integers(x)
        for kind in (np.int8, np.uint8, np.int32):
            dtype = np.dtype(kind)
            if kind == np.int32 and self.zero.any():  # ONNX allows none there
                return None
            if _holds(dtype, integers) and _holds(dtype, self.zero):
                return dtype
        return None

    @property
    def _has_vectors(self) -> bool:
        """Whether there is one positive scale, or one for each slice of an axis."""
        vectors = all(np.count_nonzero(np.array(each.shape) > 1) < 2
                      for each in (self.scale, self.zero))  # fmt: skip
        fits = self.zero.size in (1, self.scale.size)
        return vectors and fits and bool((self.scale > 0).all())

    def axis(self, rank: int | None) -> int | None:
        """The axis of the channels, from the end where the rank is not known; None without any."""
        if self.scale.size == 1:
            return None
        place = int(np.argmax(np.array(self.scale.shape) > 1)) - self.scale.ndim
        return place if rank is None else place + rank

    def integers(self, x: Array) -> Array:
        """The integers of stored numbers, zero point included."""
        rest = quant_integers(
            x, self.scale, self.zero, self.bits, signed=int(self.signed), narrow=int(self.narrow),
            rounding_mode=self.rounding,
        )  # fmt: skip
        return rest + self.zero


def rounding_attributes(node: onnx.NodeProto, mode: str = "ROUND") -> tuple[bool, bool, str]:
    """Returns whether numbers are signed, whether they are narrow, and how they are rounded."""
    own = values.attributes_of(node)
    named = str(own.get("rounding_mode", mode)).upper()
    return bool(own.get("signed", 1)), bool(own.get("narrow", 0)), named


def as_row(parameter: Array) -> Array:
    """Returns a parameter as a number, or as a vector of those of the channels."""
    return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(-1)


def _holds(dtype: Any, numbers: Array) -> bool:
    """Whether numbers are integers of a type."""
    return bool(np.array_equal(numbers, np.clip(np.rint(numbers), *integer_range(dtype))))


_LISTED = 3
"""Nodes that a message names."""


def with_stand_in(model: Model, rounding: Sequence[Node]) -> Model:
    """Returns `model` with a stand-in that onnxruntime can run, and a note.

    `rounding` are its nodes of QONNX. Raises ModelError where the opset is too old and onnx cannot
    convert the graph, and for nodes that ONNX's operators do not express.
    """
    _refuse_unconvertible(
        model, {node.key: "it is in a body" for node in rounding if node.scope.path}
    )
    proto = deepcopy(model.proto)
    main = [node for node in model.nodes if not node.scope.path]
    for node, known in zip(proto.graph.node, main, strict=True):
        node.name = known.key
    if model.folder is not None:
        load_external_data_for_model(proto, str(model.folder))
    converted = from_qonnx(proto, model.name)
    _refuse_unconvertible(model, converted.left)
    own = {node.key: node.key for node in model.nodes}
    stand_in = StandIn(
        replace(loading.from_proto(converted.proto), subject=model.name),
        {**own, **converted.origins},
    )
    return replace(model, stand_in=stand_in, notes=(*model.notes, converted.note))


def _refuse_unconvertible(model: Model, left: Mapping[str, str]) -> None:
    """Raises ModelError for nodes that stay, with the reasons, by key."""
    if not left:
        return
    types = {node.key: node.op_type for node in model.nodes}
    named = [f"'{key}' ({types[key]}): {why}" for key, why in [*left.items()][:_LISTED]]
    raise ModelError(
        f"{model.name}: onnxruntime has no operators of QONNX, and {len(left)} of its nodes cannot "
        f"be converted to ONNX's: {'; '.join(named)}",
        "`tracer interpret` and `tracer count` need no onnxruntime.",
    )


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
    graph = GraphEditor(raise_for_qonnx(proto, name))
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
        except qonnx_in_floats.NoFormError as error:
            left[node.name] = str(error)
        origins |= dict.fromkeys(graph.inserted_names[before:], node.name)
    graph.prune()
    if not left:
        import_onnx_alone(graph.proto)
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
            raise qonnx_in_floats.NoFormError(f"its input is {known.dtype}")
        if node.op_type in ("Quant", "IntQuant", "BipolarQuant") and self._as_integers(node):
            return True
        _FLOAT_FORMS[node.op_type](self, qonnx_in_floats.Writer(self._graph, node))
        return False

    def _as_integers(self, node: onnx.NodeProto) -> bool:
        """Makes a node integers; returns False where it has to be floats."""
        parameters = [self._stored.value(each, self._scope) for each in node.input[1:]]
        if any(each is None for each in parameters):
            return False
        quant = QuantParameters.of(node, *(each for each in parameters if each is not None))
        stored = self._stored.value(node.input[0], self._scope)
        dtype = quant.stored_type(stored) if stored is not None else quant.bytes_type
        if dtype is None:
            return False
        axis = quant.axis(None if stored is None else stored.ndim)
        scale = self._graph.constant(node, "scale", as_row(quant.scale))
        zeros = np.broadcast_to(as_row(quant.zero), as_row(quant.scale).shape).astype(dtype)
        zero = self._graph.constant(node, "zero", zeros)
        if stored is not None:
            made = self._graph.constant(node, "integers", quant.integers(stored).astype(dtype))
        else:
            made = self._graph.inserted(node, "QuantizeLinear", [node.input[0], scale, zero], axis)
            if quant.ends != integer_range(dtype):
                low, high = (np.asarray(end, dtype) for end in quant.ends)
                made = self._graph.clipped(node, made, low, high)
        qonnx_in_floats.Writer(self._graph, node).become("DequantizeLinear", made, scale, zero)
        if axis is not None:
            node.attribute.append(onnx.helper.make_attribute("axis", axis))
        return True

    def quant(self, write: qonnx_in_floats.Writer) -> None:
        """Writes Quant or IntQuant in floats."""
        signed, narrow, mode = rounding_attributes(write.node)
        qonnx_in_floats.quant(
            write, self._parameter(write.node, 1), self._parameter(write.node, 2),
            self._number(write.node, 3, "number of bits"), signed=signed, narrow=narrow, mode=mode,
        )  # fmt: skip

    def bipolar(self, write: qonnx_in_floats.Writer) -> None:
        """Writes BipolarQuant in floats."""
        qonnx_in_floats.bipolar(write, self._parameter(write.node, 1))

    def trunc(self, write: qonnx_in_floats.Writer) -> None:
        """Writes Trunc, of version 1 or 2, in floats."""
        signed, narrow, mode = rounding_attributes(write.node, "FLOOR")
        names = ("scale", "zero point", "number of bits", "result", "number of bits of the result")
        numbers = [self._number(write.node, index, name)
                   for index, name in enumerate(names[: len(write.node.input) - 1], 1)]  # fmt: skip
        ends = integer_ends(numbers[4], signed, narrow) if len(numbers) > 4 else None
        scale, zero, bits, output = numbers[:4]
        qonnx_in_floats.trunc(write, scale, zero, bits, output, ends, mode=mode)

    def multi_threshold(self, write: qonnx_in_floats.Writer) -> None:
        """Writes MultiThreshold in floats."""
        attributes = values.attributes_of(write.node)
        thresholds = self._number(write.node, 1, "thresholds")
        kind = self._type(write.node.input[0])
        rank = None if kind is None or kind.shape is None else len(kind.shape)
        if rank is None:
            raise qonnx_in_floats.NoFormError("the rank of its input is not known")
        axis = channel_axis(str(attributes.get("data_layout", "")), rank)
        qonnx_in_floats.multi_threshold(
            write, thresholds, rank - 1 - axis, out_scale=float(attributes.get("out_scale", 1.0)),
            out_bias=float(attributes.get("out_bias", 0.0)),
        )  # fmt: skip

    def float_quant(self, write: qonnx_in_floats.Writer) -> None:
        """Writes FloatQuant in floats."""
        names = ("number of exponent bits", "number of mantissa bits", "bias", "greatest number")
        count = len([name for name in write.node.input if name])
        numbers = [self._number(write.node, index, name)
                   for index, name in enumerate(names[: count - 2], 2)]  # fmt: skip
        for name, number in zip(names, numbers, strict=False):
            if number.size != 1:
                raise qonnx_in_floats.NoFormError(f"its {name} differs from channel to channel")
        single = [number.reshape(()) for number in numbers]
        attributes = values.attributes_of(write.node)
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
            raise qonnx_in_floats.NoFormError(f"its {what} is computed in the graph")
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
