"""What can be changed so that the sums of a node fit: a function each, marked `@measure`.

Activations of fewer bits leave the weights of a layer more room: a sum of 16 bits holds weights of
128 in all times 8-bit activations, and 2,184 times 4-bit ones.

A sum without weights reads its activations in fewer steps: one operand, or both of a product. No
input makes K products exceed K times the largest magnitudes of both operands. All ways to share the
steps between the operands are tried; then their ranges are clipped. Softmax returns numbers that
add up to 1, but rounded ones need not: K is the number of terms here too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np

from tracer.narrowing import fitting, fragment
from tracer.narrowing.fitting import sqnr_db
from tracer.narrowing.fragment import Fragment
from tracer.narrowing.layers import Grid, PlainSum
from tracer.narrowing.requirement import MARGIN, Need
from tracer.narrowing.rounding import product
from tracer.narrowing.samples import LayerSamples, SumSamples, find_order


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change after which the sums of a node fit.

    `write` adds the nodes that take the place of the node. `error` and `power` are the mean squares
    of what the outputs lose and are on the samples; `input_bits` number the integers of the inputs.
    `again` makes the same change for other samples, such as more outputs of a layer. It is None
    for a change that was chosen with all of them.
    """

    write: Callable[[Fragment], None] = field(repr=False)
    error: float
    power: float
    input_bits: int
    again: "Callable[[Any], Proposal] | None" = field(default=None, repr=False)

    @property
    def sqnr_db(self) -> float:
        """10 log10(power / error); infinite without an error."""
        return sqnr_db(self.error, self.power)


@dataclass(frozen=True, slots=True)
class Measure:
    """A change by its `name`; a lower `rank` changes less, and is preferred where it suffices.

    `propose` returns the best change that makes samples of the type `changes` fit, or None where
    the measure does not apply. A measure that `keeps_values` returns the same numbers: where it
    applies, no other is tried. A `dear` measure adds sums or moves to the graph: it is tried only
    where the others lose too much.
    """

    name: str
    rank: int
    changes: type
    propose: Callable[[Any, Need], Proposal | None]
    keeps_values: bool = False
    dear: bool = False


_MEASURES: list[Measure] = []
Propose = TypeVar("Propose", bound=Callable[..., Proposal | None])


def measure(
    name: str, rank: int, changes: type, *, keeps_values: bool = False, dear: bool = False
) -> Callable[[Propose], Propose]:
    """Makes a measure of a function that proposes a change; the others are fields of Measure."""

    def register(propose: Propose) -> Propose:
        _MEASURES.append(Measure(name, rank, changes, propose, keeps_values, dear))
        return propose

    return register


@cache
def measures() -> tuple[Measure, ...]:
    """Returns all measures, those that change the least first."""
    return tuple(sorted(_MEASURES, key=lambda measure: (measure.rank, measure.name)))


def best(proposals: Sequence[Proposal | None]) -> Proposal | None:
    """Returns the proposal with the least error; the first of several."""
    found = [each for each in proposals if each is not None]
    return min(found, key=lambda each: each.error, default=None)


def falling(attempts: Sequence[Callable[[], Proposal | None]]) -> Proposal | None:
    """Makes one attempt after the other until the error grows; returns the best."""
    least: Proposal | None = None
    for attempt in attempts:
        found = attempt()
        if found is not None and least is not None and found.error > least.error:
            break
        least = found or least
    return least


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
    order = find_order(layer, read, need.registers(layer.depth, layer.kernel), most)
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
    registers = replace(registers, starts=tuple(starts)) if parts > 1 else registers
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


_MOST = 255
"""Integers of a byte, without 0."""
_EXTENTS = tuple(dict.fromkeys(round(2 ** (n / 2)) for n in range(17)))
"""Largest magnitudes of the first operand of a product that are tried."""


