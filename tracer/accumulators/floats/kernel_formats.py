"""Float formats as the kernels read them."""

import numpy as np

from tracer.accumulators.spec.float_format import FloatFormat

_FRACTION, _SINGLE_FRACTION = 52, 23
"""Bits of a float64, and of a float32, after the first one."""
NO_EXPONENT = -400
"""Below the exponent of any number."""


def wide_format(form: FloatFormat, saturates: bool = False) -> tuple[float, ...]:
    """Returns a format for lanes of float64: `kernels.rounding.FORMAT`."""
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
