"""Numbers that are elements times the scales of their blocks, and that stay apart.

A scaled number is a complex64: the element is its real part, the scale of its block its imaginary
part. So arrays of them are moved, padded with 0 and gathered as any other, and are never added.
"""

import numpy as np

from tracer.support.types import Array


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


def values(numbers: Array) -> Array:
    """Returns elements times the magnitudes of their scales, float64."""
    elements, scales = parted(numbers)
    return elements * np.abs(scales)