def fits_already(samples: SumSamples, need: Need) -> bool:
    """Whether the sums fit as they are."""
    ends = [grid.ends(need) for grid in samples.node.grids]
    extents = [max(high, -low) for low, high in ends]
    return int(np.prod(extents, dtype=object)) <= _room(samples, need)


@measure("operands", 1, SumSamples)
def propose(samples: SumSamples, need: Need) -> Proposal | None:
    """Shares the steps between the operands as loses the least, then clips their ranges."""
    if need.machine is not None:
        return None
    node, room = samples.node, _room(samples, need)
    own = [min(grid.extent, _MOST if grid.low == 0 else _MOST // 2) for grid in node.grids]
    pairs: list[tuple[int, ...]]  # largest magnitudes of the operands, whose product is in the room
    if len(own) == 1:
        pairs = [(min(own[0], room),)] if room else []
    else:
        fitting = (extent for extent in _EXTENTS if extent <= own[0] and room // extent)
        pairs = [(extent, min(own[1], room // extent)) for extent in fitting]
    tried = [_proposal(samples, _grids(node, pair)) for pair in pairs]
    least = best(tried)
    if least is None:
        return None
    extents = next(pair for pair, each in zip(pairs, tried, strict=True) if each is least)
    kept = [1.0] * len(extents)
    for index in range(len(extents)):  # the range of one operand after another is clipped
        for share in _CLIPPED:
            shares = [*kept[:index], share, *kept[index + 1 :]]
            found = _proposal(samples, _grids(node, extents, shares))
            if found.error >= least.error:
                break
            kept, least = shares, found
    return least


def _room(samples: SumSamples, need: Need) -> int:
    """Returns what the product of the largest magnitudes of the operands may be at most."""
    node = samples.node
    depth = max(node.depth(x, y) for x, y in zip(samples.read, samples.wanted, strict=True))
    terms = need.most_terms(depth)
    if need.is_for_any_input:
        return need.largest // terms
    extents = float(np.prod([grid.extent * grid.step for grid in node.grids]))
    count = len(node.grids)
    unsigned = [[*map(np.abs, x[:count]), *x[count:]] for x in samples.read]
    # no order of terms exceeds the largest output of inputs without their signs
    largest = float(max(y.max() for y in samples.outputs(unsigned)))
    reached = largest * (depth if node.is_mean else 1)
    return int(need.largest / max(min(terms, MARGIN * reached / extents), 1e-9))


def _grids(
    node: PlainSum, extents: Sequence[int], kept: Sequence[float] | None = None
) -> tuple[Grid, ...]:
    shares = kept or [1.0] * len(extents)
    return tuple(
        grid.of_extent(extent, share)
        for grid, extent, share in zip(node.grids, extents, shares, strict=True)
    )


def _proposal(samples: SumSamples, grids: tuple[Grid, ...]) -> Proposal:
    rounded = []
    for inputs in samples.read:
        arrays = [(np.asarray(each), grid) for each, grid in zip(inputs, grids, strict=False)]
        own = [(grid.integers(x) * grid.step).astype(x.dtype) for x, grid in arrays]
        rounded.append([*own, *inputs[len(grids) :]])
    outputs = samples.outputs(rounded)
    pairs = list(zip(outputs, samples.wanted, strict=True))
    error = float(np.mean([((y - wanted) ** 2).mean(dtype=np.float64) for y, wanted in pairs]))
    power = float(np.mean([(wanted**2).mean(dtype=np.float64) for _, wanted in pairs]))
    write = partial(_write, node=samples.node, grids=grids)
    return Proposal(write, error, power, max(grid.bits for grid in grids))


def _write(fragment: Fragment, node: PlainSum, grids: tuple[Grid, ...]) -> None:
    inputs = list(fragment.node.input)
    for index, grid in enumerate(grids):
        if grid != node.grids[index]:
            inputs[index] = fragment.on_grid(inputs[index], grid)
    fragment.finish(fragment.copy(inputs, "sum"))
