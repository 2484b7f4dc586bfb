"""Convolutions: windows of each input channel times a kernel.

ConvTranspose is a convolution of the input, with zeros in between, with the flipped kernel.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tracer import limits
from tracer.accumulators import nodes
from tracer.accumulators.engine.float_arithmetic import (
    CastOperand,
    FloatOperands,
    FloatRunner,
    scaled,
)
from tracer.accumulators.engine.integer_arithmetic import (
    DIFFERENT_SCALES,
    Dequantize,
    Finish,
    Integers,
    NodeOperands,
    NoIntegerForm,
    per_channel,
    subtract_zero_points,
    zero_points_stay,
)
from tracer.accumulators.engine.node_pass import Gathered, PaddedImages
from tracer.accumulators.engine.sum_runner import Reduction, SumRunner, exact_product
from tracer.accumulators.nodes.block_products import SharedProduct
from tracer.accumulators.spec.orders import Terms
from tracer.interpreter.numeric import tensors
from tracer.interpreter.numeric.products import PlacedProduct, check_channels, convolve
from tracer.interpreter.numeric.windows import Window, window
from tracer.interpreter.operators import MICROSOFT
from tracer.interpreter.ops.conv import geometry
from tracer.interpreter.ops.fused import activated
from tracer.interpreter.ops.quantized import centred
from tracer.interpreter.values import Value
from tracer.support.types import Array

_PADS = 2
"""The input of ConvTransposeWithDynamicPads that has the pads."""
_Z = 3
"""The input of FusedConv that is added to the output."""
_ROWS = 2
"""Axes of a matrix, whose last axis has the channels."""


@nodes.lowering("Conv")
def conv(operands: NodeOperands) -> nodes.ComputeSums:
    """Dequantised or fixed-point operands; the bias is summed if it is a multiple of the step."""
    shared, group = SharedProduct.of(operands), operands.attributes.get("group", 1)
    if shared is not None and group == 1:
        return partial(_shared_sums, operands, shared)
    x, w = operands.activations(0), operands.weights(1)
    steps = x.steps(1 if group > 1 else None), w.steps(0)
    if steps[0].size not in (1, group):  # channels of one sum have scales of their own
        raise NoIntegerForm(DIFFERENT_SCALES)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        outputs = 1 if steps[0].size == 1 else len(inputs[1]) // group
        step = np.repeat(steps[0], outputs) * steps[1]
        bias = operands.bias(2, step, inputs)
        right, left = x.integers(inputs[0]), w.integers(inputs[1])
        sums = partial(_node_sums, operands, runner, right, left, bias.integers)
        return nodes.NodeSums(sums, Dequantize(step, bias.rest, operands.float_type(inputs[0])))

    return compute


def _shared_sums(
    operands: NodeOperands, shared: SharedProduct, inputs: Sequence[Value], runner: SumRunner
) -> nodes.NodeSums:
    """The sums of blocks, whose operands share exponents; the bias is added in float32."""
    x, w = inputs[0], inputs[1]
    check_channels(x, w, 1)
    out = shared.images(x, w, _windows(operands.attributes, x, w), runner)
    if operands.node.has_input(2):
        out += per_channel(inputs[2], out.ndim)
    return nodes.finished(out.astype(x.dtype, copy=False))


@nodes.float_lowering("Conv")
def float_conv(operands: FloatOperands) -> nodes.ComputeFloats:
    """Terms are added by channel, kernel row, kernel column; blocks with scales by channel last."""

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        x, w = operands.images(0, inputs[0]), operands.kernels(1, inputs[1])
        windows = _windows(operands.attributes, x.numbers, w.numbers)
        return _float_sums(operands, runner, x, w, operands.bias(2, inputs), windows)

    return compute


@nodes.lowering("FusedConv", domain=MICROSOFT)
def fused_conv(operands: NodeOperands) -> nodes.ComputeSums:
    """As Conv; Z is added to its output in floats, before the activation."""
    options = operands.attributes
    name, parameters = options.get("activation", ""), options.get("activation_params", ())

    def then(output: Array, inputs: Sequence[Value]) -> Array:
        total = output + inputs[_Z] if operands.node.has_input(_Z) else output
        return activated(total, name, parameters)

    return nodes.followed(conv(operands), then)


@nodes.lowering("ConvInteger")
def conv_integer(operands: NodeOperands) -> nodes.ComputeSums:
    """8-bit operands minus their zero points."""

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        right, left = (operands.centred(index, inputs, centred) for index in (0, 1))
        sums = partial(_node_sums, operands, runner, right, left, None)
        return nodes.NodeSums(sums, lambda sums: sums.astype(np.int32))

    return compute


@nodes.lowering("QLinearConv")
@nodes.lowering("QLinearConv", domain=MICROSOFT)
def qlinear_conv(operands: NodeOperands) -> nodes.ComputeSums:
    """Quantised operands; the output is the sums, quantised again.

    Where `channels_last` moves the channels, terms are added in the same order.
    """
    is_last = bool(operands.attributes.get("channels_last", 0))

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        x, x_scale, _, _, w_scale, _, y_scale, y_zero, bias = (*inputs, None)[:9]
        right, left = (operands.centred(index, inputs, centred) for index in (0, 3))
        if is_last:
            right = replace(right, numbers=np.moveaxis(right.numbers, -1, 1))
        factor = x_scale * per_channel(w_scale, _ROWS if is_last else x.ndim) / y_scale

        def sums(finish: Finish | None) -> Array | None:
            out = _node_sums(operands, runner, right, left, bias, finish)
            return np.moveaxis(out, 1, -1) if is_last and out is not None else out

        return nodes.requantizing(sums, factor, y_zero)

    return compute


@nodes.lowering("ConvTranspose")
def conv_transpose(operands: NodeOperands) -> nodes.ComputeSums:
    """Terms are added by input channel, then kernel position, from the last one to the first.

    That is the order of the elements of the input, row by row. The zeros in between add nothing.
    """
    return _transposed(operands, operands.attributes, 2)


@nodes.float_lowering("ConvTranspose")
def float_conv_transpose(operands: FloatOperands) -> nodes.ComputeFloats:
    """Terms are added in the same order."""
    groups = operands.attributes.get("group", 1)

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        x = operands.images(0, inputs[0])
        w = operands.kernels(1, inputs[1], partial(_flipped, groups=groups))
        numbers, windows = _spread(x.numbers, w.numbers.shape[2:], operands.attributes)
        bias = operands.bias(2, inputs)
        return _float_sums(operands, runner, replace(x, numbers=numbers), w, bias, windows)

    return compute


@nodes.lowering("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose_with_dynamic_pads(operands: NodeOperands) -> nodes.ComputeSums:
    """As ConvTranspose, with pads that are an input, before the bias."""
    if not operands.node.has_input(_PADS):
        return _transposed(operands, operands.attributes, 3)
    pads = operands.scales.value(operands.node.inputs[_PADS], operands.node.scope)
    if pads is None:
        raise NoIntegerForm("its pads are computed, so that it has no bounds before a run")
    return _transposed(operands, {**operands.attributes, "pads": pads.reshape(-1).tolist()}, 3)


def _transposed(
    operands: NodeOperands, options: Mapping[str, Any], bias_index: int
) -> nodes.ComputeSums:
    x, w = operands.activations(0), operands.weights(1)
    groups = options.get("group", 1)
    step = x.steps(None) * w.steps(1)
    if step.size > 1:  # axis 1 has the channels of one group, and all groups share them
        step = np.tile(step, groups)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        bias = operands.bias(bias_index, step, inputs)
        weights, x_integers = w.integers(inputs[1]), x.integers(inputs[0])
        images, windows = _spread(x_integers.values, inputs[1].shape[2:], options)
        left = replace(weights, numbers=_flipped(weights.numbers, groups))
        right = replace(x_integers, numbers=images, shift=0)
        strides = options.get("strides") or [1] * len(windows.kernel)
        taps = _meeting(windows, images.shape[2:], strides)
        sums = _integer_sums(runner, right, left, bias.integers, windows, groups, None, taps)
        assert sums is not None
        return nodes.computed(sums, Dequantize(step, bias.rest, inputs[0].dtype))

    return compute


def _windows(options: Mapping[str, Any], x: Array, w: Array) -> Window:
    return window(
        x.shape[2:], w.shape[2:], options.get("strides"), options.get("pads"),
        options.get("dilations"), options.get("auto_pad", "NOTSET"),
    )  # fmt: skip


def _node_sums(
    operands: NodeOperands, runner: SumRunner, x: Integers, w: Integers, bias: Array | None,
    finish: Finish | None,
) -> Array | None:  # fmt: skip
    """As `_integer_sums`, with the windows that the node's attributes describe."""
    groups = operands.attributes.get("group", 1)
    check_channels(x.numbers, w.numbers, groups)
    windows = _windows(operands.attributes, x.numbers, w.numbers)
    return _integer_sums(runner, x, w, bias, windows, groups, finish)


