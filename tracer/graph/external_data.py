"""Reads weights that lie in files beside the model, without a copy in memory."""

import mmap
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data
from onnx.numpy_helper import to_array

from tracer.graph import tensor_type
from tracer.graph.stored_tensors import stored_tensors
from tracer.support.types import Array

_LEAST_MAPPED = 1 << 16
"""Bytes from which a tensor is mapped: a process has some 65,000 mappings at most."""
_BYTE = 8


def has_external_data(proto: onnx.ModelProto) -> bool:
    """Returns whether data of any tensor lie in other files."""
    return any(map(uses_external_data, stored_tensors(proto)))


def probe(tensor: onnx.TensorProto, folder: Path) -> None:
    """Reads the last byte of a tensor's external data, by onnx's rules for their location.

    Raises what onnx raises: for a link, a place outside of `folder`, a file that is too short.
    """
    entries = _entries(tensor)
    last = int(entries.get("offset", 0)) + max(int(entries.get("length", 1)), 1) - 1
    byte = onnx.TensorProto(name=tensor.name, data_type=onnx.TensorProto.UINT8, dims=[1])
    byte.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", entries.get("location", "")), ("offset", last), ("length", 1)):
        byte.external_data.add(key=key, value=str(value))
    load_external_data_for_tensor(byte, str(folder))


def read(tensor: onnx.TensorProto, folder: Path) -> Array:
    """Returns a tensor whose data are in a file in `folder`; large ones are mapped, read-only.

    The system reads the pages of a mapped file when they are needed, drops them when memory is
    short, and keeps one copy for all who map it. Raises ValueError, OSError or onnx's
    ValidationError for data that cannot be read.
    """
    kind, nbytes = tensor_type.from_initializer(tensor), _mappable(tensor)
    if nbytes >= _LEAST_MAPPED:
        probe(tensor, folder)
        entries = _entries(tensor)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        file, offset = folder / entries["location"], int(entries.get("offset", 0))
        assert kind.concrete is not None
        return np.asarray(np.memmap(file, dtype, "r", offset, kind.concrete))
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    return to_array(copy, base_dir=str(folder))


def leave(array: Array) -> None:
    """Takes the pages of an array that `read` has mapped out of this process, where that is known.

    They come back when the array is read; the system keeps them in its cache meanwhile.
    """
    base = array.base
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)


def _mappable(tensor: onnx.TensorProto) -> int:
    """Returns the bytes of data that lie in the file as numpy has them in memory; else 0."""
    kind, entries = tensor_type.from_initializer(tensor), _entries(tensor)
    dtype, bits = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type), tensor_type.bits_of
    offset, length = int(entries.get("offset", 0)), int(entries.get("length", 0))
    plain = bits(kind.dtype) == dtype.itemsize * _BYTE and sys.byteorder == "little"
    aligned = offset >= 0 and offset % dtype.itemsize == 0
    return length if plain and aligned and length == kind.nbytes else 0


def _entries(tensor: onnx.TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}
