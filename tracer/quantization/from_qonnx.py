"""Converts QONNX's operators to ONNX's, which onnxruntime has kernels for.

Quant becomes QuantizeLinear, Clip and DequantizeLinear where its numbers fit into 8 bits; stored
weights become integers and DequantizeLinear. Other Quants, and BipolarQuant, become float
operators. QuantizeLinear adds the zero point after it has rounded: with an odd zero point halves
round to another integer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import version_converter
from onnx.external_data_helper import load_external_data_for_model

from tracer.accumulators.engine.stored_values import StoredValues
from tracer.errors import ModelError
from tracer.graph import loading, qonnx
from tracer.graph.model import IR_WITH_UNLISTED_WEIGHTS, Model, Scope, canonical_domain
from tracer.interpreter import values
from tracer.interpreter.numeric.integer_rounding import integer_ends
from tracer.interpreter.ops.qonnx import quant_integers
from tracer.quantization.graph_editor import GraphEditor
from tracer.quantization.lifting import restore
from tracer.support.types import Array

_OPSET = 13
"""The first whose QuantizeLinear has a scale for each channel, and Clip takes integers."""
_MOST_BITS = 8
_CONVERTED = frozenset({"Quant", "IntQuant", "BipolarQuant"})
_STANDARD_ROUNDING = {"ROUND": "Round", "HALF_EVEN": "Round", "FLOOR": "Floor", "CEIL": "Ceil"}
"""Rounding modes that are operators of ONNX."""


def runnable(model: Model) -> Model:
    """Returns a model that onnxruntime can run, with a note; `model` itself without QONNX's nodes.

    Raises ModelError where the opset is too old and onnx cannot convert the graph.
    """
    if not any(_is_quantizer(node.proto) for node in model.nodes):
        return model
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for node, known in zip(proto.graph.node, _main_nodes(model), strict=True):
        node.name = known
    if model.path is not None:
        load_external_data_for_model(proto, str(model.path.parent))
    converted = from_qonnx(proto, model.name)
    opened = loading.from_proto(converted.proto)
    return replace(opened, subject=model.name, notes=(*model.notes, converted.note))


@dataclass(frozen=True, slots=True)
class Converted:
    """A model without QONNX's operators, as far as that can be.

    `integers` nodes became integers, `floats` float operators; the keys in `left` stayed.
    """

    proto: onnx.ModelProto
    integers: int
    floats: int
    left: tuple[str, ...]

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
        kept = f"; {', '.join(self.left[:3])} stayed" if self.left else ""
        return f"onnxruntime has no operators of QONNX: {', '.join(parts)}{kept}"


def from_qonnx(proto: onnx.ModelProto, name: str = "the model") -> Converted:
    """Returns a copy of a model, called `name` in messages, with ONNX's operators.

    Weights are in the protobuf. Raises ModelError where onnx cannot raise the opset.
    """
    graph = GraphEditor(_with_opset(proto, name))
    converter = _Converter(graph)
    nodes = [node for node in graph.proto.graph.node if _is_quantizer(node)]
    made = {node.name: converter.convert(node) for node in nodes}
    graph.prune()
    left = tuple(name for name, kind in made.items() if kind is None)
    if not left:
        _keep_imports(graph.proto)
    kinds = list(made.values())
    return Converted(graph.proto, kinds.count("integers"), kinds.count("floats"), left)


class _Converter:
    """Converts the nodes of one graph."""

    def __init__(self, graph: GraphEditor) -> None:
        self._graph = graph
        model = loading.from_proto(graph.proto)
        self._scope = Scope(model.graph, path=model.root)
        self._stored = StoredValues(model)

    def convert(self, node: onnx.NodeProto) -> str | None:
        """Makes a node ONNX's: of integers or of floats; None where it stays."""
        parameters = [self._stored.value(each, self._scope) for each in node.input[1:]]
        if node.op_type not in _CONVERTED or any(each is None for each in parameters):
            return None
        quant = _Quant.of(node, *(each for each in parameters if each is not None))
        stored = self._stored.value(node.input[0], self._scope)
        dtype = quant.stored_type(stored) if stored is not None else quant.bytes_type
        if dtype is None:
            return self._floats(node, quant)
        self._integers(node, quant, stored, dtype)
        return "integers"

    def _integers(
        self, node: onnx.NodeProto, quant: _Quant, stored: Array | None, dtype: Any
    ) -> None:
        axis = quant.axis(None if stored is None else stored.ndim)
        scale = self._graph.constant(node, "scale", _row(quant.scale))
        zeros = np.broadcast_to(_row(quant.zero), _row(quant.scale).shape).astype(dtype)
        zero = self._graph.constant(node, "zero", zeros)
        if stored is not None:
            made = self._graph.constant(node, "integers", quant.integers(stored).astype(dtype))
        else:
            made = self._graph.inserted(node, "QuantizeLinear", [node.input[0], scale, zero], axis)
            if quant.ends != _range(dtype):
                ends = [self._graph.constant(node, part, np.asarray(end, dtype))
                        for part, end in zip(("low", "high"), quant.ends, strict=True)]  # fmt: skip
                made = self._graph.inserted(node, "Clip", [made, *ends])
        _become(node, "DequantizeLinear", [made, scale, zero])
        if axis is not None:
            node.attribute.append(onnx.helper.make_attribute("axis", axis))

    def _floats(self, node: onnx.NodeProto, quant: _Quant) -> str | None:
        """(round(clip(x / scale + zero point)) - zero point) * scale, operator by operator."""
        if quant.is_bipolar:
            return self._bipolar(node, quant.scale) if not quant.zero.any() else None
        if quant.rounding not in _STANDARD_ROUNDING:
            return None
        add = self._adder(node)
        scale = self._graph.constant(node, "scale", quant.scale)
        zero = self._graph.constant(node, "zero", quant.zero)
        ends = zip(("low", "high"), quant.float_ends, strict=True)
        low, high = (self._graph.constant(node, part, each) for part, each in ends)
        x = add("Add", add("Div", node.input[0], scale), zero)
        x = add(_STANDARD_ROUNDING[quant.rounding], add("Max", add("Min", x, high), low))
        _become(node, "Mul", [add("Sub", x, zero), scale])
        return "floats"

    def _bipolar(self, node: onnx.NodeProto, scale: Array) -> str:
        zero = self._graph.constant(node, "border", np.zeros((), np.float32))
        ends = (self._graph.constant(node, part, each)
                for part, each in (("high", scale), ("low", -scale)))  # fmt: skip
        reaches = self._adder(node)("GreaterOrEqual", node.input[0], zero)
        _become(node, "Where", [reaches, *ends])
        return "floats"

    def _adder(self, node: onnx.NodeProto) -> Callable[..., str]:
        return lambda op_type, *inputs: self._graph.inserted(node, op_type, inputs)


