"""Makes a function of one inference; feeds are converted for onnxruntime once, in advance."""

import ctypes
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from tracer.containment import search
from tracer.errors import InputError
from tracer.executors.onnxruntime import crash_search, denormals, interruption, sessions
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.inputs.feedset import Feeds

_FOREIGN = re.compile(r"tensor\((bfloat16|u?int[24]|float[48]e\w+)\)")
"""onnxruntime's names of the tensors that numpy has no element type for."""
_REGISTERED = 2
"""`isbuiltin` of the element types of ml_dtypes; their kind is V, but f for float8_e5m2."""
_NIBBLE = 4
_MANY = 1_000
"""Inputs up to which the check of names in `InferenceSession.run` takes some ms at most.

It takes 5 s for 20,000 inputs, since its time grows with their square. Inputs that are bound to the
session are not checked: binding 20,000 takes 0.3 s, once, and a run 0.02 s.
"""


def runner(model: Model, session: Any, feeds: Feeds) -> Callable[[], list[Any]]:
    """Returns a function that runs one inference and returns its outputs.

    Arrays of element types that numpy lacks are passed as onnxruntime's own values, and the outputs
    are such values too where one has such a type; see `as_array`. The function raises InputError
    for feeds that cannot be passed or do not run.
    """
    if search.is_on():
        crash_search.find(model, lambda part: runner(model, part, feeds)())
    options = interruption.options()
    is_foreign = any(map(_is_foreign, feeds.values()))
    if not is_foreign and (_has_text(feeds) or not _gives_foreign(session)):
        arrays = dict(feeds)
        if len(arrays) > _MANY and _is_bindable(session):
            bound = sessions.translated(model, lambda: _bound(session, arrays, options))()
            return sessions.translated(model, bound)
        return sessions.translated(model, lambda: session.run(None, arrays, options))
    _refuse_text(model, feeds)
    own = values(model, feeds)
    return sessions.translated(model, lambda: session.run_with_ort_values(None, own, options))


def prepared(factory: sessions.Factory, session: Any, feeds: Feeds) -> Callable[[], list[Any]]:
    """Returns `runner`, with what the settings of `factory` say of a run.

    Outputs that are bound to memory are onnxruntime's own values, which the next run overwrites.
    """
    chosen = factory.settings.session
    if not chosen.bound or not _is_bindable(session):
        run = runner(factory.model, session, feeds)
    else:
        run = _in_place(factory.model, session, feeds)
    return denormals.flushed(run) if chosen.flushes_denormals else run


def _in_place(model: Model, session: Any, feeds: Feeds) -> Callable[[], list[Any]]:
    """Returns a function that runs on memory bound to inputs and outputs, which stay there."""
    options = interruption.options()
    arrays = {name: np.asarray(value, order="C") for name, value in feeds.items()}
    binding = session.io_binding()
    for name, value in values(model, arrays).items():
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name)

    sessions.translated(model, lambda: session.run_with_iobinding(binding, options))()
    outputs = list(binding.get_outputs())
    for output, value in zip(session.get_outputs(), outputs, strict=True):
        binding.bind_ortvalue_output(output.name, value)

    def run() -> list[Any]:
        session.run_with_iobinding(binding, options)
        return outputs

    return sessions.translated(model, partial(_run_beside, run, arrays))


def _run_beside(run: Callable[[], Any], arrays: Feeds) -> Any:
    """Runs a session that reads `arrays` where they are: they must live as long."""
    return run()


def values(model: Model, feeds: Feeds) -> dict[str, ort.OrtValue]:
    """Returns arrays as onnxruntime's own values, by input."""
    types = {value.name: value.type.tensor_type.elem_type for value in model.inputs}
    return {
        name: ort.OrtValue.ortvalue_from_numpy_with_onnx_type(_raw(value), types[name])
        if _is_foreign(value)
        else _shared(value)
        for name, value in feeds.items()
    }


