"""Einsum of two tensors: a product of matrices for each index that both and the output have."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracer.accumulators.engine.equations import Equation
from tracer.accumulators.engine.node_operands import Integers, NodeOperands, NoIntegerForm, Operand
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.nodes import ComputeSums, NodeSums, computed, lowering
from tracer.accumulators.nodes.matmul import product_sums
from tracer.interpreter.values import Value
from tracer.support.types import Array


@lowering("Einsum")
def einsum(operands: NodeOperands) -> ComputeSums:
    """Terms are added in the order of the first tensor's summed axes, row by row."""
    equation = Equation.parsed(operands.attributes["equation"])
    a, b = operands.weights(0), operands.weights(1)
    step = _steps(a, equation.left, equation.out) * _steps(b, equation.right, equation.out)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        left, right = a.integers(inputs[0]), b.integers(inputs[1])
        rows = replace(left, numbers=equation.rows(left.numbers))
        columns = replace(right, numbers=equation.columns(right.numbers))
        sums = _products(runner, rows, columns)
        arranged = equation.arranged(sums, left.numbers.shape, right.numbers.shape)
        kind = operands.float_type(inputs[0])
        return computed(arranged, lambda sums: (sums * step).astype(kind))

    return compute


def _products(runner: SumRunner, rows: Integers, columns: Integers) -> Array:
    """The sums, int64, of matrices; where the first ones are stored, their rows are channels."""
    if not rows.constant or columns.constant:
        sums = product_sums(runner, rows, columns, None, None)
        assert sums is not None
        return sums
    turned = product_sums(runner, _turned(columns), _turned(rows), None, None)
    assert turned is not None
    return turned.swapaxes(-1, -2)


def _turned(matrices: Integers) -> Integers:
    return replace(matrices, numbers=matrices.numbers.swapaxes(-1, -2))


def _steps(operand: Operand, letters: str, out: str) -> Array:
    """One step, or one for each index of an axis of the output, in the shape of the output.

    Raises UnfitError where the step varies along an axis that is summed.
    """
    for axis, letter in enumerate(letters):
        if letter not in out:
            continue
        try:
            steps = operand.steps(axis)
        except NoIntegerForm:  # it varies along another axis
            continue
        shape = [1] * len(out)
        shape[out.index(letter)] = steps.size
        return np.reshape(steps, shape) if steps.size > 1 else steps
    return operand.steps(None)
