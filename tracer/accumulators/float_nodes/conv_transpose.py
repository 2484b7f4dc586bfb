"""ConvTranspose: a convolution of the input, with zeros in between, with the flipped kernel."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tracer.accumulators.engine.float_operands import FloatOperands
from tracer.accumulators.engine.float_runner import FloatRunner
from tracer.accumulators.float_nodes import ComputeFloats, float_lowering
from tracer.accumulators.float_nodes.conv import convolution
from tracer.accumulators.nodes.conv_transpose import flipped, spread
from tracer.interpreter.values import Value
from tracer.support.types import Array


@float_lowering("ConvTranspose")
def conv_transpose(operands: FloatOperands) -> ComputeFloats:
    """Terms are added by input channel, then kernel position, from the last one to the first."""
    groups = operands.attributes.get("group", 1)

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        x = operands.images(0, inputs[0])
        w = operands.kernels(1, inputs[1], partial(flipped, groups=groups))
        numbers, windows = spread(x.numbers, w.numbers.shape[2:], operands.attributes)
        bias = operands.bias(2, inputs)
        sums = convolution(runner, replace(x, numbers=numbers), w, bias, windows, groups)
        return sums.astype(inputs[0].dtype, copy=False)

    return compute
