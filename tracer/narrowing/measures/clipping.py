"""The largest activations that a layer reads are clipped; their steps stay.

Few activations are large, and the worst input has them all. A range that is half as wide leaves
the weights twice the room.
"""

from __future__ import annotations

from functools import partial

from tracer.narrowing import fitting
from tracer.narrowing.measures import Proposal, falling, measure
from tracer.narrowing.measures.weights import on_grid
from tracer.narrowing.requirement import Need
from tracer.narrowing.samples import LayerSamples

_KEPT = (0.85, 0.7, 0.5, 0.35, 0.25)
"""Shares of the range that are kept, in turn, until the error grows."""
_MOST_EXCESS = 16.0
"""How many times too large sums are that clipping can help: it gains two bits at most."""
_MOST_BITS = 8


@measure("clipping", 2, LayerSamples)
def propose(samples: LayerSamples, need: Need) -> Proposal | None:
    """Proposes weights for clipped activations, unless the sums are far too large."""
    own = samples.layer.grid
    if fitting.excess(samples.layer, need) > _MOST_EXCESS:
        return None
    grids = [own.clipped(kept) for kept in _KEPT]
    possible = [grid for grid in grids if 0 < grid.bits <= _MOST_BITS]
    return falling([partial(on_grid, samples, need, grid) for grid in possible])
