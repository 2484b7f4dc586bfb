"""Writes a layer that was fitted as nodes of the graph."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tracer.narrowing.channel_orders import terms_of
from tracer.narrowing.fitting import Fit
from tracer.narrowing.fragment import Fragment
from tracer.narrowing.layers import Layer
from tracer.support.types import Array


def write_in_order(fragment: Fragment, layer: Layer, order: Array) -> None:
    """Adds the layer as it is, with its input channels in an `order` (channels,)."""
    inputs, _, *bias = fragment.node.input
    indices = fragment.constant("order", order.astype(np.int64))
    moved = fragment.add("Gather", [inputs, indices], {"axis": layer.channel_axis})
    integers = layer.integers[:, terms_of(order, layer.window)]
    weights = _weights(fragment, layer, integers, layer.scales)
    fragment.finish(fragment.copy([moved, weights, *bias], "sum"))


def write(fragment: Fragment, layer: Layer, fit: Fit, parts: int = 1) -> None:
    """Adds the nodes of a layer: it reads its inputs on a grid, in parts of its input channels.

    The sums of the parts, and the means times the sum of the inputs, are added as real numbers.
    """
    inputs = fragment.node.input[0]
    if fit.grid != layer.grid:
        inputs = fragment.on_grid(inputs, fit.grid)
    terms = [_product(fragment, layer, fit, inputs, cut) for cut in cuts(layer, parts)]
    if fit.means is not None:
        terms.append(_mean_term(fragment, layer, fit.means, inputs))
    total = terms[0]
    for term in terms[1:]:
        total = fragment.add("Add", [total, term])
    fragment.finish(total)


def cuts(layer: Layer, parts: int) -> tuple[slice, ...]:
    """Returns the input channels of each of `parts` parts, which are about equally many."""
    channels = layer.depth // layer.window
    ends = [channels * n // parts for n in range(parts + 1)]
    return tuple(slice(a, b) for a, b in pairwise(ends))


def _product(fragment: Fragment, layer: Layer, fit: Fit, inputs: str, cut: slice) -> str:
    """Adds the node for some input channels; the first part has the bias."""
    terms = slice(cut.start * layer.window, cut.stop * layer.window)
    reads = [
        _cut(fragment, layer, inputs, cut),
        _weights(fragment, layer, fit.integers[:, terms], fit.scales),
    ]
    if fit.bias is not None and cut.start == 0:
        units = fit.scales.astype(np.float32) * np.float32(fit.grid.step)
        reads.append(_scaled(fragment, layer, "bias", fit.bias.astype(np.int32), units, 0))
    return fragment.copy(reads, "sum")


def _weights(fragment: Fragment, layer: Layer, integers: Array, scales: Array) -> str:
    """Adds integers (M, K) in the type of the layer's weights, with the scales (M,) of the rows."""
    stored = layer.stored(integers.astype(layer.weight_type))
    return _scaled(fragment, layer, "weights", stored, scales, 1 if layer.transposed else 0)


def _scaled(
    fragment: Fragment, layer: Layer, part: str, stored: Array, scales: Array, axis: int
) -> str:
    """Adds integers with a scale for each row along `axis`, or with one where the layer has one."""
    scales = scales.astype(np.float32)
    if layer.has_one_scale:
        return fragment.dequantized(part, stored, scales[0], None)
    return fragment.dequantized(part, stored, scales, axis)


def _cut(fragment: Fragment, layer: Layer, inputs: str, cut: slice) -> str:
    if cut.stop - cut.start == layer.depth // layer.window:
        return inputs
    ends = [
        fragment.constant(part, np.array([value], np.int64))
        for part, value in (("start", cut.start), ("end", cut.stop), ("axis", layer.channel_axis))
    ]
    return fragment.add("Slice", [inputs, *ends])


def _mean_term(fragment: Fragment, layer: Layer, means: Array, inputs: str) -> str:
    """Adds the sum of the inputs, and returns it times the means."""
    ones = layer.stored(np.ones((1, layer.depth), np.int8))
    weights = fragment.dequantized("ones", ones, np.ones((), np.float32), None)
    total = fragment.copy([inputs, weights], "inputs")
    shape = (1, -1, *(1 for _ in layer.shape[2:])) if layer.op_type == "Conv" else (1, -1)
    factors = fragment.constant("means", means.astype(np.float32).reshape(shape))
    return fragment.add("Mul", [total, factors])
