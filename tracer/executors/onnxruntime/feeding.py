"""Makes a function of one inference; feeds are converted for onnxruntime once, in advance."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort

from tracer.containment import search
from tracer.executors.onnxruntime import crash_search, interruption, sessions
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.inputs.feedset import Feeds

_NIBBLE = 4
_MANY = 1_000
"""Inputs up to which onnxruntime's own check of the names fed takes some ms at most. Written in
Python, it takes 2 s for 20,000 inputs, since its time grows with their square."""


def runner(model: Model, session: Any, feeds: Feeds) -> Callable[[], list[Any]]:
    """Returns a function that runs one inference and returns its outputs.

    Arrays of element types that numpy lacks are passed as onnxruntime's own values. The function
    raises InputError for feeds that cannot be passed or do not run.
    """
    if search.is_on():
        crash_search.find(model, lambda part: runner(model, part, feeds)())
    options = interruption.options()
    if not any(map(_is_foreign, feeds.values())):
        arrays = dict(feeds)
        if len(arrays) > _MANY:
            outputs = [each.name for each in session.get_outputs()]
            return sessions.translated(model, lambda: session._sess.run(outputs, arrays, options))
        return sessions.translated(model, lambda: session.run(None, arrays, options))
    types = {value.name: value.type.tensor_type.elem_type for value in model.inputs}
    values = {
        name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(_raw(value), types[name])
        if _is_foreign(value)
        else ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value))
        for name, value in feeds.items()
    }
    return sessions.translated(model, lambda: session.run_with_ort_values(None, values, options))


def _is_foreign(value: Any) -> bool:
    """Returns whether the element type is of ml_dtypes: bfloat16, float8, int4."""
    return getattr(getattr(value, "dtype", None), "kind", "") == "V"


def _raw(value: Any) -> Any:
    """Returns the bytes of an array of ml_dtypes, in its shape.

    A byte holds two 4-bit elements, the low one first. onnxruntime takes a packed tensor in an
    array of the unpacked shape and reads the front of the array.
    """
    data = np.ascontiguousarray(value).view(f"u{value.dtype.itemsize}")
    if tensor_type.bits_of(value.dtype.name) != _NIBBLE:
        return data
    pairs = np.resize(np.append(data & 0xF, 0), (-(-data.size // 2), 2)).astype(np.uint8)
    raw = np.zeros(data.size, np.uint8)
    raw[: len(pairs)] = pairs[:, 0] | pairs[:, 1] << _NIBBLE
    return raw.reshape(value.shape)
