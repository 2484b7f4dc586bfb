"""Reads tensors, attributes and types of ONNX protobufs as the interpreter's values; writes values.

A tensor is a numpy array (bfloat16, float8 and int4 from ml_dtypes, strings as objects), a
sequence a list, a map a dict, an empty optional None.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx

from tracer import limits
from tracer.errors import ModelError, refusing
from tracer.graph import stored_weights, tensor_type
from tracer.support.types import Array

Value: TypeAlias = Any
"""An Array, a list, a dict or None."""


def from_tensor(proto: onnx.TensorProto, folder: Path | None = None) -> Array:
    """Returns a stored tensor as an array; external data are read from `folder`, large ones mapped.

    Raises ModelError, with the tensor's name, if the data do not fit the type.
    """
    type_ = tensor_type.from_initializer(proto)
    if type_.dtype == "undefined" or any(n < 0 for n in proto.dims):
        raise ModelError(f"tensor '{proto.name}' has an invalid type: {type_}")
    limits.allow(proto.dims, type_.dtype)
    name = f"tensor '{proto.name}' ({type_})"
    with refusing(lambda why: ModelError(f"{name} cannot be read: {why}")):
        if onnx.external_data_helper.uses_external_data(proto):
            if folder is None:
                raise ValueError("its data are external, and the model has no folder")
            return stored_weights.read_external(proto, folder)
        return onnx.numpy_helper.to_array(proto)


def from_sparse(proto: onnx.SparseTensorProto, folder: Path | None = None) -> Array:
    """Returns a sparse tensor as a dense array; indices are flat or one row per element."""
    values = from_tensor(proto.values, folder)
    indices = from_tensor(proto.indices, folder)
    limits.allow(proto.dims, values.dtype)
    dense = np.zeros(tuple(proto.dims), values.dtype)
    try:
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except (IndexError, ValueError) as error:
        name = proto.values.name
        raise ModelError(f"sparse tensor '{name}' has indices that do not fit: {error}") from error
    return dense


def from_attribute(attribute: onnx.AttributeProto, folder: Path | None = None) -> Any:
    """Returns the value of an attribute that holds no graph: text decoded, tensors as arrays.

    External data are read from `folder`.
    """
    kinds = onnx.AttributeProto
    value: Any = onnx.helper.get_attribute_value(attribute)
    convert: Callable[[Any], Any] | None = {
        kinds.STRING: lambda v: v.decode("utf-8", "surrogateescape"),
        kinds.STRINGS: lambda v: [s.decode("utf-8", "surrogateescape") for s in v],
        kinds.TENSOR: lambda v: from_tensor(v, folder),
        kinds.TENSORS: lambda v: [from_tensor(t, folder) for t in v],
        kinds.SPARSE_TENSOR: lambda v: from_sparse(v, folder),
        kinds.SPARSE_TENSORS: lambda v: [from_sparse(t, folder) for t in v],
        kinds.FLOATS: list,
        kinds.INTS: list,
    }.get(attribute.type)
    return convert(value) if convert is not None else value


def attributes_of(node: onnx.NodeProto, folder: Path | None = None) -> dict[str, Any]:
    """Returns the attributes of a node by name, as `from_attribute` does, without its bodies."""
    return {a.name: from_attribute(a, folder) for a in node.attribute if not a.HasField("g")}


def empty(type_: tensor_type.TensorType | None) -> Array:
    """Returns an array of the declared type with no rows; float32 if the type is unknown."""
    if type_ is None or type_.dtype == "undefined":
        return np.empty((0,), np.float32)
    dtype = np.dtype(object) if type_.dtype == "string" else tensor_type.numpy_dtype(type_.dtype)
    return np.empty((0, *(dim if isinstance(dim, int) else 0 for dim in type_.shape or ())), dtype)


def nbytes(value: Value) -> int:
    """Returns the bytes of a value: of an array with its texts, of the members of a sequence."""
    if isinstance(value, np.ndarray):
        characters = sum(map(len, value.reshape(-1).tolist())) if value.dtype == object else 0
        return value.nbytes + characters
    if isinstance(value, list):
        return sum(nbytes(member) for member in value)
    return 0


def type_proto(value: Value) -> onnx.TypeProto:
    """Returns the ONNX type of a value."""
    if isinstance(value, np.ndarray):
        elem = (
            onnx.TensorProto.STRING
            if value.dtype == object
            else onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        )
        return onnx.helper.make_tensor_type_proto(elem, value.shape)
    if isinstance(value, list) and value:
        return onnx.helper.make_sequence_type_proto(type_proto(value[0]))
    return onnx.TypeProto()


def to_proto(value: Value, kind: onnx.TypeProto, name: str = "") -> Any:
    """Returns a value of the type `kind` as files hold it: a TensorProto, a SequenceProto ….

    A type without kind is that of the value. Raises TypeError or ValueError for another value.
    """
    form = kind.WhichOneof("value")
    if form is None:
        kind = type_proto(value)
        form = kind.WhichOneof("value")
    stored: Any
    if form == "map_type":  # onnx's own writer takes no text as keys, and floats as doubles
        stored = onnx.MapProto(name=name, key_type=kind.map_type.key_type)
        if kind.map_type.key_type == onnx.TensorProto.STRING:
            stored.string_keys.extend(key.encode() for key in value)
        else:
            stored.keys.extend(value)
        values = onnx.helper.make_sequence_type_proto(kind.map_type.value_type)
        stored.values.CopyFrom(to_proto(list(value.values()), values))
        return stored
    if form in ("sequence_type", "optional_type"):
        inner = getattr(kind, form).elem_type
        word = inner.WhichOneof("value").removesuffix("_type")
        if form == "sequence_type":
            elements = onnx.SequenceProto.DataType.Value(word.upper())
            stored = onnx.SequenceProto(name=name, elem_type=elements)
            getattr(stored, f"{word}_values").extend(to_proto(each, inner) for each in value)
            return stored
        stored = onnx.OptionalProto(name=name)
        if value is not None:
            stored.elem_type = onnx.OptionalProto.DataType.Value(word.upper())
            getattr(stored, f"{word}_value").CopyFrom(to_proto(value, inner))
        return stored
    if not isinstance(value, np.ndarray):
        value = np.array(value, onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
    return onnx.numpy_helper.from_array(value, name)
