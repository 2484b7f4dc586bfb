"""Rewrites a case of ONNX's suite for an older version of its operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.test.case.test_case import TestCase

from tests.conformance import suite
from tests.conformance.operators import Key, schema_of
from tests.conformance.trial import Trial, declared_as, model_of


class UnsuitableError(Exception):
    """The older version cannot say what the case says."""


@dataclass
class Form:
    """A node that is being rewritten: its inputs by position ('' is left out), its attributes."""

    inputs: list[str]
    values: dict[str, Any]
    attributes: dict[str, Any]
    outputs: list[str]
    replaced: set[str] = field(default_factory=set)

    def value(self, position: int) -> Any:
        """The value of an input, or None."""
        name = self.inputs[position] if position < len(self.inputs) else ""
        return self.values[name] if name else None

    def take(self, position: int) -> Any:
        """Removes an input and returns its value, or None."""
        value = self.value(position)
        if position < len(self.inputs):
            self.values.pop(self.inputs.pop(position), None)
        return value


_Rewrite = Callable[[Form], None]
_REWRITES: dict[str, list[tuple[int, int, _Rewrite]]] = {}


def older(case: TestCase, key: Key) -> Trial:
    """Returns the case for the version `key`; without expected values where it means another thing.

    Attributes that the older version lacks are left out: only onnxruntime, at that version, can
    then tell the values. Raises UnsuitableError where the older version does not take such inputs.
    """
    graph = case.model.graph
    node, source = graph.node[0], schema_of(suite.key_of(case))
    arrays, expected = (list(map(_array, each)) for each in next(iter(suite.data_sets(case))))
    values = dict(zip((value.name for value in graph.input), arrays, strict=False))
    form = Form(list(node.input), values, _completed(node, source), list(node.output))
    for first, last, rewrite in _REWRITES.get(key[1], []):
        if first <= key[2] <= last:
            rewrite(form)
    schema = schema_of(key)
    _move_inputs_to_attributes(form, source, schema)
    same = _drop_attributes(form, source, schema)
    _check_types(form, schema, expected)
    rewritten = helper.make_node(
        key[1], form.inputs, form.outputs, name="node", domain=key[0], **form.attributes
    )
    declared = {value.name: value for value in graph.input}
    inputs = [declared_as(name, v, declared.get(name)) for name, v in form.values.items()]
    names = [name for name in form.outputs if name]
    outputs = [
        declared_as(name, v, d, any_size=True)
        for name, v, d in zip(names, expected, graph.output, strict=True)
    ]
    model = model_of([rewritten], inputs, outputs, {key[0]: key[2]})
    source_version = f"version {source.since_version}"
    return Trial(case.name, model, form.values, expected if same else None, source_version)


def _array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic) else value


def _completed(node: onnx.NodeProto, schema: Any) -> dict[str, Any]:
    """The attributes of the case, and the defaults of its own version for the others."""
    defaults = {
        name: attribute.default_value
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type
    }
    given = {attribute.name: attribute for attribute in node.attribute}
    return {n: helper.get_attribute_value(a) for n, a in (defaults | given).items()}


def _move_inputs_to_attributes(form: Form, source: Any, schema: Any) -> None:
    """An input that was an attribute of the same name in the older version becomes it again."""
    inputs = {formal.name for formal in schema.inputs}
    for position in reversed(range(min(len(form.inputs), len(source.inputs)))):
        name = source.inputs[position].name
        if name in schema.attributes and name not in inputs:
            value = form.take(position)
            if value is not None and np.size(value):  # an empty list has no type
                form.attributes[name] = np.asarray(value).tolist()


def _drop_attributes(form: Form, source: Any, schema: Any) -> bool:
    """Drops attributes that the version lacks; returns whether all of them had their default."""
    same = True
    for name in list(form.attributes):
        if name in schema.attributes:
            if schema.attributes[name].type == onnx.defs.OpSchema.AttrType.FLOAT:
                form.attributes[name] = float(form.attributes[name])
            continue
        default = source.attributes[name].default_value
        value = form.attributes.pop(name)
        if name not in form.replaced:
            same &= bool(default.type) and helper.get_attribute_value(default) == value
    return same


def _check_types(form: Form, schema: Any, expected: list[Any]) -> None:
    """Raises UnsuitableError for more operands than the version takes, or for other types."""
    while form.inputs and not form.inputs[-1]:
        form.inputs.pop()
    inputs = [form.values.get(name) for name in form.inputs]
    for formals, values, most in (
        (schema.inputs, inputs, schema.max_input),
        (schema.outputs, expected, schema.max_output),
    ):
        if len(values) > most:
            raise UnsuitableError(f"{len(values)} operands; the version has {most}")
        for position, value in enumerate(values):
            formal = formals[min(position, len(formals) - 1)]
            if isinstance(value, np.ndarray) and not _allows(formal, value):
                raise UnsuitableError(f"{formal.name} cannot be {value.dtype}")
    if not schema.min_input <= len(inputs):
        raise UnsuitableError(f"{len(inputs)} inputs; the version has {schema.min_input} or more")


def _allows(formal: Any, value: np.ndarray) -> bool:
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    return f"tensor({onnx.TensorProto.DataType.Name(kind).lower()})" in formal.types


def rewrites(*names: str, first: int = 1, last: int) -> Callable[[_Rewrite], _Rewrite]:
    """Registers how a node is said in versions `first` to `last` of the operators `names`."""

    def register(rewrite: _Rewrite) -> _Rewrite:
        for name in names:
            _REWRITES.setdefault(name, []).append((first, last, rewrite))
        return rewrite

    return register


@rewrites("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less", last=6)
def _broadcast_by_attribute(form: Form) -> None:
    left, right = (np.shape(form.value(position)) for position in (0, 1))
    if left[len(left) - len(right) :] != right:
        raise UnsuitableError("the second operand is not the end of the first")
    form.attributes["broadcast"] = int(left != right)


@rewrites("Gemm", last=6)
def _broadcast_of_gemm(form: Form) -> None:
    form.attributes["broadcast"] = 1


@rewrites("BatchNormalization", "Dropout", last=6)
def _in_inference(form: Form) -> None:
    form.attributes["is_test"] = 1


@rewrites("BatchNormalization", last=1)
def _consumed(form: Form) -> None:
    form.attributes["consumed_inputs"] = [0] * len(form.inputs)


@rewrites("Dropout", last=11)
def _without_training(form: Form) -> None:
    training = form.take(2)
    if training is not None and training.any():
        raise UnsuitableError("older versions do not train")
    form.attributes.pop("seed", None)


@rewrites("Dropout", last=11)
def _without_mask(form: Form) -> None:
    if len(form.outputs) > 1:
        raise UnsuitableError("the mask is not defined in inference")


@rewrites("Cast", last=1)
def _type_by_name(form: Form) -> None:
    form.attributes["to"] = onnx.TensorProto.DataType.Name(form.attributes["to"])


@rewrites("Pad", last=10)
def _constant_by_attribute(form: Form) -> None:
    if form.value(3) is not None:
        raise UnsuitableError("older versions pad all axes")
    constant, pads = form.take(2), form.take(1)
    form.attributes["value"] = 0.0 if constant is None else float(constant)
    form.attributes["pads"] = pads.tolist()


@rewrites("Pad", last=1)
def _paddings(form: Form) -> None:
    form.attributes["paddings"] = form.attributes.pop("pads")


@rewrites("Tile", last=1)
def _one_axis(form: Form) -> None:
    repeats = form.values.pop(form.inputs.pop())
    axes = np.flatnonzero(repeats != 1)
    if len(axes) != 1:
        raise UnsuitableError("the version repeats along one axis")
    number = form.values[form.inputs[0]].dtype
    form.inputs += ["tiles", "axis"]
    form.values |= {"tiles": repeats[axes[0]].astype(number), "axis": axes[0].astype(number)}


@rewrites("TopK", last=1)
def _count_by_attribute(form: Form) -> None:
    form.attributes["k"] = int(form.take(1)[0])


@rewrites("Upsample", last=1)
def _two_scales(form: Form) -> None:
    form.attributes["height_scale"], form.attributes["width_scale"] = form.take(1)[2:].tolist()


@rewrites("Resize", last=10)
def _scales_alone(form: Form) -> None:
    if len(form.inputs) != 3 or form.value(2) is None:
        raise UnsuitableError("the version takes scales")
    form.take(1)


@rewrites("Resize", first=11, last=11)
def _empty_inputs(form: Form) -> None:
    for position, name in enumerate(("roi", "scales"), start=1):
        if not form.inputs[position]:
            form.inputs[position], form.values[name] = name, np.zeros(0, np.float32)


@rewrites("GridSample", last=16)
def _longer_names(form: Form) -> None:
    mode = form.attributes["mode"].decode()
    form.attributes["mode"] = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)


@rewrites("Scan", first=9, last=25)
def _without_lengths(form: Form) -> None:
    if form.inputs[0] == "":
        raise UnsuitableError("a scan over batches exists in version 8 alone")


@rewrites("PRelu", last=6)
def _one_slope(form: Form) -> None:
    if np.size(form.value(1)) > 1:
        raise UnsuitableError("slopes are for the channels")


@rewrites("RNN", "GRU", "LSTM", last=6)
def _all_steps(form: Form) -> None:
    form.attributes["output_sequence"] = 1


def rewritten() -> set[str]:
    """The operators of which a version is said in another way."""
    return set(_REWRITES)
