"""Weights are rounded to fewer and smaller integers; activations stay as they are."""

from __future__ import annotations

from functools import partial

from tracer.narrowing import fragment
from tracer.narrowing.fitting import fit_layer
from tracer.narrowing.layers import Grid
from tracer.narrowing.measures import Proposal, measure
from tracer.narrowing.requirement import Need
from tracer.narrowing.samples import LayerSamples


def on_grid(
    samples: LayerSamples,
    need: Need,
    grid: Grid,
    parts: int = 1,
    centred: bool = False,
    steps: slice = slice(None),
) -> Proposal:
    """Proposes weights that fit inputs on a grid: in parts of the channels, or rows of mean 0.

    Of the units of weights that could be tried, only those of `steps` are.
    """
    layer = samples.layer
    starts = [cut.start * layer.window for cut in fragment.cuts(layer, parts)]
    registers = need.registers(layer.depth, layer.kernel)
    registers = registers.split_at(*starts) if parts > 1 else registers
    fit = fit_layer(samples, grid, registers, centred, steps)
    write = partial(fragment.write_layer, layer=layer, fit=fit, parts=parts)
    near = slice(max(fit.steps[0] - 1, 0), fit.steps[1] + 2)
    again = partial(on_grid, need=need, grid=grid, parts=parts, centred=centred, steps=near)
    return Proposal(write, fit.error, fit.power, grid.bits, again)


@measure("weights", 1, LayerSamples)
def propose(samples: LayerSamples, need: Need) -> Proposal:
    """Proposes weights for the activations as they are."""
    return on_grid(samples, need, samples.layer.grid)
