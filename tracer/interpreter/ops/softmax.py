"""Softmax, LogSoftmax, Hardmax."""

from collections.abc import Callable

import ml_dtypes
import numpy as np

from tracer.interpreter.numeric import buffer_pool, compiled_normalization, parallel
from tracer.interpreter.numeric.axes import flat
from tracer.interpreter.numeric.half_types import widened
from tracer.interpreter.registry import operator
from tracer.support.types import Array


@operator("Softmax", since=13, copies=2)
def softmax(input: Array, *, axis: int = -1) -> Array:
    """exp(x) divided by its sum along `axis`."""
    return _along(_softmax, input, axis)


@operator("LogSoftmax", since=13, copies=2)
def log_softmax(input: Array, *, axis: int = -1) -> Array:
    """The logarithm of the softmax, computed without rounding the softmax."""
    return _along(_log_softmax, widened(input), axis).astype(input.dtype, copy=False)


@operator("Hardmax", since=13, copies=2)
def hardmax(input: Array, *, axis: int = -1) -> Array:
    """1 at the first maximum along `axis`, else 0."""
    return _along(_hardmax, input, axis)


def flattened(function: Callable[..., Array]) -> Callable[..., Array]:
    """Returns the operator before opset 13: the axes from `axis` on form one row."""

    def coerced(input: Array, *, axis: int = 1) -> Array:
        at = axis + input.ndim if axis < 0 else axis
        rows = flat(flat(input, at, input.ndim), 0, at)
        return function(rows, axis=-1).reshape(input.shape)

    return coerced


for _name, _function in {"Softmax": softmax, "LogSoftmax": log_softmax, "Hardmax": hardmax}.items():
    operator(_name, copies=2)(flattened(_function))


def _along(compute: Callable[[Array, Array], None], x: Array, axis: int) -> Array:
    """Applies `compute` along `axis`; bfloat16 is computed in float32."""
    dtype = x.dtype
    if not x.size:
        return x
    wide = x.astype(np.float32) if dtype == ml_dtypes.bfloat16 else x
    rows = np.ascontiguousarray(wide.swapaxes(axis, -1)) if wide.ndim else wide.reshape(1)
    if compute is _softmax and compiled_normalization.suits(rows):
        return compiled_normalization.softmax(rows).swapaxes(axis, -1).astype(dtype, copy=False)
    table = rows.reshape(-1, rows.shape[-1])
    out = buffer_pool.empty(table.shape, table.dtype)
    parts = parallel.pieces(len(table), max(parallel.BLOCK // table.shape[1], 1))

    def block(index: int) -> None:
        compute(table[parts[index]], out[parts[index]])

    parallel.run_blocks(len(parts), block)
    result = out.reshape(rows.shape).swapaxes(axis, -1) if wide.ndim else out.reshape(())
    return result.astype(dtype, copy=False)


def _softmax(x: Array, out: Array) -> None:
    np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(axis=-1, keepdims=True)


def _log_softmax(x: Array, out: Array) -> None:
    np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    out -= np.log(np.exp(out).sum(axis=-1, keepdims=True))


def _hardmax(x: Array, out: Array) -> None:
    out[...] = 0
    np.put_along_axis(out, x.argmax(axis=-1)[:, None], 1, axis=-1)
