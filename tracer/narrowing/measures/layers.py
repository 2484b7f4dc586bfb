"""What can be changed in a layer: its weights, the activations that it reads, and its sums.

Activations of fewer bits leave the weights more room: a sum of 16 bits holds weights of 128 in all
times 8-bit activations, and 2,184 times 4-bit ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tracer.narrowing import fitting, fragment, partial_sum_extremes
from tracer.narrowing.layers import Grid
from tracer.narrowing.measures import Proposal, best, falling, measure
from tracer.narrowing.requirement import MARGIN, Need
from tracer.narrowing.rounding import product
from tracer.narrowing.samples import LayerSamples

_CLIPPED = (0.85, 0.7, 0.5, 0.35, 0.25)
_CLIPPED_IN_FEWER_BITS = (0.8, 0.6, 0.45)
"""Shares of the range that are kept, in turn, until the error grows."""
_MOST_EXCESS = 16.0
"""How many times too large sums are that clipping can help: it gains two bits at most."""
_MOST_BITS = 8
_PARTS = 2


@measure("ordering", 0, LayerSamples, keeps_values=True)
def propose_order(samples: LayerSamples, need: Need) -> Proposal | None:
    """Proposes another order of the input channels; weights and activations stay.

    Partial sums on the way to a sum may leave a register that holds the sum itself. Which partial
    sums there are depends on the order of the terms. The order is for the calibration data: for any
    input it does not matter, since the worst input is 0 where a weight has the wrong sign, and
    reaches the same sum in every order. Channels move as a whole, and one order serves all output
    channels. A Gather permutes the channels that the layer reads, and its weights are stored in
    that order, so a wide accumulator computes the same integers. It needs hardware that keeps the
    order of the terms.
    """
    layer, read = samples.layer, samples.read[:, 0]
    if need.is_for_any_input or layer.groups > 1 or not layer.is_storable:
        return None
    most = need.largest / MARGIN * layer.grid.step * layer.scales
    order = partial_sum_extremes.find_order(
        layer, read, need.registers(layer.depth, layer.kernel), most
    )
    if order is None:
        return None
    lost = product(read - samples.wide[:, 0], layer.weights.T)
    return Proposal(
        partial(fragment.write_in_order, layer=layer, order=order),
        float((lost**2).mean(0).sum()),
        float((samples.wanted**2).mean(0).sum()),
        layer.grid.bits,
    )


@measure("weights", 1, LayerSamples)
def propose_weights(samples: LayerSamples, need: Need) -> Proposal:
    """Proposes fewer and smaller integers as weights; activations stay as they are."""
    return _on_grid(samples, need, samples.layer.grid)


@measure("clipping", 2, LayerSamples)
def propose_clipping(samples: LayerSamples, need: Need) -> Proposal | None:
    """Proposes weights for activations whose largest values are clipped; their steps stay.

    Few activations are large, and the worst input has them all. A range that is half as wide leaves
    the weights twice the room. None where the sums are far too large.
    """
    own = samples.layer.grid
    if fitting.excess(samples.layer, need) > _MOST_EXCESS:
        return None
    grids = [own.clipped(kept) for kept in _CLIPPED]
    possible = [grid for grid in grids if 0 < grid.bits <= _MOST_BITS]
    return falling([partial(_on_grid, samples, need, grid) for grid in possible])


@measure("activations", 3, LayerSamples)
def propose_activations(samples: LayerSamples, need: Need) -> Proposal | None:
    """Proposes weights for activations of fewer bits, with their largest values clipped."""
    return _fewer_bits(samples.layer.grid, need, partial(_on_grid, samples, need))


@measure("centring", 4, LayerSamples, dear=True)
def propose_centring(samples: LayerSamples, need: Need) -> Proposal | None:
    """Proposes weights of mean 0, where the sum of the inputs fits too: A2Q+.

    Rows of mean 0 use both halves of the range of a register, and small ones leave more room (arXiv
    2401.10432). What is missing is exact: the sum of the inputs is a sum of its own, for all output
    channels together, which must fit too. It is added times the means as a real number.
    """
    layer = samples.layer
    if layer.groups > 1 or not need.is_for_any_input or need.machine is not None:
        return None
    terms = layer.depth if need.tile is None else min(layer.depth, need.tile)

    def centred(grid: Grid) -> Proposal | None:
        fits = terms * grid.extent <= need.largest  # the sum of the inputs
        return _on_grid(samples, need, grid, centred=True) if fits else None

    return best([centred(layer.grid), _fewer_bits(layer.grid, need, centred)])


@measure("splitting", 5, LayerSamples, dear=True)
def propose_splitting(samples: LayerSamples, need: Need) -> Proposal | None:
    """Proposes weights for two nodes, each with half of the channels, whose outputs are added.

    Each node has an accumulator of its own, so that the weights have twice the room. The outputs
    are dequantised before they are added: the Add is no sum in a narrow accumulator.
    """
    layer = samples.layer
    has_tiles = need.tile is not None or need.machine is not None
    if layer.groups > 1 or has_tiles or layer.depth < _PARTS * layer.window:
        return None
    split = partial(_on_grid, samples, need, parts=_PARTS)
    return best([split(layer.grid), _fewer_bits(layer.grid, need, split)])


def _on_grid(
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
    fit = fitting.fit_layer(samples, grid, registers, centred, steps)
    write = partial(fragment.write_layer, layer=layer, fit=fit, parts=parts)
    near = slice(max(fit.steps[0] - 1, 0), fit.steps[1] + 2)
    again = partial(_on_grid, need=need, grid=grid, parts=parts, centred=centred, steps=near)
    return Proposal(write, fit.error, fit.power, grid.bits, again)


def _fewer_bits(
    own: Grid, need: Need, propose: Callable[[Grid], Proposal | None]
) -> Proposal | None:
    """Returns the best proposal for grids of fewer bits than `own`, and narrower ones.

    Half of the bits of a sum, for the activations, are the first guess. The error has one minimum:
    fewer bits are tried until it grows.
    """
    most = min(own.bits - 1, _MOST_BITS)
    if most < 1:
        return None
    guess = min(max(need.bits // 2 - 1, 1), most)

    def of_bits(bits: int, kept: float = 1.0) -> Proposal | None:
        return propose(own.of_bits(bits, kept))

    least = falling([partial(of_bits, bits) for bits in range(guess, 0, -1)])
    if least is None or least.input_bits == guess:
        wider = falling([partial(of_bits, bits) for bits in range(guess + 1, most + 1)])
        least = best([least, wider])
    if least is None:
        return None
    narrow = [partial(of_bits, least.input_bits, kept) for kept in _CLIPPED_IN_FEWER_BITS]
    return falling([lambda: least, *narrow])
