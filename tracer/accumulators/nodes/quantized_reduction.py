"""QLinearAveragePool, QLinearGlobalAveragePool and QLinearAdd: sums of quantised tensors."""

from collections.abc import Callable, Sequence

import numpy as np

from tracer.accumulators.engine.node_operands import Integers, NodeOperands, UnfitError
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.nodes import ComputeSums, NodeSums, lowering
from tracer.accumulators.nodes.reduction import addition_sums, global_pool_sums, pool_sums
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.ops.integer import requantized
from tracer.interpreter.values import Value
from tracer.support.types import Array


@lowering("QLinearAveragePool", domain=DOMAIN)
def qlinear_average_pool(operands: NodeOperands) -> ComputeSums:
    """The sum of each window; the output is its mean, quantised again."""
    return _pool(operands, lambda runner, x: pool_sums(runner, x, operands.attributes))


@lowering("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(operands: NodeOperands) -> ComputeSums:
    """The sum of each channel; the output is its mean, quantised again."""
    return _pool(operands, global_pool_sums)


@lowering("QLinearAdd", domain=DOMAIN)
def qlinear_add(operands: NodeOperands) -> ComputeSums:
    """Two tensors of the same scale; the output is their sum, quantised again."""
    names, scope = operands.node.inputs, operands.node.scope
    first, second = (operands.scales.value(names[i], scope) for i in (1, 4))
    if first is None or second is None or not np.allclose(first, second, 1e-6, 0):
        raise UnfitError("its operands have different scales, so their sum has no unit")

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        sums = addition_sums(runner, *(operands.centred(index, inputs) for index in (0, 3)))
        factor, zero = inputs[1] / inputs[6], _output_zero(inputs, 7)
        return NodeSums(sums, lambda sums: requantized(sums, factor, zero))

    return compute


def _pool(
    operands: NodeOperands, pool: Callable[[SumRunner, Integers], tuple[Array, Array | int]]
) -> ComputeSums:
    """A pooling whose sums and divisor `pool` computes."""
    if operands.attributes.get("channels_last", 0):
        raise UnfitError("its channels are the last axis, as only optimised graphs have it")

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        sums, divisor = pool(runner, operands.centred(0, inputs))
        factor, zero = inputs[1] / inputs[3] / divisor, _output_zero(inputs, 4)
        return NodeSums(sums, lambda sums: requantized(sums, factor, zero))

    return compute


def _output_zero(inputs: Sequence[Value], index: int) -> Array:
    """The zero point of the output at `index`; 0 of the input's type if it is left out."""
    zero = inputs[index] if len(inputs) > index else None
    return np.zeros((), inputs[0].dtype) if zero is None else np.asarray(zero)
