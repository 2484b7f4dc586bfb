"""The input channels of a layer are summed in another order; weights and activations stay.

Partial sums on the way to a sum may leave a register that holds the sum itself. Which partial sums
there are depends on the order of the terms. The order is for the calibration data: for any input it
does not matter, since the worst input is 0 where a weight has the wrong sign, and reaches the same
sum in every order. Channels move as a whole, and one order serves all output channels. A Gather
permutes the channels that the layer reads, and its weights are stored in that order, so a wide
accumulator computes the same integers. It needs hardware that keeps the order of the terms.
"""

from __future__ import annotations

from functools import partial

from tracer.narrowing import fragment, partial_sum_extremes
from tracer.narrowing.measures import Proposal, measure
from tracer.narrowing.requirement import MARGIN, Need
from tracer.narrowing.rounding import product
from tracer.narrowing.samples import LayerSamples


@measure("ordering", 0, LayerSamples, keeps_values=True)
def propose(samples: LayerSamples, need: Need) -> Proposal | None:
    """Proposes an order in which the partial sums of the samples fit."""
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