def _integer_sums(
    runner: SumRunner, x: Integers, w: Integers, bias: Array | None, windows: Window, groups: int,
    finish: Finish | None, taps: tuple[tuple[int, ...], ...] = (),
) -> Array | None:  # fmt: skip
    """The sums, int64, of `x` (N, C, *size) and `w` (M, C / groups, *kernel), plus `bias` (M).

    With `finish` returns the output that it makes of them; None where no kernel does. `taps` are
    the positions of the kernel that meet numbers, if `x` has zeros in between.
    """
    after = zero_points_stay(runner.accumulator, x, w)
    right, left = (x.stored(), w.stored()) if after else (x, w)
    rows = tensors.flat(left.values, 1, left.values.ndim)
    terms = Terms(left.numbers.shape[1], left.numbers.shape[2:])
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
    out = tensors.empty(shape, np.int64 if finish is None else finish.bytes.dtype)
    if finish is not None:
        done = not after and gathered is not None and runner.sum_gathered(gathered, out, finish)
        return out if done else None
    if gathered is None or not runner.sum_gathered(gathered, out):

        def product(maps: slice) -> PlacedProduct:
            return runner.product(maps, None if offset is None else offset[maps], terms)

        _convolve(right, left, windows, groups, product, out)

    def exact(x: Integers, w: Integers) -> Array:
        sums = np.empty(out.shape, np.int64)
        _convolve(x, w, windows, groups, lambda _: exact_product, sums)
        return sums

    return subtract_zero_points(out, x, w, exact) if after else out


