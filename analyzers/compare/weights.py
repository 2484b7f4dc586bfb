"""Whether two models have the same weights, which tells why their values differ."""

from collections import Counter
from typing import TypeAlias

import numpy as np

from tracer.graph.model import Model
from tracer.interpreter.values import from_tensor
from tracer.support.types import Array

Fingerprint: TypeAlias = tuple[int, int, int]

_AT_ONCE = 1 << 20
"""Elements whose sums are taken at once: the bits of each take eight bytes."""
_MODULUS = 1 << 64


def unshared(first: Model, second: Model) -> tuple[int, int]:
    """Returns how many weights of `second` are not in `first`, and how many it has.

    A weight is an initializer of two or more floats. Frameworks store weights under other names and
    transposed, so equal values in any order are the same weight. Raises ModelError for weights that
    cannot be read.
    """
    ours, theirs = _weights(first), _weights(second)
    return (theirs - ours).total(), theirs.total()


def _weights(model: Model) -> Counter[Fingerprint]:
    folder = model.path.parent if model.path else None
    arrays = (from_tensor(proto, folder) for proto in model.graph.initializer)
    return Counter(_fingerprint(array) for array in arrays if _is_weight(array))


def _is_weight(array: Array) -> bool:
    return array.dtype.kind == "f" and array.size > 1


def _fingerprint(array: Array) -> Fingerprint:
    """Returns the size and two sums over the bits of the elements, modulo 2^64."""
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")
    total = squares = 0
    for start in range(0, bits.size, _AT_ONCE):
        part = bits[start : start + _AT_ONCE].astype(np.uint64)
        total += int(part.sum(dtype=np.uint64))
        squares += int((part * part).sum(dtype=np.uint64))
    return array.size, total % _MODULUS, squares % _MODULUS
