"""The input channels of a layer are summed in two nodes, whose real outputs are added.

Each node has an accumulator of its own, so that the weights have twice the room. The outputs are
dequantised before they are added: the Add is no sum in a narrow accumulator.
"""

from __future__ import annotations

from functools import partial

from tracer.narrowing import fragment
from tracer.narrowing.fitting import fit_layer
from tracer.narrowing.layers import Grid
from tracer.narrowing.measures import Measure, Proposal, best
from tracer.narrowing.measures.activations import fewer_bits
from tracer.narrowing.requirement import Need
from tracer.narrowing.samples import LayerSamples

_PARTS = 2


def _propose(samples: LayerSamples, need: Need) -> Proposal | None:
    layer = samples.layer
    if layer.groups > 1 or need.tile is not None or layer.depth < _PARTS * layer.window:
        return None
    own = _on_grid(samples, need, layer.grid)
    return best([own, fewer_bits(layer.grid, need, partial(_on_grid, samples, need))])


def _on_grid(samples: LayerSamples, need: Need, grid: Grid) -> Proposal:
    layer = samples.layer
    starts = [cut.start * layer.window for cut in fragment.cuts(layer, _PARTS)]
    fit = fit_layer(samples, grid, need.registers(layer.depth).split_at(*starts))
    write = partial(fragment.write_layer, layer=layer, fit=fit, parts=_PARTS)
    again = partial(_on_grid, need=need, grid=grid)
    return Proposal(write, fit.error, fit.power, grid.bits, again)


MEASURE = Measure("splitting", 5, LayerSamples, _propose, dear=True)
