"""A sum without weights reads its activations in fewer steps: one operand, or both of a product.

No input makes K products exceed K times the largest magnitudes of both operands. All ways to share
the steps between the operands are tried; then their ranges are clipped. Softmax returns numbers
that add up to 1, but rounded ones need not: K is the number of terms here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tracer.narrowing.fragment import Fragment
from tracer.narrowing.layers import Grid, PlainSum
from tracer.narrowing.measures import Proposal, best, measure
from tracer.narrowing.requirement import MARGIN, Need
from tracer.narrowing.samples import SumSamples

_MOST = 255
"""Integers of a byte, without 0."""
_EXTENTS = tuple(dict.fromkeys(round(2 ** (n / 2)) for n in range(17)))
"""Largest magnitudes of the first operand of a product that are tried."""
_KEPT = (0.85, 0.7, 0.5, 0.35, 0.25)


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
        for share in _KEPT:
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
