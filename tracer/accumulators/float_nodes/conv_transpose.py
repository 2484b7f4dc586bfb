"""ConvTranspose: a convolution of the input, with zeros in between, with the flipped kernel."""

from collections.abc import Sequence

from tracer.accumulators.engine.float_operands import FloatOperands
from tracer.accumulators.engine.float_runner import FloatRunner
from tracer.accumulators.float_nodes import ComputeFloats, float_lowering
from tracer.accumulators.float_nodes.conv import CHANNELS
from tracer.accumulators.nodes.conv_transpose import flipped, spread
from tracer.interpreter.numeric.convolution import convolve_placed
from tracer.interpreter.values import Value
from tracer.support.types import Array

_OF_WEIGHTS = 0
"""The axis of weights (C, M / groups, *kernel) that has the input channels."""


@float_lowering("ConvTranspose")
def conv_transpose(operands: FloatOperands) -> ComputeFloats:
    """Terms are added by input channel, then kernel position; the zeros in between add nothing."""
    groups = operands.attributes.get("group", 1)

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        x = operands.cast(0, inputs[0], CHANNELS)
        w = operands.cast(1, inputs[1], _OF_WEIGHTS)
        images, windows = spread(x, w.shape[2:], operands.attributes)
        product = runner.product(len(x) * windows.pixels, operands.start(2, inputs))
        sums = convolve_placed(images, flipped(w, groups), windows, groups, product)
        return sums.astype(inputs[0].dtype, copy=False)

    return compute
