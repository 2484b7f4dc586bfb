"""Conv, FusedConv, ConvInteger and QLinearConv: windows of each input channel times a kernel."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tracer.accumulators.engine import zero_points
from tracer.accumulators.engine.column_source import PaddedImages
from tracer.accumulators.engine.node_operands import Integers, NodeOperands
from tracer.accumulators.engine.node_output import Dequantize, Finish, per_channel
from tracer.accumulators.engine.sum_runner import Gathered, Reduction, SumRunner
from tracer.accumulators.nodes import ComputeSums, NodeSums, followed, lowering, requantizing
from tracer.accumulators.spec.orders import Terms
from tracer.interpreter.numeric import buffer_pool
from tracer.interpreter.numeric.convolution import check, convolve
from tracer.interpreter.numeric.products import Product, integers
from tracer.interpreter.numeric.tensors import flat
from tracer.interpreter.numeric.windows import Window, window
from tracer.interpreter.operators import MICROSOFT
from tracer.interpreter.ops.fused import activated
from tracer.interpreter.ops.quantized import centred
from tracer.interpreter.values import Value
from tracer.support.types import Array

_Z = 3
"""The input of FusedConv that is added to the output."""
_ROWS = 2
"""Axes of a matrix, whose last axis has the channels."""


@lowering("Conv")
def conv(operands: NodeOperands) -> ComputeSums:
    """Dequantised or fixed-point operands; the bias is summed if it is a multiple of the step."""
    x, w = operands.activations(0), operands.weights(1)
    step = x.steps(None) * w.steps(0)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        bias = operands.bias(2, step, inputs)
        right, left = x.integers(inputs[0]), w.integers(inputs[1])
        sums = partial(_node_sums, operands, runner, right, left, bias.integers)
        return NodeSums(sums, Dequantize(step, bias.rest, operands.float_type(inputs[0])))

    return compute


@lowering("FusedConv", domain=MICROSOFT)
def fused_conv(operands: NodeOperands) -> ComputeSums:
    """As Conv; Z is added to its output in floats, before the activation."""
    options = operands.attributes
    name, parameters = options.get("activation", ""), options.get("activation_params", ())

    def then(output: Array, inputs: Sequence[Value]) -> Array:
        total = output + inputs[_Z] if operands.has_input(_Z) else output
        return activated(total, name, parameters)

    return followed(conv(operands), then)


@lowering("ConvInteger")
def conv_integer(operands: NodeOperands) -> ComputeSums:
    """8-bit operands minus their zero points."""

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        right, left = (operands.centred(index, inputs, centred) for index in (0, 1))
        sums = partial(_node_sums, operands, runner, right, left, None)
        return NodeSums(sums, lambda sums: sums.astype(np.int32))

    return compute


@lowering("QLinearConv")
@lowering("QLinearConv", domain=MICROSOFT)
def qlinear_conv(operands: NodeOperands) -> ComputeSums:
    """Quantised operands; the output is the sums, quantised again.

    Where `channels_last` moves the channels, terms are added in the same order.
    """
    is_last = bool(operands.attributes.get("channels_last", 0))

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        x, x_scale, _, _, w_scale, _, y_scale, y_zero, bias = (*inputs, None)[:9]
        right, left = (operands.centred(index, inputs, centred) for index in (0, 3))
        if is_last:
            right = replace(right, numbers=np.moveaxis(right.numbers, -1, 1))
        factor = x_scale * per_channel(w_scale, _ROWS if is_last else x.ndim) / y_scale
        sums = partial(_node_sums, operands, runner, right, left, bias)
        return requantizing(partial(_channels_last, sums) if is_last else sums, factor, y_zero)

    return compute


def _channels_last(
    sums: Callable[[Finish | None], Array | None], finish: Finish | None
) -> Array | None:
    """The sums, or what `finish` makes of them, with channels at the last axis."""
    out = sums(finish)
    return None if out is None else np.moveaxis(out, 1, -1)


def convolution_sums(
    runner: SumRunner, x: Integers, w: Integers, bias: Array | None, windows: Window, groups: int,
    finish: Finish | None, taps: tuple[tuple[int, ...], ...] = (),
) -> Array | None:  # fmt: skip
    """The sums, int64, of `x` (N, C, *size) and `w` (M, C / groups, *kernel), plus `bias` (M).

    With `finish` returns the output that it makes of them; None where no kernel does. `taps` are
    the positions of the kernel that meet numbers, if `x` has zeros in between.
    """
    after = zero_points.stay_in(runner.accumulator, x, w)
    right, left = (x.stored(), w.stored()) if after else (x, w)
    rows = flat(left.values, 1, left.values.ndim)
    terms = Terms(left.numbers.shape[1], int(np.prod(left.numbers.shape[2:])))
    offset = None if bias is None else bias.astype(np.int64).reshape(-1)
    padded = not after and any(windows.before + windows.after)
    ranges = (right.low, right.high), (left.low, left.high)
    weights = rows if left.constant else None
    met = () if after else taps  # as stored, the zeros in between are zero points
    runner.begin(Reduction(len(rows), terms, *ranges, weights, offset, padded, taps=met))

    images = PaddedImages.of(right, windows)
    shape = (len(right.numbers), len(rows), *windows.out)
    gathered = None
    if images is not None:
        gathered = Gathered(rows, images.columns(groups, len(rows)), offset, terms)
    out = buffer_pool.empty(shape, np.int64 if finish is None else finish.bytes.dtype)
    if finish is not None:
        done = not after and gathered is not None and runner.finish(gathered, finish, out)
        return out if done else None
    if gathered is None or not runner.sum_gathered(gathered, out):
        for maps, channels in _groups(len(rows), right, groups):
            product = runner.product(maps, None if offset is None else offset[maps], terms)
            _convolve_group(right, left, channels, maps, windows, product, out)

    def exact(x: Integers, w: Integers) -> Array:
        sums = np.empty(out.shape, np.int64)
        for maps, channels in _groups(len(rows), x, groups):
            _convolve_group(x, w, channels, maps, windows, integers, sums)
        return sums

    return zero_points.subtracted(out, x, w, exact) if after else out


def _groups(maps: int, x: Integers, groups: int) -> list[tuple[slice, slice]]:
    """The output and the input channels of each group."""
    outputs, inputs = maps // groups, x.numbers.shape[1] // groups
    return [
        (slice(n * outputs, (n + 1) * outputs), slice(n * inputs, (n + 1) * inputs))
        for n in range(groups)
    ]


def _convolve_group(
    x: Integers, w: Integers, channels: slice, maps: slice, windows: Window, product: Product,
    out: Array,
) -> None:  # fmt: skip
    """Writes the convolution of one group, computed by the product for its output channels."""
    out[:, maps] = convolve(
        x.values[:, channels], w.values[maps], windows, product=product, fill=x.padding,
        dtype=np.int64,
    )  # fmt: skip


def _node_sums(
    operands: NodeOperands, runner: SumRunner, x: Integers, w: Integers, bias: Array | None,
    finish: Finish | None,
) -> Array | None:  # fmt: skip
    """As `convolution_sums`, with the windows that the node's attributes describe."""
    options = operands.attributes
    groups = options.get("group", 1)
    check(x.numbers, w.numbers, groups)
    windows = window(
        x.numbers.shape[2:], w.numbers.shape[2:], options.get("strides"), options.get("pads"),
        options.get("dilations"), options.get("auto_pad", "NOTSET"),
    )  # fmt: skip
    return convolution_sums(runner, x, w, bias, windows, groups, finish)
