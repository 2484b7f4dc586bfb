"""Tensors as files: an .npz by name, or a test_data_set folder as ONNX's own tests have them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.errors import InputError, UsageError
from tracer.files import check_writable, write_atomically

if TYPE_CHECKING:
    import onnx

    from tracer.inputs import FeedSet
    from tracer.interpreter.inspection import Output
    from tracer.model import Model

_NPZ = ".npz"


def check(path: Path, force: bool) -> None:
    """Raise UsageError or InputError, before any work, for a place that cannot be written to."""
    if path.suffix == _NPZ:
        check_writable(path, force)
    elif path.suffix:
        raise UsageError(
            f"{path}: outputs are written as .npz, or into a folder",
            "Name a file that ends in .npz, or a folder such as test_data_set_0.",
        )
    elif path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file", "Name a folder, or a file that ends in .npz.")
    elif path.is_dir() and any(path.iterdir()) and not force:
        raise InputError(f"{path}: the folder is not empty", "Name another, or give --force.")
    elif not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist", "Make it first.")


def write(path: Path, model: Model, feedset: FeedSet, outputs: Sequence[Output]) -> None:
    """Write the outputs; into a folder the inputs too, so that it is a test of its own."""
    values = {output.name: output.value for output in outputs}
    if path.suffix == _NPZ:
        write_atomically(path, _npz(path, values))
        return
    path.mkdir(exist_ok=True)
    for place, value in enumerate(model.inputs):
        if value.name in feedset.feeds:
            data = _proto(feedset.feeds[value.name], value)
            write_atomically(path / f"input_{place}.pb", data)
    for place, value in enumerate(model.graph.output):
        write_atomically(path / f"output_{place}.pb", _proto(values[value.name], value))


def _npz(path: Path, values: Mapping[str, Any]) -> bytes:
    import numpy as np

    for name, value in values.items():
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            raise InputError(
                f"{path}: output '{name}' is no tensor of numbers, which is all an .npz holds",
                "Write a test_data_set folder.",
            )
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **values)
    return stream.getvalue()


def _proto(value: Any, declared: onnx.ValueInfoProto) -> bytes:
    import onnx

    helper = onnx.numpy_helper
    if declared.type.WhichOneof("value") == "optional_type":
        return bytes(helper.from_optional(value, declared.name).SerializeToString())
    if isinstance(value, list):
        return bytes(helper.from_list(value, declared.name).SerializeToString())
    return bytes(helper.from_array(value, declared.name).SerializeToString())
