"""Each row of weights lacks its mean, which is multiplied with the sum of the inputs: A2Q+.

Rows of mean 0 use both halves of the range of a register, and small ones leave more room (arXiv
2401.10432). What is missing is exact: the sum of the inputs is a sum of its own, for all output
channels together, which must fit too. It is added times the means as a real number.
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


def _propose(samples: LayerSamples, need: Need) -> Proposal | None:
    if samples.layer.groups > 1 or not need.is_for_any_input:
        return None
    own = _on_grid(samples, need, samples.layer.grid)
    return best([own, fewer_bits(samples.layer.grid, need, partial(_on_grid, samples, need))])


def _on_grid(samples: LayerSamples, need: Need, grid: Grid) -> Proposal | None:
    layer = samples.layer
    terms = layer.depth if need.tile is None else min(layer.depth, need.tile)
    if terms * grid.extent > need.largest:
        return None
    return _centred(samples, need, grid)


def _centred(samples: LayerSamples, need: Need, grid: Grid) -> Proposal:
    layer = samples.layer
    fit = fit_layer(samples, grid, need.registers(layer.depth), centred=True)
    write = partial(fragment.write_layer, layer=layer, fit=fit)
    again = partial(_centred, need=need, grid=grid)
    return Proposal(write, fit.error, fit.power, grid.bits, again)


MEASURE = Measure("centring", 4, LayerSamples, _propose, dear=True)
