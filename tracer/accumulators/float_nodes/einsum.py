"""Einsum of two tensors: a product of matrices for each index that both and the output have."""

from collections.abc import Sequence

from tracer.accumulators.engine.equations import Equation
from tracer.accumulators.engine.float_operands import FloatOperands
from tracer.accumulators.engine.float_runner import FloatRunner
from tracer.accumulators.float_nodes import ComputeFloats, float_lowering
from tracer.accumulators.float_nodes.matmul import product_sums
from tracer.interpreter.values import Value
from tracer.support.types import Array


@float_lowering("Einsum")
def einsum(operands: FloatOperands) -> ComputeFloats:
    """Terms are added in the order of the first tensor's summed axes, row by row."""
    equation = Equation.parsed(operands.attributes["equation"])

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        a, b = inputs
        left = operands.matrix(0, equation.rows(a), -1)
        right = operands.matrix(1, equation.columns(b), -2)
        sums = product_sums(left, right, None, runner)
        return equation.arranged(sums, a.shape, b.shape).astype(a.dtype, copy=False)

    return compute
