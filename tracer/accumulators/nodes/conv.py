"""Conv, ConvInteger and QLinearConv: the windows of each input channel times a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tracer.accumulators.engine import zero_points
from tracer.accumulators.engine.column_source import Images
from tracer.accumulators.engine.node_operands import Integers, NodeOperands
from tracer.accumulators.engine.node_output import Steps, per_channel
from tracer.accumulators.engine.sum_runner import Reduction, SumRunner
from tracer.accumulators.nodes import Summing, Sums, lowering
from tracer.accumulators.spec.orders import Terms
from tracer.interpreter.numeric import buffer_pool
from tracer.interpreter.numeric.convolution import check, convolve
from tracer.interpreter.numeric.products import Product, integers
from tracer.interpreter.numeric.windows import Window, window
from tracer.interpreter.ops.integer import centred, requantized
from tracer.interpreter.values import Value
from tracer.support.types import Array


@lowering("Conv")
def conv(site: NodeOperands) -> Summing:
    """Dequantised or fixed-point operands; the bias too if it is whole steps."""
    x, w = site.inputs(0), site.weights(1)
    step = x.steps(None) * w.steps(0)

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        shift = site.shift(2, step, inputs)
        made = _summed(site, meter, x.integers(inputs[0]), w.integers(inputs[1]), shift.integers)
        return Sums(made, Steps(step, shift.rest, inputs[0].dtype))

    return compute


@lowering("ConvInteger")
def conv_integer(site: NodeOperands) -> Summing:
    """8-bit operands, zero points taken off."""

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        x, w, x_zero, w_zero = (*inputs, None, None)[:4]
        right = site.centred(0, x, centred(x, x_zero), x_zero)
        left = site.centred(1, w, centred(w, w_zero), w_zero)
        return Sums(_summed(site, meter, right, left, None), lambda sums: sums.astype(np.int32))

    return compute


@lowering("QLinearConv")
def qlinear_conv(site: NodeOperands) -> Summing:
    """Quantised operands; the sums are quantised again."""

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (*inputs, None)[:9]
        right = site.centred(0, x, centred(x, x_zero), x_zero)
        left = site.centred(3, w, centred(w, w_zero), w_zero)
        factor = x_scale * per_channel(w_scale, x.ndim) / y_scale
        made = _summed(site, meter, right, left, bias)
        return Sums(made, lambda sums: requantized(sums, factor, y_zero))

    return compute


def summed(
    meter: SumRunner, x: Integers, w: Integers, bias: Array | None, slid: Window, group: int
) -> Array:
    """The sums, int64, of `x` (N, C, *size) and `w` (M, C / group, *kernel), plus `bias` (M)."""
    after = zero_points.stay_in(meter.accumulator, x, w)
    right, left = (x.stored(), w.stored()) if after else (x, w)
    rows = left.values.reshape(len(left.values), -1)
    terms = Terms(left.values.shape[1], int(np.prod(left.values.shape[2:])))
    shift = None if bias is None else bias.astype(np.int64).reshape(-1)
    padded = not after and any(slid.before + slid.after)
    stored = rows if left.constant else None
    ranges = (right.low, right.high), (left.low, left.high)
    meter.begin(Reduction(len(rows), terms, *ranges, stored, shift, padded))

    out = buffer_pool.empty((len(right.values), len(rows), *slid.out), np.int64)
    images = Images.of(right, slid)
    for part, taken in _groups(len(rows), right, group):
        added = None if shift is None else shift[part]
        columns = None if images is None else images.columns(taken, len(rows))
        if columns is None or not meter.gathered(rows[part], columns, added, terms, part, out):
            _convolved(right, left, taken, part, slid, meter.product(part, added, terms), out)

    def exact(x: Integers, w: Integers) -> Array:
        made = np.empty(out.shape, np.int64)
        for part, taken in _groups(len(rows), x, group):
            _convolved(x, w, taken, part, slid, integers, made)
        return made

    return zero_points.taken_off(out, x, w, exact) if after else out


def _groups(maps: int, x: Integers, group: int) -> Iterator[tuple[slice, slice]]:
    """The output and the input channels of each group."""
    each, deep = maps // group, x.values.shape[1] // group
    for number in range(group):
        following = number + 1
        yield slice(number * each, following * each), slice(number * deep, following * deep)


def _convolved(
    x: Integers, w: Integers, taken: slice, part: slice, slid: Window, product: Product, out: Array
) -> None:
    """The convolution of one group by the product for its output channels."""
    out[:, part] = convolve(
        x.values[:, taken], w.values[part], slid, product=product, fill=x.nought, dtype=np.int64
    )


def _summed(
    site: NodeOperands, meter: SumRunner, x: Integers, w: Integers, bias: Array | None
) -> Array:
    """As `summed`, with the windows that the node's attributes describe."""
    options = site.attributes
    group = options.get("group", 1)
    check(x.values, w.values, group)
    slid = window(
        x.values.shape[2:], w.values.shape[2:], options.get("strides"), options.get("pads"),
        options.get("dilations"), options.get("auto_pad", "NOTSET"),
    )  # fmt: skip
    return summed(meter, x, w, bias, slid, group)
