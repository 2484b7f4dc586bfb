"""MatMul and Gemm: rows times columns."""

from collections.abc import Sequence

import numpy as np

from tracer.accumulators.engine import matrix_products
from tracer.accumulators.engine.float_operands import FloatOperands
from tracer.accumulators.engine.float_runner import FloatRunner
from tracer.accumulators.float_nodes import ComputeFloats, float_lowering
from tracer.interpreter.values import Value
from tracer.support.types import Array

_ROWS, _COLUMNS = -2, -1


@float_lowering("MatMul")
def matmul(operands: FloatOperands) -> ComputeFloats:
    """Blocks that share a scale are along the terms of a sum."""

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        a = operands.cast(0, inputs[0], _COLUMNS)
        b = operands.cast(1, inputs[1], _ROWS if inputs[1].ndim > 1 else 0)
        return _product(a, b, None, runner).astype(inputs[0].dtype, copy=False)

    return compute


@float_lowering("Gemm")
def gemm(operands: FloatOperands) -> ComputeFloats:
    """As MatMul; C is the first term of the sums if it has one number for each column.

    Any other C is added to the output, in float32, and so is one with `alpha` or `beta`.
    """
    options = operands.attributes
    alpha, beta = options.get("alpha", 1.0), options.get("beta", 1.0)
    turned = bool(options.get("transA", 0)), bool(options.get("transB", 0))

    def compute(inputs: Sequence[Value], runner: FloatRunner) -> Array:
        a = operands.cast(0, inputs[0], _ROWS if turned[0] else _COLUMNS)
        b = operands.cast(1, inputs[1], _COLUMNS if turned[1] else _ROWS)
        a, b = (side.T if flag else side for side, flag in zip((a, b), turned, strict=True))
        c = operands.start(2, inputs)
        is_start = c is not None and alpha == beta == 1 and _is_one_for_each(c, b.shape[1])
        start = np.broadcast_to(c.reshape(-1), b.shape[1:]) if c is not None and is_start else None
        out = _product(a, b, start, runner)
        if alpha != 1:
            out = out * np.float32(alpha)
        if c is not None and not is_start:
            out = out + np.float32(beta) * c
        return out.astype(inputs[0].dtype, copy=False)

    return compute


def _product(a: Array, b: Array, start: Array | None, runner: FloatRunner) -> Array:
    """The sums, float32, of `a` (..., R, K) and `b` (..., K, N), after `start` (N)."""
    rows = 1 if a.ndim == 1 else a.shape[-2]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    columns = int(np.prod(batch)) * rows
    return matrix_products.matmul(a, b, runner.product(columns, start), np.float32)


def _is_one_for_each(c: Array, width: int) -> bool:
    """Whether C has one number, or one for each column, and none of its own for rows."""
    return c.size in (1, width) and not (c.ndim > 0 and c.shape[-1] == 1 < width and c.size > 1)