@dataclass(frozen=True, slots=True)
class _Quant:
    """The parameters of a Quant, all float32."""

    scale: Array
    zero: Array
    bits: Array
    signed: bool
    narrow: bool
    rounding: str

    @classmethod
    def of(cls, node: onnx.NodeProto, scale: Array, *others: Array) -> _Quant:
        """The parameters of a node; BipolarQuant is a Quant of one bit."""
        zero, bits = others or (np.zeros(()), np.ones(()))
        attributes = {a.name: values.from_attribute(a) for a in node.attribute}
        signed, narrow = (bool(attributes.get(name, default))
                          for name, default in (("signed", 1), ("narrow", 0)))  # fmt: skip
        rounding = str(attributes.get("rounding_mode", "ROUND")).upper()
        scale, zero, bits = (each.astype(np.float32) for each in (scale, zero, bits))
        return cls(scale, zero, bits, signed, narrow, rounding)

    @property
    def float_ends(self) -> tuple[Array, Array]:
        return integer_ends(self.bits, self.signed, self.narrow)

    @property
    def ends(self) -> tuple[int, int]:
        low, high = self.float_ends
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


def _is_quantizer(node: onnx.NodeProto) -> bool:
    return canonical_domain(node.domain) == qonnx.DOMAIN and node.op_type in qonnx.QUANTIZERS


def _main_nodes(model: Model) -> list[str]:
    return [node.key for node in model.nodes if not node.scope.path]


def _with_opset(proto: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Returns a copy in an opset that has what is needed, with weights that are no inputs.

    onnx converts a graph of its own operators alone: in place of others it sees Identity.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    weights = {tensor.name for tensor in copy.graph.initializer}
    kept = [value for value in copy.graph.input if value.name not in weights]
    inputs = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del copy.graph.input[:]
    copy.graph.input.extend(inputs)
    copy.ir_version = max(copy.ir_version, IR_WITH_UNLISTED_WEIGHTS)
    if next(o.version for o in copy.opset_import if not canonical_domain(o.domain)) >= _OPSET:
        return copy
    own: dict[str, onnx.NodeProto] = {}
    for node in copy.graph.node:
        if node.domain:
            own[node.output[0]] = onnx.NodeProto.FromString(node.SerializeToString())
            node.op_type, node.domain = "Identity", ""
            del node.attribute[:], node.input[1:]
    imports = [o for o in copy.opset_import if canonical_domain(o.domain)]
    foreign = [onnx.OperatorSetIdProto.FromString(o.SerializeToString()) for o in imports]
    _keep_imports(copy)
    try:
        raised = version_converter.convert_version(copy, _OPSET)
    except Exception as error:  # the converter raises all kinds of exceptions
        raise ModelError(
            f"{name}: onnx cannot convert it to opset {_OPSET}, whose operators stand for QONNX's: "
            f"{' '.join(str(error).split())}",
            f"Export the model with opset {_OPSET} or newer.",
        ) from error
    _put_back(raised, own)
    raised.opset_import.extend(foreign)
    restore(raised, copy)
    return raised


def _put_back(proto: onnx.ModelProto, own: dict[str, onnx.NodeProto]) -> None:
    for node in proto.graph.node:
        original = own.get(node.output[0])
        if original is not None:
            original.input[0] = node.input[0]
            node.CopyFrom(original)


def _keep_imports(proto: onnx.ModelProto) -> None:
    """Imports ONNX's own domain alone."""
    version = next(o.version for o in proto.opset_import if not canonical_domain(o.domain))
    del proto.opset_import[:]
    proto.opset_import.add(domain="", version=version)


def _become(node: onnx.NodeProto, op_type: str, inputs: list[str]) -> None:
    node.op_type, node.domain = op_type, ""
    del node.input[:], node.attribute[:]
    node.input.extend(inputs)


def _row(parameter: Array) -> Array:
    return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(-1)


def _holds(dtype: Any, numbers: Array) -> bool:
    """Whether numbers are integers of a type."""
    return bool(np.array_equal(numbers, np.clip(np.rint(numbers), *_range(dtype))))


def _range(dtype: Any) -> tuple[int, int]:
    ends = np.iinfo(dtype)
    return int(ends.min), int(ends.max)
