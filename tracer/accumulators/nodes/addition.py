"""Sums of tensors, element by element: Add, Sub, Sum, Mean and QLinearAdd; running sums: CumSum."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracer import limits
from tracer.accumulators.engine.axis_sums import sums_over
from tracer.accumulators.engine.node_operands import Integers, NodeOperands, NoIntegerForm, narrow
from tracer.accumulators.engine.sum_runner import Reduction, SumRunner
from tracer.accumulators.nodes import ComputeSums, NodeSums, computed, lowering
from tracer.accumulators.nodes.matmul import begun_sums
from tracer.accumulators.nodes.reduction import requantize
from tracer.accumulators.spec.orders import Terms
from tracer.interpreter.numeric.tensors import flat
from tracer.interpreter.operators import MICROSOFT
from tracer.interpreter.values import Value
from tracer.support.types import Array

_LONGEST = 1 << 13
"""Running sums along an axis, each of which is a row of a matrix: a longer axis takes too long."""
_DIFFERENT_SCALES = "its operands have different scales, so their sum has no unit"


@lowering("Add", "Sum", "Mean")
def add(operands: NodeOperands) -> ComputeSums:
    """Tensors of the same step, in the order of the inputs; Mean divides the sums."""
    return _addition(operands, (1,) * len(operands.node.inputs))


@lowering("Sub")
def subtract(operands: NodeOperands) -> ComputeSums:
    """The first tensor, then minus the second, of the same step."""
    return _addition(operands, (1, -1))


@lowering("QLinearAdd", domain=MICROSOFT)
def qlinear_add(operands: NodeOperands) -> ComputeSums:
    """Two tensors of the same scale; the output is their sum, quantised again."""
    names, scope = operands.node.inputs, operands.node.scope
    first, second = (operands.scales.value(names[i], scope) for i in (1, 4))
    if first is None or second is None or not np.allclose(first, second, 1e-6, 0):
        raise NoIntegerForm(_DIFFERENT_SCALES)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        sums = _sums(runner, [operands.centred(index, inputs) for index in (0, 3)])
        return computed(sums, requantize(inputs, 6, 1))

    return compute


@lowering("CumSum")
def cumulative_sum(operands: NodeOperands) -> ComputeSums:
    """Each output is a sum of its own: of the terms up to it, or from the end with `reverse`."""
    x = operands.activations(0)
    step = x.steps(None)
    backwards, exclusive = (operands.attributes.get(k, 0) for k in ("reverse", "exclusive"))

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        numbers, axis = x.integers(inputs[0]), int(np.reshape(inputs[1], ()))
        terms = np.moveaxis(numbers.values, axis, -1)
        ordered = replace(numbers, numbers=terms[..., ::-1] if backwards else terms, shift=0)
        sums = _running(runner, ordered, bool(exclusive))
        sums = np.moveaxis(sums[..., ::-1] if backwards else sums, -1, axis)
        return computed(sums, lambda sums: (sums * step).astype(operands.float_type(inputs[0])))

    return compute


def _addition(operands: NodeOperands, signs: Sequence[int]) -> ComputeSums:
    """Tensors of the same step, each with its sign."""
    if "axis" in operands.attributes:
        raise NoIntegerForm("its second operand is repeated along an axis, as before opset 7")
    terms = [operands.activations(index) for index in range(len(signs))]
    step = terms[0].steps(None)
    if not all(np.isclose(step, each.steps(None), 1e-6, 0) for each in terms):
        raise NoIntegerForm(_DIFFERENT_SCALES)
    divisor = len(terms) if operands.node.op_type == "Mean" else 1

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        numbers = [each.integers(x) for each, x in zip(terms, inputs, strict=True)]
        signed = [n if s > 0 else _negative(n) for n, s in zip(numbers, signs, strict=True)]
        sums = _sums(runner, signed)
        return computed(sums, lambda sums: (sums * step / divisor).astype(inputs[0].dtype))

    return compute


def _negative(x: Integers) -> Integers:
    return Integers(narrow(-x.values.astype(np.int32)), -x.high, -x.low)


def _sums(runner: SumRunner, terms: Sequence[Integers]) -> Array:
    """The sums, int64, of tensors, which numpy broadcasts."""
    stacked = np.stack(np.broadcast_arrays(*(each.values for each in terms)), axis=-1)
    lows, highs = tuple(each.low for each in terms), tuple(each.high for each in terms)
    joined = Integers(stacked, min(lows), max(highs))
    return sums_over(runner, joined, (stacked.ndim - 1,), ranges=(lows, highs))


def _running(runner: SumRunner, x: Integers, exclusive: bool) -> Array:
    """The running sums, int64, along the last axis: rows times a triangle of ones."""
    length = x.numbers.shape[-1]
    if length > _LONGEST:
        raise NoIntegerForm(f"its axis has {length:,} elements; up to {_LONGEST:,} are narrow")
    limits.allow((length, length), np.int16)
    taken = np.triu(np.ones((length, length), np.int16), int(exclusive))
    rows = replace(x, numbers=flat(x.numbers, 0, x.numbers.ndim - 1))
    runner.begin(Reduction(length, Terms(length), (x.low, x.high), (0, 1), taken.T))
    sums = begun_sums(runner, rows, Integers(taken, 0, 1, constant=True))
    return sums.reshape(x.numbers.shape)
