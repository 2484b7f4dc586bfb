"""Each row of weights lacks its mean, which is multiplied with the sum of the inputs: A2Q+.

Rows of mean 0 use both halves of the range of a register, and small ones leave more room (arXiv
2401.10432). What is missing is exact: the sum of the inputs is a sum of its own, for all output
channels together, which must fit too. It is added times the means as a real number.
"""

from __future__ import annotations

from tracer.narrowing.layers import Grid
from tracer.narrowing.measures import Proposal, best, measure
from tracer.narrowing.measures.activations import fewer_bits
from tracer.narrowing.measures.weights import on_grid
from tracer.narrowing.requirement import Need
from tracer.narrowing.samples import LayerSamples


@measure("centring", 4, LayerSamples, dear=True)
def propose(samples: LayerSamples, need: Need) -> Proposal | None:
    """Proposes weights of mean 0, where the sum of the inputs fits too."""
    layer = samples.layer
    if layer.groups > 1 or not need.is_for_any_input or need.machine is not None:
        return None
    terms = layer.depth if need.tile is None else min(layer.depth, need.tile)

    def centred(grid: Grid) -> Proposal | None:
        fits = terms * grid.extent <= need.largest  # the sum of the inputs
        return on_grid(samples, need, grid, centred=True) if fits else None

    return best([centred(layer.grid), fewer_bits(layer.grid, need, centred)])
