"""The type of a tensor, declared by ONNX or observed in a run, and what several types tell."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeAlias, cast

import ml_dtypes
import numpy as np
import onnx

Dim: TypeAlias = int | str | None
"""A size, a symbolic name, or None (unknown)."""

UNKNOWN_SIZE = -1
"""Old exporters write it for a size that they leave open; runtimes read it so."""

_UNKNOWN = re.compile(r"(?i)\?|-1|none|unk|unk__|unknown")
"""Words of exporters for any size that they do not know: twice the same is no symbol."""


@dataclass(frozen=True)
class TensorType:
    """Element type by its numpy or ml_dtypes name, and shape; None is an unknown rank.

    What follows from them is computed once: many tensors of a model share their type.
    """

    dtype: str
    shape: tuple[Dim, ...] | None

    @cached_property
    def concrete(self) -> tuple[int, ...] | None:
        """The shape if every dimension is a number, else None."""
        if self.shape is None:
            return None
        for dim in self.shape:
            if not isinstance(dim, int):
                return None
        return cast("tuple[int, ...]", self.shape)

    @cached_property
    def size(self) -> int | None:
        """Number of elements, or None if a dimension is unknown."""
        shape = self.concrete
        return None if shape is None else math.prod(shape)

    @cached_property
    def nbytes(self) -> int | None:
        """Bytes of the packed elements (two int4 per byte); None for strings or unknown sizes."""
        size, bits = self.size, bits_of(self.dtype)
        return None if size is None or bits is None else -(-size * bits // 8)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        if self.shape is None:
            return f"{self.dtype}[...]"
        return f"{self.dtype}[{','.join('?' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True, slots=True)
class CallTypes:
    """The types of the tensors that a node read and wrote in `calls` of its calls."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    calls: int


Types: TypeAlias = tuple[TensorType, ...]
_Pair: TypeAlias = tuple[Types, Types]


@cache
def bits_of(dtype: str) -> int | None:
    """Returns the width of one element in bits; None for strings."""
    if dtype in ("string", "undefined"):
        return None
    if dtype.startswith(("int2", "uint2", "int4", "uint4", "float4")):
        return 2 if dtype in ("int2", "uint2") else 4
    return numpy_dtype(dtype).itemsize * 8


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Returns the dtype of numpy or ml_dtypes by its name."""
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


@cache
def dtype_name(elem_type: int) -> str:
    """Returns the name of an `onnx.TensorProto.DataType`; `undefined` for other numbers."""
    if elem_type == onnx.TensorProto.STRING:
        return "string"
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(elem_type).name
    except KeyError:
        return "undefined"


@cache
def _elem_types() -> dict[str, int]:
    """Returns the number of each element type by its name."""
    return {dtype_name(number): number for number in onnx.TensorProto.DataType.values()}


def to_type_proto(kind: TensorType) -> onnx.TypeProto:
    """Returns the ONNX type of a tensor."""
    return onnx.helper.make_tensor_type_proto(_elem_types()[kind.dtype], kind.shape)


def from_type_proto(proto: onnx.TypeProto) -> TensorType | None:
    """Returns the tensor type of an ONNX type; None for sequences, maps and optionals."""
    kind = proto.WhichOneof("value")
    if kind not in ("tensor_type", "sparse_tensor_type"):
        return None
    tensor = getattr(proto, kind)
    if not tensor.HasField("shape"):
        return TensorType(dtype_name(tensor.elem_type), None)
    dims: list[Dim] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value"):  # onnx infers sizes below 0 from odd values
            dims.append(None if dim.dim_value < 0 else dim.dim_value)
        else:
            name = dim.dim_param
            dims.append(None if not name or _UNKNOWN.fullmatch(name) else name)
    return TensorType(dtype_name(tensor.elem_type), tuple(dims))


def declared_types(values: Iterable[onnx.ValueInfoProto]) -> dict[str, TensorType | None]:
    """Returns what `from_type_proto` does of inputs or outputs, by their names."""
    return {value.name: from_type_proto(value.type) for value in values}


def declared_shapes(values: Iterable[onnx.ValueInfoProto]) -> dict[str, tuple[Dim, ...]]:
    """Returns the shape of each tensor of inputs or outputs that declares one, by their names."""
    kinds = declared_types(values)
    return {name: kind.shape for name, kind in kinds.items() if kind and kind.shape is not None}


def from_initializer(proto: onnx.TensorProto) -> TensorType:
    """Returns the type of a stored weight."""
    return TensorType(dtype_name(proto.data_type), tuple(proto.dims))


def refined(known: TensorType | None, found: TensorType | None) -> TensorType | None:
    """Returns what both together tell; `known` where they contradict each other."""
    if known is None or found is None:
        return known or found
    dtype = found.dtype if known.dtype == "undefined" else known.dtype
    if known.shape is None or found.shape is None:
        return TensorType(dtype, found.shape if known.shape is None else known.shape)
    if len(known.shape) != len(found.shape):
        return known
    dims = list(known.shape)
    for axis, dim in enumerate(found.shape):
        if isinstance(dim, int) and not isinstance(dims[axis], int):
            dims[axis] = dim
        dims[axis] = dim if dims[axis] is None else dims[axis]
    return TensorType(dtype, tuple(dims))


def common_type(types: Sequence[TensorType | None]) -> TensorType | None:
    """Returns what is true of all `types`: sizes that differ are unknown."""
    first, *others = types
    for other in others:
        if first is None or other is None or first.dtype != other.dtype:
            return None
        if first.shape is None or other.shape is None or len(first.shape) != len(other.shape):
            first = TensorType(first.dtype, None)
            continue
        dims = zip(first.shape, other.shape, strict=True)
        first = TensorType(first.dtype, tuple(a if a == b else None for a, b in dims))
    return first


def types_of_calls(calls: Mapping[_Pair, int]) -> tuple[_Pair, tuple[CallTypes, ...]]:
    """Returns the types of inputs and outputs in all calls, and the calls apart if these differ.

    `calls` has how many calls there were with these types. A size that differs is None.
    """
    if len(calls) == 1:
        return next(iter(calls)), ()
    sides = [common_types(side) for side in zip(*calls, strict=True)]
    apart = tuple(CallTypes(*pair, count) for pair, count in calls.items())
    return (sides[0], sides[1]), apart


def common_types(calls: Sequence[Types]) -> Types:
    """Returns what is true of each tensor in all calls of a kernel: see `common_type`."""
    if len({len(types) for types in calls}) > 1:
        return calls[0]
    shared = [common_type(types) for types in zip(*calls, strict=True)]
    return tuple(kind or first for kind, first in zip(shared, calls[0], strict=True))
