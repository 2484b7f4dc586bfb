"""Rounds arrays of float32 to a format, to nearest, as `floats.casting` defines it."""

from typing import Any

import numpy as np
from numba import types

from tracer.accumulators.floats.kernels.rounding import FORMAT, limited, nearest, with_sign
from tracer.accumulators.kernels.array_types import flat, kernel, read_only
from tracer.interpreter.compiled_code import entry


@entry(lambda values, form, has_negative_zero, out: values.size == out.size)
@kernel(types.void(read_only(types.float32), FORMAT, types.boolean, flat(types.float32)))
def to_nearest(values: Any, form: Any, has_negative_zero: bool, out: Any) -> None:
    """Writes each of `values` in a format; 0 is +0 unless the format has a negative one."""
    for i in range(values.size):
        number = float(values[i])
        result = limited(nearest(number, form), form)
        is_signed = has_negative_zero | (result != 0)
        out[i] = np.float32(with_sign(result, number if is_signed else 1.0))