def as_array(value: Any) -> Any:
    """Returns an output as an array, of an element type of ml_dtypes where numpy has none.

    Raises RuntimeError for a value of onnxruntime's that is no tensor.
    """
    if not isinstance(value, ort.OrtValue):
        return value
    if value.device_name() != "cpu" or not _FOREIGN.fullmatch(value.data_type()):
        return value.numpy()
    element, shape = value.element_type(), value.shape()
    if 0 in shape:  # it has no address
        return np.zeros(shape, helper.tensor_dtype_to_np_dtype(element))
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return numpy_helper.to_array(onnx.TensorProto(data_type=element, dims=shape, raw_data=raw))


def _gives_foreign(session: Any) -> bool:
    """Returns whether an output has an element type that numpy lacks."""
    return any(_FOREIGN.fullmatch(output.type) for output in session.get_outputs())


def _has_text(feeds: Feeds) -> bool:
    return any(np.asarray(value).dtype.kind in "OSU" for value in feeds.values())


def _is_bindable(session: Any) -> bool:
    """Returns whether all inputs and outputs are tensors of numbers, the only ones it binds."""
    types = [each.type for each in (*session.get_inputs(), *session.get_outputs())]
    return all(each.startswith("tensor(") and each != "tensor(string)" for each in types)


def _bound(
    session: Any, arrays: dict[str, Any], options: ort.RunOptions
) -> Callable[[], list[Any]]:
    """Returns a function that runs with these arrays, which are bound to the session here."""
    binding = session.io_binding()
    for name, array in arrays.items():
        binding.bind_ortvalue_input(name, _shared(array))
    for output in session.get_outputs():
        binding.bind_output(output.name)

    def run() -> list[Any]:
        session.run_with_iobinding(binding, options)
        return list(binding.copy_outputs_to_cpu())

    return run


def unreturned(model: Model, session: Any, feeds: Feeds) -> Callable[[], object] | None:
    """Returns a function that runs one inference whose outputs stay with onnxruntime.

    None where inputs or outputs cannot be bound to the session.
    """
    if not _is_bindable(session) or any(map(_is_foreign, feeds.values())):
        return None
    binding, options = session.io_binding(), interruption.options()
    for name, value in values(model, feeds).items():
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    return partial(_run_beside, lambda: session.run_with_iobinding(binding, options), feeds)


def _refuse_text(model: Model, feeds: Feeds) -> None:
    """Raises InputError for text, which onnxruntime takes in arrays alone."""
    for name, value in feeds.items():
        if np.asarray(value).dtype.kind in "OSU":
            others = (n for n, v in feeds.items() if _is_foreign(v))
            raise InputError(
                f"{model.name}: onnxruntime's Python interface takes no text, as input '{name}' "
                f"is, beside a type that numpy lacks, as that of '{next(others)}'",
                sessions.WITHOUT,
            )


def _shared(array: Any) -> ort.OrtValue:
    """Returns a value of onnxruntime's in the memory of an array."""
    return ort.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"))


def _is_foreign(value: Any) -> bool:
    """Returns whether the element type is of ml_dtypes: bfloat16, float8, int4."""
    return getattr(getattr(value, "dtype", None), "isbuiltin", 0) == _REGISTERED


def _raw(value: Any) -> Any:
    """Returns the bytes of an array of ml_dtypes, in its shape.

    A byte holds two 4-bit elements, the low one first. onnxruntime takes a packed tensor in an
    array of the unpacked shape and reads the front of the array.
    """
    data = np.asarray(value, order="C").view(f"u{value.dtype.itemsize}")
    if tensor_type.bits_of(value.dtype.name) != _NIBBLE:
        return data
    pairs = np.resize(np.append(data & 0xF, 0), (-(-data.size // 2), 2)).astype(np.uint8)
    raw = np.zeros(data.size, np.uint8)
    raw[: len(pairs)] = pairs[:, 0] | pairs[:, 1] << _NIBBLE
    return raw.reshape(value.shape)
