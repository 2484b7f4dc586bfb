"""Conv: the windows of each input channel times a kernel."""

import math
from collections.abc import Sequence

import numpy as np

from tracer.accumulators.engine.float_operands import CastOperand, FloatOperands, scaled
from tracer.accumulators.engine.float_runner import FloatRunner
from tracer.accumulators.float_nodes import ComputeFloats, float_lowering
from tracer.interpreter.numeric.convolution import convolve_placed
from tracer.interpreter.numeric.windows import Window, window
from tracer.interpreter.values import Value
from tracer.support.types import Array


@float_lowering("Conv")
def conv(operands: FloatOperands) -> ComputeFloats:
    """Terms are added by channel, kernel row, kernel column; blocks with scales by channel last."""
    options = operands.attributes

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        x, w = operands.images(0, inputs[0]), operands.kernels(1, inputs[1])
        windows = window(
            x.numbers.shape[2:], w.numbers.shape[2:], options.get("strides"), options.get("pads"),
            options.get("dilations"), options.get("auto_pad", "NOTSET"),
        )  # fmt: skip
        bias, groups = operands.bias(2, inputs), options.get("group", 1)
        sums = convolution(runner, x, w, bias, windows, groups)
        return sums.astype(inputs[0].dtype, copy=False)

    return compute


def convolution(
    runner: FloatRunner, x: CastOperand, w: CastOperand, bias: Array | None, windows: Window,
    groups: int,
) -> Array:  # fmt: skip
    """The sums, float32, of `x` (N, C, *size) and `w` (M, C / groups, *kernel), plus `bias` (M).

    The bias is the first term. Where sums have a factor, it is added after it.
    """
    is_start = x.factor is None and w.factor is None
    order = _in_blocks(w.numbers.shape[1], math.prod(windows.kernel), runner.block)
    product = runner.product(len(x.numbers) * windows.pixels, bias if is_start else None, order)
    sums = convolve_placed(x.numbers, w.numbers, windows, groups, product, dtype=np.float32)
    out = scaled(sums, x.factor, w.factor)
    if bias is None or is_start:
        return out
    return out + bias.reshape(-1, *[1] * len(windows.out))


def _in_blocks(channels: int, positions: int, block: int | None) -> Array | None:
    """The order of terms by kernel position, then channel, filled up to whole blocks of channels.

    So a block of terms has one scale, as the block of channels that it is. None without blocks.
    """
    if block is None or positions == 1:
        return None
    whole = -(-channels // block) * block
    order = np.full((positions, whole), -1)
    order[:, :channels] = np.arange(channels * positions).reshape(channels, positions).T
    return order.reshape(-1)
