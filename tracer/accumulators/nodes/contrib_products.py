"""Products of matrices that are onnxruntime's own operators, domain com.microsoft, and attention.

Attention multiplies matrices on its way: its own code runs, and each product that it asks for is
computed in the float accumulator.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np

from tracer.accumulators import nodes
from tracer.accumulators.engine.float_arithmetic import CastOperand, FloatOperands, FloatRunner
from tracer.accumulators.engine.integer_arithmetic import Dequantize, Integers, NodeOperands
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.nodes.block_products import gemm_or_blocks
from tracer.interpreter.numeric import products
from tracer.interpreter.operators import MICROSOFT
from tracer.interpreter.ops.fused import activated, transposed_as
from tracer.interpreter.ops.multi_head_attention import attended_projection
from tracer.interpreter.ops.quantization import dynamic_quantize_linear
from tracer.interpreter.values import Value
from tracer.support.types import Array

_COMPUTED = -1
"""The index of a factor that is no input of the node."""


def _multiplying(number: int, floats: tuple[int, ...]) -> nodes.FloatLowering:
    """Returns the lowering of an operator with so many products for each of its samples.

    Samples are multiplied together, or one after the other.
    """

    def prepare(operands: FloatOperands) -> Callable[..., Sequence[Value]]:
        def compute(
            inputs: Sequence[Value], runner: FloatRunner, run: nodes.RunOperator
        ) -> Sequence[Value]:
            operands.check(inputs, floats)
            calls = count()

            def cast(factor: Array, axis: int) -> CastOperand:
                """A factor may be an input as a whole."""
                index = next((i for i, each in enumerate(inputs) if each is factor), _COMPUTED)
                return operands.matrix(index, factor, axis)

            def multiply(a: Array, b: Array) -> Array:
                left, right = cast(a, -1), cast(b, -2 if b.ndim > 1 else -1)
                sums = nodes.matmul.float_sums(left, right, None, runner, next(calls) % number)
                return sums.astype(a.dtype, copy=False)

            with products.replaced(multiply):
                return run()

        return compute

    return prepare


nodes.add_float_lowering(_multiplying(2, (0, 1, 2)), "Attention")
nodes.add_float_lowering(_multiplying(3, (0, 1)), "Attention", domain=MICROSOFT)
nodes.add_float_lowering(
    _multiplying(2, (0,)), "MultiHeadAttention", "GroupQueryAttention", domain=MICROSOFT
)
nodes.add_float_lowering(
    _multiplying(1, (0, 1)), "FusedMatMul", "TransposeMatMul", domain=MICROSOFT
)

LARGEST = 255
"""The greatest distance of a byte from its zero point, if both are computed."""


@nodes.lowering("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(operands: NodeOperands) -> nodes.ComputeSums:
    """As MatMul, of transposed operands; `alpha` is part of the step."""
    options = operands.attributes
    (first, *first_batch), (second, *second_batch) = (
        tuple(bool(options.get(f"{name}{side}", 0)) for name in ("trans", "transBatch"))
        for side in "AB"
    )
    a, b = operands.activations(0), operands.weights(1)
    columns = nodes.matmul.columns_axis(operands)
    if columns is not None and (second or any(second_batch)):
        columns = None if any(second_batch) else -2
    step = a.steps(None) * b.steps(columns) * options.get("alpha", 1.0)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        left, right = a.integers(inputs[0]), b.integers(inputs[1])
        left = replace(left, numbers=transposed_as(left.numbers, first, *first_batch))
        right = replace(right, numbers=transposed_as(right.numbers, second, *second_batch))
        sums = partial(nodes.matmul.product_sums, runner, left, right, None)
        return nodes.NodeSums(sums, Dequantize(step, None, operands.float_type(inputs[0]), True))

    return compute


@nodes.lowering("FusedGemm", domain=MICROSOFT)
def fused_gemm(operands: NodeOperands) -> nodes.ComputeSums:
    """As Gemm, and an activation of its output."""
    options = operands.attributes
    names = (f"activation_{name}" for name in ("alpha", "beta", "gamma"))
    parameters = [options[name] for name in names if name in options]

    def then(output: Array, inputs: Sequence[Value]) -> Array:
        return activated(output, options.get("activation", ""), parameters)

    return nodes.followed(gemm_or_blocks(operands), then)


@nodes.lowering("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(operands: NodeOperands) -> nodes.ComputeSums:
    """Bytes minus zero points; the bias is one of floats, and added to the output."""

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        _, _, a_scale, b_scale, _, _, bias = (*inputs, None, None, None)[:7]
        left = operands.centred(0, inputs, nodes.matmul.minus_row_zero_points, zero_at=4)
        right = operands.centred(1, inputs, zero_at=5)
        return _scaled_sums(runner, left, right, (a_scale, b_scale), bias)

    return compute


@nodes.lowering("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(operands: NodeOperands) -> nodes.ComputeSums:
    """Activations rounded to bytes by their range, as DynamicQuantizeLinear does, times bytes."""

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        a, _, b_scale, _, bias = (*inputs, None, None)[:5]
        left, a_scale = rounded_to_bytes(a)
        right = operands.centred(1, inputs, zero_at=3)
        return _scaled_sums(runner, left, right, (a_scale, b_scale), bias)

    return compute


@nodes.lowering("QAttention", domain=MICROSOFT)
def quantized_attention(operands: NodeOperands) -> nodes.ComputeSums:
    """The bytes of the input times those of the weights; the attention itself is one of floats."""

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        _, _, bias, x_scale, w_scale, mask, _, _, past = (*inputs, *[None] * 4)[:9]
        left, right = (operands.centred(i, inputs, zero_at=i + 6) for i in (0, 1))
        projected = _scaled_sums(runner, left, right, (x_scale, w_scale), bias).output
        return nodes.finished(*attended_projection(projected, mask, past, **operands.attributes))

    return compute


def rounded_to_bytes(x: Array) -> tuple[Integers, Array]:
    """Floats as uint8 minus the zero point of their own range, and the scale."""
    numbers, scale, zero = dynamic_quantize_linear(x)
    shift = int(zero)
    return Integers(numbers, -LARGEST, LARGEST, zero=shift, shift=shift), scale


def _scaled_sums(
    runner: SumRunner, left: Integers, right: Integers, scales: tuple[Array, Array],
    bias: Array | None,
) -> nodes.NodeSums:  # fmt: skip
    """Sums times both scales, and the bias, as the operator itself computes them."""

    def restore(sums: Array) -> Array:
        product = sums.astype(np.int32).astype(scales[0].dtype) * (scales[0] * scales[1])
        return product if bias is None else product + bias

    return nodes.NodeSums(partial(nodes.matmul.product_sums, runner, left, right, None), restore)
