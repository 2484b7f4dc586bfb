"""The triad of STREAM."""

from typing import Any

from numba import njit, types

from tracer.interpreter.kernel_entries import entry

_LINE = types.Array(types.float64, 1, "C")


@entry(lambda a, b, c, factor: a.size == b.size == c.size)
@njit(types.void(_LINE, _LINE, _LINE, types.float64), nogil=True, cache=True)
def triad(a: Any, b: Any, c: Any, factor: float) -> None:
    """a = b + factor c, float64, all of one length; numpy would read its arrays twice."""
    for i in range(len(a)):
        a[i] = b[i] + factor * c[i]
