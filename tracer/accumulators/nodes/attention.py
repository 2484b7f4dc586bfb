"""Operators that multiply matrices on their way, as attention does: their own code runs.

Each product of matrices that it asks for is computed in the float accumulator.
"""

from collections.abc import Sequence
from itertools import count

from tracer.accumulators.engine.float_operands import FloatOperands
from tracer.accumulators.engine.float_runner import FloatRunner
from tracer.accumulators.nodes import (
    ComputeNode,
    FloatLowering,
    RunOperator,
    add_float_lowering,
)
from tracer.accumulators.nodes.matmul import float_sums
from tracer.interpreter.numeric import products
from tracer.interpreter.operators import MICROSOFT
from tracer.interpreter.values import Value
from tracer.support.types import Array

_COMPUTED = -1
"""The index of a factor that is no input of the node."""


def _multiplying(number: int, floats: tuple[int, ...]) -> FloatLowering:
    """Returns the lowering of an operator with so many products for each of its samples.

    Samples are multiplied together, or one after the other.
    """

    def prepare(operands: FloatOperands) -> ComputeNode:
        def compute(
            inputs: Sequence[Value], runner: FloatRunner, run: RunOperator
        ) -> Sequence[Value]:
            calls = count()

            def multiply(a: Array, b: Array) -> Array:
                left = operands.matrix(_input_index(inputs, a), a, -1)
                right = operands.matrix(_input_index(inputs, b), b, -2 if b.ndim > 1 else -1)
                sums = float_sums(left, right, None, runner, next(calls) % number)
                return sums.astype(a.dtype, copy=False)

            with products.replaced(multiply):
                return run()

        return compute

    return FloatLowering(prepare, floats)


def _input_index(inputs: Sequence[Value], factor: Array) -> int:
    """Returns which input a factor is, if it is one as a whole."""
    return next((i for i, each in enumerate(inputs) if each is factor), _COMPUTED)


add_float_lowering(_multiplying(2, (0, 1, 2)), "Attention")
add_float_lowering(_multiplying(3, (0, 1)), "Attention", domain=MICROSOFT)
add_float_lowering(
    _multiplying(2, (0,)), "MultiHeadAttention", "GroupQueryAttention", domain=MICROSOFT
)
add_float_lowering(_multiplying(1, (0, 1)), "FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
