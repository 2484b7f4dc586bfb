"""The layer also reads its activations in fewer bits, with their largest values clipped.

Activations of fewer bits leave the weights more room: a sum of 16 bits holds weights of 128 in all
times 8-bit activations, and 2,184 times 4-bit ones. The error has one minimum: fewer bits are tried
until it grows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tracer.narrowing.layers import Grid
from tracer.narrowing.measures import Proposal, best, falling, measure
from tracer.narrowing.measures.weights import on_grid
from tracer.narrowing.requirement import Need
from tracer.narrowing.samples import LayerSamples

_MOST_BITS = 8
_KEPT = (0.8, 0.6, 0.45)
"""Shares of the range that are kept, in turn, until the error grows."""


def fewer_bits(
    own: Grid, need: Need, propose: Callable[[Grid], Proposal | None]
) -> Proposal | None:
    """Returns the best proposal for grids of fewer bits than `own`, and narrower ones.

    Half of the bits of a sum, for the activations, are the first guess.
    """
    most = min(own.bits - 1, _MOST_BITS)
    if most < 1:
        return None
    guess = min(max(need.bits // 2 - 1, 1), most)
    least = falling([partial(_of_bits, own, propose, bits) for bits in range(guess, 0, -1)])
    if least is None or least.input_bits == guess:
        wider = falling([partial(_of_bits, own, propose, n) for n in range(guess + 1, most + 1)])
        least = best([least, wider])
    if least is None:
        return None
    narrow = [partial(_of_bits, own, propose, least.input_bits, kept) for kept in _KEPT]
    return falling([lambda: least, *narrow])


def _of_bits(
    own: Grid, propose: Callable[[Grid], Proposal | None], bits: int, kept: float = 1.0
) -> Proposal | None:
    return propose(own.of_bits(bits, kept))


@measure("activations", 3, LayerSamples)
def propose(samples: LayerSamples, need: Need) -> Proposal | None:
    """Proposes weights for activations of fewer bits."""
    return fewer_bits(samples.layer.grid, need, partial(on_grid, samples, need))
