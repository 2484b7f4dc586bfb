"""The input channels of a layer are summed in two nodes, whose real outputs are added.

Each node has an accumulator of its own, so that the weights have twice the room. The outputs are
dequantised before they are added: the Add is no sum in a narrow accumulator.
"""

from __future__ import annotations

from functools import partial

from tracer.narrowing.measures import Proposal, best, measure
from tracer.narrowing.measures.activations import fewer_bits
from tracer.narrowing.measures.weights import on_grid
from tracer.narrowing.requirement import Need
from tracer.narrowing.samples import LayerSamples

_PARTS = 2


@measure("splitting", 5, LayerSamples, dear=True)
def propose(samples: LayerSamples, need: Need) -> Proposal | None:
    """Proposes weights for two nodes, each with half of the channels."""
    layer = samples.layer
    has_tiles = need.tile is not None or need.machine is not None
    if layer.groups > 1 or has_tiles or layer.depth < _PARTS * layer.window:
        return None
    split = partial(on_grid, samples, need, parts=_PARTS)
    return best([split(layer.grid), fewer_bits(layer.grid, need, split)])
