"""Numbers in a float format: rounded, at random too, with scales, and sums on their way.

A scaled number is a complex64: the element is its real part, the scale of its block its imaginary
part. So arrays of them are moved, padded with 0 and gathered as any other, and are never added.
"""

from dataclasses import dataclass
from typing import assert_never

import numpy as np

from tracer.accumulators.floats import kernels
from tracer.accumulators.spec.accumulator import mixed
from tracer.accumulators.spec.float_accumulator import FloatFormat, FloatRounding, FloatRoundingName
from tracer.interpreter.numeric import parallel
from tracer.support.types import Array

_FRACTION, _SINGLE_FRACTION = 52, 23
"""Bits of a float64, and of a float32, after the first one."""
NO_EXPONENT = -400
"""Below the exponent of any number."""
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
        outputs = draw_words(draw_key(rounding.seed, 0), np.arange(wide.size))
        random = draws_at_step(outputs, 0).reshape(wide.shape)
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
    run = kernels.loaded("lanes").to_nearest

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
            up = np.floor(np.ldexp(rest, kernels.BITS)) > random
            return whole + np.copysign(up.astype(np.float64), units)
        case _:
            assert_never(name)


def wide_format(form: FloatFormat, saturates: bool = False) -> tuple[float, ...]:
    """Returns a format for lanes of float64: `kernels.lanes.FORMAT`."""
    unit = 2.0**-form.fraction_bits
    is_kept = form.subnormals == "kept"
    return (
        1.5 * 2.0**_FRACTION * unit, unit, form.least_normal if is_kept else 2.0**NO_EXPONENT,
        0.0 if is_kept else form.least_normal, form.largest,
        form.largest if saturates else form.beyond,
    )  # fmt: skip


def single_format(form: FloatFormat) -> tuple[np.float32, np.float32]:
    """Returns a format for lanes of float32: `kernels.singles.FORMAT`."""
    big = 1.5 * 2.0 ** (_SINGLE_FRACTION - form.fraction_bits)
    return np.float32(big), np.float32(form.least_normal)


def odd_sum(a: Array, b: Array) -> Array:
    """Returns a + b in float64, rounded to odd: any later rounding to 51 bits or fewer is exact.

    Where the sum is no float64, the neighbour whose last bit is 1 (Boldo and Melquiond, 2008). The
    error of the sum is exact (Knuth's TwoSum).
    """
    total = np.asarray(a + b)
    part = total - a
    error = (a - (total - part)) + (b - part)
    is_even = (total.view(np.int64) & 1) == 0
    beside = np.nextafter(total, np.copysign(np.inf, error))
    inexact = np.isfinite(total) & (error != 0) & is_even
    return np.where(inexact, beside, total)


@dataclass
class State:
    """Sums (M, P), floats, each with what happened on its way.

    `values`: what the accumulator holds at the end. `overflowed`, bool: whether a step left the
    range of a format. `terms`, integers: products other than 0; `swamped`: those among them that
    did not change the sum (of a block: of which alignment left no bit). `exact`, float64: the start
    and the same products, added one by one in float64.
    """

    values: Array
    overflowed: Array
    swamped: Array
    terms: Array
    exact: Array

    @classmethod
    def beginning(cls, start: Array) -> "State":
        """Returns sums that begin with `start`, without any term."""
        none = np.zeros(start.shape, np.int64)
        return cls(start.copy(), none != 0, none, none.copy(), start.copy())

    def count(self, products: Array, is_unchanged: Array) -> None:
        """Counts products (M, P) other than 0, and those of them that changed nothing."""
        self.terms += products != 0
        self.swamped += (products != 0) & is_unchanged
        self.exact += products

    def put(
        self, values: Array, form: FloatFormat, name: FloatRoundingName = "rne",
        saturates: bool = False, random: Array | None = None,
    ) -> Array:  # fmt: skip
        """Returns `values` in a format; notes which were outside its range. 0 is +0."""
        result, outside = limited(to_grid(values, form, name, random), form, saturates)
        self.overflowed |= outside
        return result + 0.0


def draw_key(rule_seed: int, seed: int) -> int:
    """Returns 64 bits for the seed of a rounding rule and the seed of, say, a node."""
    first = int(mixed(np.array([rule_seed * kernels.SEED_STEP % (1 << 64)], np.uint64))[0])
    second = np.array([(first + seed * kernels.SEED_STEP) % (1 << 64)], np.uint64)
    return int(mixed(second)[0])


def draw_words(key: int, indices: Array) -> Array:
    """Returns 64 bits, uint64, for each output index."""
    return mixed(np.uint64(key) + indices.astype(np.uint64) * np.uint64(kernels.INDEX_STEP))


def draws_at_step(outputs: Array, step: int) -> Array:
    """Returns numbers of `BITS` bits, float64, one for each of `outputs` at a step."""
    spread = np.uint64((step + 1) * kernels.STEP_STEP % (1 << 64))
    return (mixed(outputs + spread) >> np.uint64(64 - kernels.BITS)).astype(np.float64)


def paired(elements: Array, scales: Array) -> Array:
    """Returns scaled numbers; both are float32, of shapes that numpy broadcasts."""
    out = np.empty(np.broadcast_shapes(elements.shape, scales.shape), np.complex64)
    out.real, out.imag = elements, scales
    return out


def parted(numbers: Array) -> tuple[Array, Array]:
    """Returns elements and scales, float64, row after row.

    Numbers that are not scaled have scales of 1.
    """
    scales = numbers.imag if np.iscomplexobj(numbers) else np.ones_like(numbers)
    return np.ascontiguousarray(numbers.real, np.float64), np.ascontiguousarray(scales, np.float64)


def unscaled(numbers: Array) -> Array:
    """Returns elements times the magnitudes of their scales, float64."""
    elements, scales = parted(numbers)
    return elements * np.abs(scales)
