"""MatMul, Gemm, MatMulInteger, QLinearMatMul and QGemm: rows times columns."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tracer.accumulators.engine import matrix_products, zero_points
from tracer.accumulators.engine.column_source import from_matrices, from_rows
from tracer.accumulators.engine.node_operands import (
    BiasParts,
    Integers,
    NodeOperands,
    minus_zero_point,
)
from tracer.accumulators.engine.node_output import Dequantize, Finish, Requantize
from tracer.accumulators.engine.sum_runner import Gathered, Reduction, SumRunner
from tracer.accumulators.nodes import ComputeSums, NodeSums, lowering, requantizing
from tracer.accumulators.spec.orders import Terms
from tracer.errors import ModelError
from tracer.interpreter.numeric import buffer_pool
from tracer.interpreter.numeric.convolution import Place
from tracer.interpreter.numeric.products import Product, integers
from tracer.interpreter.operators import MICROSOFT
from tracer.interpreter.ops.matmul import per_row
from tracer.interpreter.ops.quantized import columns, gemm_output, matmul_factor
from tracer.interpreter.values import Value
from tracer.support.types import Array

_MATRIX = 2
"""Axes of a matrix."""


def matmul(operands: NodeOperands) -> ComputeSums:
    """Dequantised or fixed-point operands: activations times weights or activations."""
    a, b = operands.activations(0), operands.weights(1)
    step = a.steps(None) * b.steps(columns_axis(operands))

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        sums = partial(product_sums, runner, a.integers(inputs[0]), b.integers(inputs[1]), None)
        return NodeSums(sums, Dequantize(step, None, operands.float_type(inputs[0]), True))

    return compute


def gemm(operands: NodeOperands) -> ComputeSums:
    """As MatMul; C is summed with the products if it is a bias in multiples of the step."""
    options = operands.attributes
    a, b = operands.activations(0), operands.weights(1)
    alpha, beta = options.get("alpha", 1.0), options.get("beta", 1.0)
    step = a.steps(None) * b.steps(0 if options.get("transB", 0) else 1)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        left, right = transposed(operands, a.integers(inputs[0]), b.integers(inputs[1]))
        bias = _bias(operands, step, inputs, right.numbers.shape[1], alpha == beta == 1)
        sums = partial(product_sums, runner, left, right, bias.integers)
        kind = operands.float_type(inputs[0])
        if alpha == 1 and bias.rest is None:
            return NodeSums(sums, Dequantize(step, None, kind, True))

        def restore(sums: Array) -> Array:
            out = alpha * (sums * step)
            return (out if bias.rest is None else out + beta * bias.rest).astype(kind)

        return NodeSums(sums, restore)

    return compute


def columns_axis(operands: NodeOperands) -> int | None:
    """The axis of the columns of B; None for a vector, whose one axis is summed."""
    scale = operands.scales.of(operands.node.inputs[1], operands.node.scope)
    return None if scale is not None and scale.rank == 1 else -1


@lowering("MatMulInteger")
def matmul_integer(operands: NodeOperands) -> ComputeSums:
    """8-bit operands minus zero points, which may be one for each row or column."""

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        left = operands.centred(0, inputs, minus_row_zero_points)
        sums = partial(product_sums, runner, left, operands.centred(1, inputs), None)
        return NodeSums(sums, lambda sums: sums.astype(np.int32))

    return compute


@lowering("QLinearMatMul")
def qlinear_matmul(operands: NodeOperands) -> ComputeSums:
    """Quantised operands; the output is the sums, quantised again."""

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        _, a_scale, _, _, b_scale, _, y_scale, y_zero = inputs
        left = operands.centred(0, inputs, minus_row_zero_points)
        sums = partial(product_sums, runner, left, operands.centred(3, inputs), None)
        factor = matmul_factor(a_scale, b_scale, y_scale)
        if a_scale.size > 1 or b_scale.ndim > 1:
            return NodeSums(sums, Requantize(factor, y_zero))
        return requantizing(sums, factor, y_zero)

    return compute


@lowering("QGemm", domain=MICROSOFT)
def qgemm(operands: NodeOperands) -> ComputeSums:
    """Quantised operands; C, one number for each column, is summed with the products."""
    by_row = bool(operands.attributes.get("transB", 0))
    alpha = np.float32(operands.attributes.get("alpha", 1.0))

    def minus_columns(b: Array, zero_point: Array | None) -> Array:
        return minus_zero_point(b, None if zero_point is None else columns(zero_point, by_row))

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        _, a_scale, _, _, b_scale, _, c, y_scale, y_zero = (*inputs, None, None, None)[:9]
        left, right = transposed(
            operands, operands.centred(0, inputs), operands.centred(3, inputs, minus_columns)
        )
        width = right.numbers.shape[1]
        if c is not None and c.size not in (1, width):
            raise ModelError(f"a bias of shape {list(c.shape)} for {width} columns")
        bias = None if c is None else np.broadcast_to(c.astype(np.int64).reshape(-1), (width,))
        sums = partial(product_sums, runner, left, right, bias)
        step = alpha * a_scale * b_scale
        if y_scale is None or y_zero is None:
            return NodeSums(sums, lambda sums: gemm_output(sums, step, y_scale, y_zero))
        return requantizing(sums, step / y_scale, y_zero)

    return compute


def transposed(operands: NodeOperands, a: Integers, b: Integers) -> tuple[Integers, Integers]:
    """The operands, transposed where `transA` and `transB` say so."""
    flags = operands.attributes.get("transA", 0), operands.attributes.get("transB", 0)
    left, right = (
        replace(side, numbers=side.numbers.T) if flag else side
        for side, flag in zip((a, b), flags, strict=True)
    )
    return left, right


def product_sums(
    runner: SumRunner, a: Integers, b: Integers, bias: Array | None, finish: Finish | None
) -> Array | None:
    """The sums, int64, of `a` (..., R, K) and `b` (..., K, N), which numpy broadcasts.

    Columns are the channels; `bias` is (N). With `finish` returns the output that it makes of the
    sums; None where no kernel does.
    """
    after = zero_points.stay_in(runner.accumulator, a, b)
    left, right = (a.stored(), b.stored()) if after else (a, b)
    depth, width = _size(right)
    stored = right.values.T if right.constant and right.numbers.ndim == _MATRIX else None
    ranges = (left.low, left.high), (right.low, right.high)
    runner.begin(Reduction(width, Terms(depth), *ranges, stored, bias))
    if finish is not None:
        return None if after else _gathered_sums(left, right, runner, bias, finish)
    sums = begun_sums(runner, left, right, bias)
    if not after:
        return sums
    return zero_points.subtracted(sums, a, b, lambda x, y: _product(x, y, integers))


def begun_sums(runner: SumRunner, a: Integers, b: Integers, bias: Array | None = None) -> Array:
    """The sums, int64, of `a` (..., R, K) and `b` (..., K, N), which the runner has begun."""
    sums = _gathered_sums(a, b, runner, bias, None)
    if sums is not None:
        return sums
    depth, width = _size(b)
    return _product(a, b, runner.product(slice(0, width), bias, Terms(depth)))


def _size(b: Integers) -> tuple[int, int]:
    """The rows and columns of a matrix, or of each of several; a vector is one column."""
    shape = b.numbers.shape
    depth, width = shape[-2:] if len(shape) > 1 else (b.numbers.size, 1)
    return depth, width


def _gathered_sums(
    a: Integers, b: Integers, runner: SumRunner, bias: Array | None, finish: Finish | None
) -> Array | None:
    """The sums, or finished sums, in one pass; None where no kernel supports it."""
    left, right = a.numbers.shape, b.numbers.shape
    fit = len(left) >= _MATRIX and len(right) >= _MATRIX and left[-1] == right[-2]
    if not fit or not b.numbers.size:
        return None
    depth, width = right[-2:]
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    shape, terms, matrices = (*batch, left[-2], width), Terms(depth), math.prod(batch)
    if len(right) == _MATRIX:
        weights = np.ascontiguousarray(b.values.T)
        gathered = Gathered(weights, from_rows(a, width), bias, terms)
        flat: tuple[int, ...] = (matrices * left[-2], width)
    else:
        lefts, rights = (
            np.broadcast_to(each, (*batch, *each.shape[-2:])) for each in (a.values, b.numbers)
        )
        right_sides = replace(b, numbers=rights.reshape(matrices, depth, width))
        columns = from_matrices(right_sides, shape[-2])
        rows = np.ascontiguousarray(lefts).reshape(matrices * left[-2], depth)
        gathered = Gathered(rows, columns, bias, terms, (a.low, a.high))
        flat = (matrices, *shape[-2:])
    out = buffer_pool.empty(shape, np.int64 if finish is None else finish.bytes.dtype)
    done = (
        runner.sum_gathered(gathered, out.reshape(flat))
        if finish is None
        else runner.finish(gathered, finish, out.reshape(flat))
    )
    return out if done else None


def _product(a: Integers, b: Integers, product: Product) -> Array:
    """numpy's matmul, int64, with `product` for every pair of matrices."""

    def anywhere(left: Array, right: Array, out: Array, place: Place) -> None:
        product(left, right, out)

    return matrix_products.matmul(a.values, b.values, anywhere, np.int64)


def _bias(
    operands: NodeOperands, step: Array, inputs: Sequence[Value], width: int, unscaled: bool
) -> BiasParts:
    """C as a bias of the `width` columns if it is one; else it is added to the output."""
    if not operands.has_input(2):
        return BiasParts()
    c = inputs[2]
    one_per_row = c.ndim > 0 and c.shape[-1] == 1 < width
    if not unscaled or c.size not in (1, width) or one_per_row:
        return BiasParts(rest=c.astype(np.float64))
    bias = operands.bias(2, step, inputs)
    if bias.integers is None:
        return bias
    return BiasParts(np.broadcast_to(bias.integers.reshape(-1), (width,)))


def minus_row_zero_points(a: Array, zero_point: Array | None) -> Array:
    """The left matrix, int32, minus a zero point that is one number or one for each row."""
    return minus_zero_point(a, None if zero_point is None else per_row(zero_point))
