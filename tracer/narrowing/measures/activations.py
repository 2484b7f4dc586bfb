"""The layer also reads its activations in fewer bits, with their largest values clipped.

Activations of fewer bits leave the weights more room: a sum of 16 bits holds weights of 128 in all
times 8-bit activations, and 2,184 times 4-bit ones. The error has one minimum: fewer bits are tried
until it grows.
"""

from collections.abc import Callable

from tracer.narrowing.fitting import Fit, Grid, as_it_is
from tracer.narrowing.layers import Layer
from tracer.narrowing.measures import Measure

_LEAST_BITS, _MOST_BITS = 2, 8
_KEPT = (0.8, 0.6, 0.45)
"""Shares of the range that are kept, in turn, until the error grows."""


def _propose(layer: Layer, fit: Callable[[Grid], Fit]) -> Fit:
    own = as_it_is(layer)
    if own.bits <= _LEAST_BITS:
        return fit(own)
    most = min(own.bits - 1, _MOST_BITS)
    best = fit(_grid(own, most, 1.0))
    for bits in range(most - 1, _LEAST_BITS - 1, -1):
        found = fit(_grid(own, bits, 1.0))
        if found.error > best.error:
            break
        best = found
    for kept in _KEPT:
        found = fit(_grid(own, best.grid.bits, kept))
        if found.error > best.error:
            break
        best = found
    return best


def _grid(own: Grid, bits: int, kept: float) -> Grid:
    """Returns a grid of `bits` bits over a share of the range of `own`."""
    count = (1 << bits) - 1
    step = own.step * kept * (own.high - own.low) / count
    low = max(round(own.low * own.step * kept / step), -count)
    return Grid(bits, step, low, low + count)


MEASURE = Measure("activations", 1, _propose)