def _convolve(
    x: Integers, w: Integers, windows: Window, groups: int,
    product: Callable[[slice], PlacedProduct], out: Array,
) -> None:  # fmt: skip
    """Writes the convolution of each group, by the `product` for its output channels."""
    outputs, inputs = out.shape[1] // groups, x.numbers.shape[1] // groups
    for n in range(groups):
        maps, channels = slice(n * outputs, (n + 1) * outputs), slice(n * inputs, (n + 1) * inputs)
        out[:, maps] = convolve(
            x.values[:, channels], w.values[maps], windows, product=product(maps), fill=x.padding,
            dtype=np.int64,
        )  # fmt: skip


def _float_sums(
    operands: FloatOperands, runner: FloatRunner, x: CastOperand, w: CastOperand,
    bias: Array | None, windows: Window,
) -> Array:  # fmt: skip
    """The output: sums of `x` (N, C, *size) and `w` (M, C / groups, *kernel), plus `bias` (M).

    The bias is the first term. Where sums have a factor, it is added after it.
    """
    is_start = x.factor is None and w.factor is None
    order = _by_position(w.numbers.shape[1], math.prod(windows.kernel), runner.block)
    terms = Terms(w.numbers.shape[1], windows.kernel)
    product = runner.product(
        len(x.numbers) * windows.pixels, bias if is_start else None, order, terms=terms
    )
    groups = operands.attributes.get("group", 1)
    sums = convolve(x.numbers, w.numbers, windows, groups, product=product, dtype=np.float32)
    out = scaled(sums, x.factor, w.factor)
    if bias is not None and not is_start:
        out = out + bias.reshape(-1, *[1] * len(windows.out))
    return out


