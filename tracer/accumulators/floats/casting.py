"""Rounds numbers to a float format."""

from typing import assert_never

import numpy as np

from tracer.accumulators.floats import draws
from tracer.accumulators.floats.kernel_formats import wide_format
from tracer.accumulators.floats.kernels import loaded
from tracer.accumulators.floats.kernels.hashing import BITS
from tracer.accumulators.spec.float_accumulator import FloatRounding, FloatRoundingName
from tracer.accumulators.spec.float_format import FloatFormat
from tracer.interpreter.numeric import parallel
from tracer.support.types import Array

_NEAREST = FloatRounding()


def cast(
    values: Array, form: FloatFormat, rounding: FloatRounding = _NEAREST, saturates: bool = False
) -> Array:
    """Returns `values`, floats of any shape, in a format, as float32.

    What is beyond the largest number becomes what the format has there (`FloatFormat.beyond`), as
    ml_dtypes casts; or the largest number if it `saturates`, infinity included, as ONNX's Cast does
    by default. NaN stays NaN, even where a format has none. The draw of an element depends on its
    index.
    """
    if rounding.name == "rne" and np.asarray(values).dtype == np.float32:
        return _to_nearest(np.asarray(values), form, saturates)
    with np.errstate(invalid="ignore"):  # NaN with a payload that only float32 has
        wide = np.asarray(values, np.float64)
    random = None
    if rounding.name == "sr":
        outputs = draws.of_outputs(draws.key(rounding.seed, 0), np.arange(wide.size))
        random = draws.at_step(outputs, 0).reshape(wide.shape)
    rounded = limited(to_grid(wide, form, rounding.name, random), form, saturates)[0]
    if not form.has_negative_zero:
        rounded = rounded + 0.0
    return rounded.astype(np.float32)


def _to_nearest(values: Array, form: FloatFormat, saturates: bool) -> Array:
    """`cast` to nearest, of float32."""
    source = np.ascontiguousarray(values).reshape(-1)
    out = np.empty(values.shape, np.float32)
    flat, numbers = out.reshape(-1), wide_format(form, saturates)
    parts = parallel.pieces(source.size, parallel.BYTES_BLOCK)
    run = loaded("casts").to_nearest

    def block(number: int) -> None:
        part = parts[number]
        run(source[part], numbers, form.has_negative_zero, flat[part])

    parallel.run_blocks(len(parts), block)
    return out


def to_grid(
    values: Array, form: FloatFormat, name: FloatRoundingName, random: Array | None = None
) -> Array:
    """Returns `values`, float64, rounded as if exponents had no upper end; 0 keeps its sign.

    `random` are draws, of `BITS` bits, for `sr`.
    """
    least = form.least_exponent if form.subnormals == "kept" else -(1 << 12)
    exponents = np.maximum(np.frexp(values)[1] - 1, least)
    units = np.ldexp(values, form.fraction_bits - exponents)
    rounded = np.ldexp(_integers(units, name, random), exponents - form.fraction_bits)
    if form.subnormals == "kept":
        return rounded
    return np.where(np.abs(rounded) < form.least_normal, np.copysign(0.0, rounded), rounded)


def limited(values: Array, form: FloatFormat, saturates: bool) -> tuple[Array, Array]:
    """Returns rounded `values` within the range of a format, and which of them were outside."""
    outside = np.abs(values) > form.largest
    beyond = form.largest if saturates else form.beyond
    return np.where(outside, np.copysign(beyond, values), values), outside


def _integers(units: Array, name: FloatRoundingName, random: Array | None) -> Array:
    match name:
        case "rne":
            return np.rint(units)
        case "rz":
            return np.trunc(units)
        case "floor":
            return np.floor(units)
        case "sr":
            assert random is not None
            whole = np.trunc(units)
            rest = np.abs(units - whole)
            up = np.floor(np.ldexp(rest, BITS)) > random
            return whole + np.copysign(up.astype(np.float64), units)
        case _:
            assert_never(name)
