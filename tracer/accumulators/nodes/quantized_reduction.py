"""QLinearAveragePool, QLinearGlobalAveragePool and QLinearAdd: sums of quantised tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracer.accumulators.engine.node_operands import Integers, NodeOperands, UnfitError
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.nodes import Summing, Sums, lowering
from tracer.accumulators.nodes.reduction import added, pooled, pooled_globally
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.ops.integer import requantized
from tracer.interpreter.values import Value
from tracer.support.types import Array


@lowering("QLinearAveragePool", domain=DOMAIN)
def qlinear_average_pool(site: NodeOperands) -> Summing:
    """The sum of each window, then its mean, quantised again."""
    _refuse_channels_last(site)

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        x_scale, y_scale = inputs[1], inputs[3]
        made, divisor = pooled(meter, _centred(site, 0, inputs), site.attributes)
        factor = x_scale / y_scale / divisor
        zero = _zero(inputs, 4)
        return Sums(made, lambda sums: requantized(sums, factor, zero))

    return compute


@lowering("QLinearGlobalAveragePool", domain=DOMAIN)
def qlinear_global_average_pool(site: NodeOperands) -> Summing:
    """The sum of each channel, then its mean, quantised again."""
    _refuse_channels_last(site)

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        x_scale, y_scale = inputs[1], inputs[3]
        made, divisor = pooled_globally(meter, _centred(site, 0, inputs))
        factor = x_scale / y_scale / divisor
        zero = _zero(inputs, 4)
        return Sums(made, lambda sums: requantized(sums, factor, zero))

    return compute


@lowering("QLinearAdd", domain=DOMAIN)
def qlinear_add(site: NodeOperands) -> Summing:
    """Two tensors of the same scale, their sum quantised again."""
    scales = [site.units.value(site.node.inputs[i], site.node.scope) for i in (1, 4)]
    first, second = scales
    if first is None or second is None or not np.allclose(first, second, 1e-6, 0):
        raise UnfitError("its operands have different scales, so their sum has no unit")

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        made = added(meter, _centred(site, 0, inputs), _centred(site, 3, inputs))
        factor, zero = inputs[1] / inputs[6], _zero(inputs, 7)
        return Sums(made, lambda sums: requantized(sums, factor, zero))

    return compute


def _refuse_channels_last(site: NodeOperands) -> None:
    if site.attributes.get("channels_last", 0):
        raise UnfitError("its channels are the last axis, as only optimised graphs have it")


def _centred(site: NodeOperands, index: int, inputs: Sequence[Value]) -> Integers:
    """The tensor at `index`, which its scale and its zero point follow."""
    tensor, zero = inputs[index], inputs[index + 2]
    values = tensor.astype(np.int32)
    return site.centred(
        index, tensor, values if zero is None else values - zero.astype(np.int32), zero
    )


def _zero(inputs: Sequence[Value], index: int) -> Array:
    """The zero point of the output at `index`; where there is none it is 0, in the input's type."""
    given = inputs[index] if len(inputs) > index else None
    return np.zeros((), inputs[0].dtype) if given is None else np.asarray(given)
