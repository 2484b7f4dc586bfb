"""Conv: the windows of each input channel times a kernel."""

from collections.abc import Sequence

from tracer.accumulators.engine.float_operands import FloatOperands
from tracer.accumulators.engine.float_runner import FloatRunner
from tracer.accumulators.float_nodes import ComputeFloats, float_lowering
from tracer.interpreter.numeric.convolution import convolve_placed
from tracer.interpreter.numeric.windows import window
from tracer.interpreter.values import Value
from tracer.support.types import Array

CHANNELS = 1
"""The axis of input and weights along which blocks share a scale, as in microxcaling."""


@float_lowering("Conv")
def conv(operands: FloatOperands) -> ComputeFloats:
    """Terms are added by channel, kernel row, kernel column; the bias is the first term."""
    options = operands.attributes

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        x, w = (operands.cast(index, inputs[index], CHANNELS) for index in (0, 1))
        windows = window(
            x.shape[2:], w.shape[2:], options.get("strides"), options.get("pads"),
            options.get("dilations"), options.get("auto_pad", "NOTSET"),
        )  # fmt: skip
        product = runner.product(len(x) * windows.pixels, operands.start(2, inputs))
        sums = convolve_placed(x, w, windows, options.get("group", 1), product)
        return sums.astype(inputs[0].dtype, copy=False)

    return compute
