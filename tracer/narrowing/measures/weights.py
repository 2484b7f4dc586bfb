"""Weights are rounded to fewer and smaller integers; activations stay as they are."""

from __future__ import annotations

from functools import partial

from tracer.narrowing import fragment
from tracer.narrowing.fitting import fit_layer
from tracer.narrowing.layers import Grid
from tracer.narrowing.measures import Measure, Proposal
from tracer.narrowing.requirement import Need
from tracer.narrowing.samples import LayerSamples


def on_grid(samples: LayerSamples, need: Need, grid: Grid) -> Proposal:
    """Proposes weights that fit inputs on a grid."""
    layer = samples.layer
    fit = fit_layer(samples, grid, need.registers(layer.depth))
    write = partial(fragment.write_layer, layer=layer, fit=fit)
    again = partial(on_grid, need=need, grid=grid)
    return Proposal(write, fit.error, fit.power, grid.bits, again)


def _propose(samples: LayerSamples, need: Need) -> Proposal:
    return on_grid(samples, need, samples.layer.grid)


MEASURE = Measure("weights", 1, LayerSamples, _propose)