def _by_position(channels: int, positions: int, block: int | None) -> Array | None:
    """The order of terms by kernel position, then channel, filled up to whole blocks of channels.

    So a block of terms has one scale, as the block of channels that it is. None without blocks.
    """
    if block is None or positions == 1:
        return None
    order = np.full((positions, -(-channels // block) * block), -1)
    order[:, :channels] = np.arange(channels * positions).reshape(channels, positions).T
    return order.reshape(-1)


def _flipped(w: Array, groups: int) -> Array:
    """Weights (C, M / groups, *kernel) as those of a convolution: (M, C / groups, *kernel)."""
    channels, maps = len(w) // groups, w.shape[1]
    parts = w.reshape(groups, channels, maps, *w.shape[2:]).swapaxes(1, 2)
    turned = np.flip(parts, axis=tuple(range(3, parts.ndim)))
    return np.ascontiguousarray(turned).reshape(groups * maps, channels, *w.shape[2:])


def _spread(x: Array, kernel: Sequence[int], options: Mapping[str, Any]) -> tuple[Array, Window]:
    """The input with zeros between its elements, and the windows of each output over it."""
    rank = len(kernel)
    strides = options.get("strides") or [1] * rank
    dilations = options.get("dilations") or [1] * rank
    _, before, size = geometry(
        x.shape[2:], kernel, strides, dilations, options.get("pads"),
        options.get("output_padding"), options.get("output_shape"),
        options.get("auto_pad", "NOTSET"),
    )  # fmt: skip
    shape = (*x.shape[:2], *((n - 1) * s + 1 for n, s in zip(x.shape[2:], strides, strict=True)))
    limits.allow(shape, x.dtype)
    out = np.zeros(shape, x.dtype)
    out[:, :, *(slice(None, None, stride) for stride in strides)] = x
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    pads = tuple(r - b for r, b in zip(reach, before, strict=True))
    ends = (s + b - n for s, b, n in zip(size, before, shape[2:], strict=True))
    # There are zeros between the elements, too: a positive `after` says that inputs may be 0.
    after = tuple(end or r for end, r in zip(ends, reach, strict=True))
    return out, Window(tuple(kernel), (1,) * rank, tuple(dilations), pads, after, tuple(size))


def _meeting(
    windows: Window, size: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """The sets of kernel positions that meet elements of the input together.

    `size` is that of the input with zeros in between. A set within another one is left out.
    """

    def of_axis(
        out: int, before: int, kernel: int, dilation: int, size: int, stride: int
    ) -> list[tuple[int, ...]]:
        """Along one axis an element is at every multiple of the stride."""
        at = np.arange(out)[:, None] - before + np.arange(kernel) * dilation
        met = (at % stride == 0) & (at >= 0) & (at < size)
        sets = {frozenset(np.flatnonzero(row).tolist()) for row in met}
        return [tuple(sorted(each)) for each in sets if not any(each < other for other in sets)]

    axes = map(
        of_axis, windows.out, windows.before, windows.kernel, windows.dilations, size, strides
    )
    return tuple(
        tuple(np.ravel_multi_index(np.ix_(*sets), windows.kernel).reshape(-1).tolist())
        for sets in itertools.product(*axes)
    )
