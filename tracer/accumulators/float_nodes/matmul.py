"""MatMul and Gemm: rows times columns."""

import math
from collections.abc import Sequence

import numpy as np

from tracer.accumulators.engine import matrix_products
from tracer.accumulators.engine.float_operands import CastOperand, FloatOperands, scaled
from tracer.accumulators.engine.float_runner import FloatRunner
from tracer.accumulators.float_nodes import ComputeFloats, float_lowering
from tracer.interpreter.values import Value
from tracer.support.types import Array

_ROWS, _COLUMNS = -2, -1


@float_lowering("MatMul")
def matmul(operands: FloatOperands) -> ComputeFloats:
    """Activations times weights or activations."""

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        a = operands.matrix(0, inputs[0], _COLUMNS)
        b = operands.matrix(1, inputs[1], _ROWS if inputs[1].ndim > 1 else _COLUMNS)
        return product_sums(a, b, None, runner).astype(inputs[0].dtype, copy=False)

    return compute


@float_lowering("Gemm")
def gemm(operands: FloatOperands) -> ComputeFloats:
    """As MatMul; C is the first term of the sums if it has one number for each column.

    Any other C is added to the output, in float32, and so is one with `alpha` or `beta`, or of sums
    with a factor.
    """
    options = operands.attributes
    alpha, beta = options.get("alpha", 1.0), options.get("beta", 1.0)
    turned = bool(options.get("transA", 0)), bool(options.get("transB", 0))

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        a = operands.matrix(0, inputs[0], _ROWS if turned[0] else _COLUMNS)
        b = operands.matrix(1, inputs[1], _COLUMNS if turned[1] else _ROWS)
        a, b = (
            transposed(side) if flag else side for side, flag in zip((a, b), turned, strict=True)
        )
        c, start = operands.bias(2, inputs), None
        if c is not None and alpha == beta == 1 and a.factor is None and b.factor is None:
            start = _start(c, b.numbers.shape[1])
        out = product_sums(a, b, start, runner)
        if alpha != 1:
            out = out * np.float32(alpha)
        if c is not None and start is None:
            out = out + np.float32(beta) * c
        return out.astype(inputs[0].dtype, copy=False)

    return compute


def product_sums(
    a: CastOperand, b: CastOperand, start: Array | None, runner: FloatRunner, number: int = 0
) -> Array:
    """The sums, float32, of `a` (..., R, K) and `b` (..., K, N), after `start` (N).

    `number` tells products of a node apart.
    """
    left, right = a.numbers, b.numbers
    rows = 1 if left.ndim == 1 else left.shape[-2]
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    product = runner.product(math.prod(batch) * rows, start, number=number)
    sums = matrix_products.matmul(left, right, product, np.float32)
    # the output lacks an axis for each vector, which is the last one for a vector on the right
    vectors = tuple(axis for axis, side in ((_ROWS, left), (_COLUMNS, right)) if side.ndim == 1)
    factors = (None if each is None else _squeezed(each, vectors) for each in (a.factor, b.factor))
    return scaled(sums, *factors)


def _squeezed(factor: Array, axes: tuple[int, ...]) -> Array:
    """A factor without axes of the product, as far as it has them; they have one number."""
    whole = np.atleast_2d(factor) if axes else factor
    return whole.squeeze(axes)


def transposed(side: CastOperand) -> CastOperand:
    """The transpose of a matrix, and of its factor."""
    return CastOperand(side.numbers.T, None if side.factor is None else side.factor.T)


def _start(c: Array, width: int) -> Array | None:
    """C as the first terms of `width` columns; None if it has more numbers, or those of rows."""
    is_of_rows = c.ndim > 0 and c.shape[-1] == 1 < width and c.size > 1
    if c.size not in (1, width) or is_of_rows:
        return None
    return np.broadcast_to(c.reshape(-1), (width,))
