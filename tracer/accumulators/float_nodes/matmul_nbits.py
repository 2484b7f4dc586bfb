"""MatMulNBits: activations times dequantised weights."""

from collections.abc import Sequence
from dataclasses import replace

from tracer.accumulators.engine.float_operands import FloatOperands
from tracer.accumulators.engine.float_runner import FloatRunner
from tracer.accumulators.float_nodes import ComputeFloats, float_lowering
from tracer.accumulators.float_nodes.matmul import product_sums, transposed
from tracer.interpreter.operators import MICROSOFT
from tracer.interpreter.ops.packed_weights import dequantized, packed_product
from tracer.interpreter.values import Value
from tracer.support.types import Array

_WEIGHTS = 1
_STORED = (1, 2, 3, 4)
"""Inputs that the dequantised weights follow from."""


@float_lowering("MatMulNBits", domain=MICROSOFT, floats=(0, 2))
def matmul_nbits(operands: FloatOperands) -> ComputeFloats:
    """One sum over all of K, of weights in float32, at any accuracy level.

    An accuracy level allows a kernel to round activations to 8 bits, so that it adds integers. A
    float accumulator adds floats, and so activations are cast as `operands` say. The bias is the
    first term; where sums have a factor, it is added after it.
    """
    is_stored = all(i in operands.constant for i in _STORED if operands.has_input(i))
    if not is_stored:
        operands = replace(operands, constant=operands.constant - {_WEIGHTS})

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        product = packed_product(*inputs, **operands.attributes)

        def unpack(codes: Array) -> Array:
            return dequantized(product.weights, slice(None), product.groups)

        a = operands.matrix(0, inputs[0], -1)
        b = transposed(operands.packed_matrix(_WEIGHTS, inputs[_WEIGHTS], unpack))
        bias = operands.bias(5, inputs)
        is_start = a.factor is None and b.factor is None
        sums = product_sums(a, b, bias if is_start else None, runner)
        return replace(product, bias=None if is_start else bias).output(sums)

    return compute
