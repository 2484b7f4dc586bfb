"""MatMul, Gemm, MatMulInteger, QLinearMatMul and QGemm: rows times columns."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tracer.accumulators import nodes
from tracer.accumulators.engine import float_arithmetic
from tracer.accumulators.engine.integer_arithmetic import (
    BiasParts,
    Dequantize,
    Finish,
    Integers,
    NodeOperands,
    Requantize,
    minus_zero_point,
    subtract_zero_points,
    zero_points_stay,
)
from tracer.accumulators.engine.node_pass import Gathered, from_blocks, from_matrices
from tracer.accumulators.engine.sum_runner import Reduction, SumRunner, exact_product
from tracer.accumulators.spec.orders import Terms
from tracer.errors import ModelError
from tracer.interpreter.numeric import parallel, tensors
from tracer.interpreter.numeric.products import Place, PlacedProduct
from tracer.interpreter.operators import MICROSOFT
from tracer.interpreter.ops.matmul import per_row
from tracer.interpreter.ops.quantized import columns, gemm_output, matmul_factor
from tracer.interpreter.values import Value
from tracer.support.types import Array

_Side = TypeVar("_Side", Integers, float_arithmetic.CastOperand)
_MATRIX = 2
"""Axes of a matrix."""
_ROWS, _COLUMNS = -2, -1
_BLOCK = 1 << 18
"""Elements of the left operand, or of the output, that are multiplied at a time."""
_FEWEST = 64
"""Rows of a block, even if they have more elements."""
_SUMS = 1 << 20
"""Sums of blocks of terms that are computed together."""


def matmul(operands: NodeOperands) -> nodes.ComputeSums:
    """Dequantised or fixed-point operands: activations times weights or activations."""
    a, b = operands.activations(0), operands.weights(1)
    step = a.steps(None) * b.steps(columns_axis(operands))

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        sums = partial(product_sums, runner, a.integers(inputs[0]), b.integers(inputs[1]), None)
        return nodes.NodeSums(sums, Dequantize(step, None, operands.float_type(inputs[0]), True))

    return compute


@nodes.float_lowering("MatMul")
def float_matmul(operands: float_arithmetic.FloatOperands) -> nodes.ComputeFloats:
    """Activations times weights or activations."""

    def compute(inputs: Sequence[Value], runner: float_arithmetic.FloatRunner) -> Array:
        a = operands.matrix(0, inputs[0], _COLUMNS)
        b = operands.matrix(1, inputs[1], _ROWS if inputs[1].ndim > 1 else _COLUMNS)
        return float_sums(a, b, None, runner)

    return compute


def gemm(operands: NodeOperands) -> nodes.ComputeSums:
    """As MatMul; C is summed with the products if it is a bias in multiples of the step."""
    a, b = operands.activations(0), operands.weights(1)
    alpha, beta = (operands.attributes.get(name, 1.0) for name in ("alpha", "beta"))
    step = a.steps(None) * b.steps(0 if operands.attributes.get("transB", 0) else 1)

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        left, right = _transposed(operands, a.integers(inputs[0]), b.integers(inputs[1]))
        bias = _bias(operands, step, inputs, right.numbers.shape[1], alpha == beta == 1)
        sums = partial(product_sums, runner, left, right, bias.integers)
        kind = operands.float_type(inputs[0])
        if alpha == 1 and bias.rest is None:
            return nodes.NodeSums(sums, Dequantize(step, None, kind, True))

        def restore(sums: Array) -> Array:
            out = alpha * (sums * step)
            return (out if bias.rest is None else out + beta * bias.rest).astype(kind)

        return nodes.NodeSums(sums, restore)

    return compute


@nodes.float_lowering("Gemm")
def float_gemm(operands: float_arithmetic.FloatOperands) -> nodes.ComputeFloats:
    """As MatMul; C is the first term of the sums if it has one number for each column.

    Any other C is added to the output, in float32, and so is one with `alpha` or `beta`, or of sums
    with a factor.
    """
    alpha, beta = (operands.attributes.get(name, 1.0) for name in ("alpha", "beta"))

    def compute(inputs: Sequence[Value], runner: float_arithmetic.FloatRunner) -> Array:
        is_turned = [operands.attributes.get(name, 0) for name in ("transA", "transB")]
        a, b = _transposed(
            operands,
            operands.matrix(0, inputs[0], _ROWS if is_turned[0] else _COLUMNS),
            operands.matrix(1, inputs[1], _COLUMNS if is_turned[1] else _ROWS),
        )
        c, start, width = operands.bias(2, inputs), None, b.numbers.shape[1]
        if c is not None and alpha == beta == 1 and a.factor is None and b.factor is None:
            is_of_rows = c.ndim > 0 and c.shape[-1] == 1 < width and c.size > 1
            if c.size in (1, width) and not is_of_rows:
                start = np.broadcast_to(c.reshape(-1), (width,))
        out = float_sums(a, b, start, runner)
        if alpha != 1:
            out = out * np.float32(alpha)
        return out if c is None or start is not None else out + np.float32(beta) * c

    return compute


@nodes.lowering("MatMulInteger")
@nodes.lowering("MatMulInteger16", domain=MICROSOFT)
def matmul_integer(operands: NodeOperands) -> nodes.ComputeSums:
    """Operands minus zero points, which may be one for each row or column; of 16 bits, none."""

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        left = operands.centred(0, inputs, minus_row_zero_points)
        sums = partial(product_sums, runner, left, operands.centred(1, inputs), None)
        return nodes.NodeSums(sums, lambda sums: sums.astype(np.int32))

    return compute


@nodes.lowering("QLinearMatMul")
def qlinear_matmul(operands: NodeOperands) -> nodes.ComputeSums:
    """Quantised operands; the output is the sums, quantised again."""

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        _, a_scale, _, _, b_scale, _, y_scale, y_zero = inputs
        left = operands.centred(0, inputs, minus_row_zero_points)
        sums = partial(product_sums, runner, left, operands.centred(3, inputs), None)
        factor = matmul_factor(a_scale, b_scale, y_scale)
        if a_scale.size > 1 or b_scale.ndim > 1:
            return nodes.NodeSums(sums, Requantize(factor, y_zero))
        return nodes.requantizing(sums, factor, y_zero)

    return compute


@nodes.lowering("QGemm", domain=MICROSOFT)
def qgemm(operands: NodeOperands) -> nodes.ComputeSums:
    """Quantised operands; C, one number for each column, is summed with the products."""
    by_row = bool(operands.attributes.get("transB", 0))
    alpha = np.float32(operands.attributes.get("alpha", 1.0))

    def minus_columns(b: Array, zero_point: Array | None) -> Array:
        return minus_zero_point(b, None if zero_point is None else columns(zero_point, by_row))

    def compute(inputs: Sequence[Value], runner: SumRunner) -> nodes.NodeSums:
        _, a_scale, _, _, b_scale, _, c, y_scale, y_zero = (*inputs, None, None, None)[:9]
        left, right = _transposed(
            operands, operands.centred(0, inputs), operands.centred(3, inputs, minus_columns)
        )
        width = right.numbers.shape[1]
        if c is not None and c.size not in (1, width):
            raise ModelError(f"a bias of shape {list(c.shape)} for {width} columns")
        bias = None if c is None else np.broadcast_to(c.astype(np.int64).reshape(-1), (width,))
        sums = partial(product_sums, runner, left, right, bias)
        step = alpha * a_scale * b_scale
        if y_scale is None or y_zero is None:
            return nodes.NodeSums(sums, lambda sums: gemm_output(sums, step, y_scale, y_zero))
        return nodes.requantizing(sums, step / y_scale, y_zero)

    return compute


def columns_axis(operands: NodeOperands) -> int | None:
    """The axis of the columns of B; None for a vector, whose one axis is summed."""
    scale = operands.scales.of(operands.node.inputs[1], operands.node.scope)
    return None if scale is not None and scale.rank == 1 else -1


def minus_row_zero_points(a: Array, zero_point: Array | None) -> Array:
    """The left matrix, int32, minus a zero point that is one number or one for each row."""
    return minus_zero_point(a, None if zero_point is None else per_row(zero_point))


def _transposed(
    operands: NodeOperands | float_arithmetic.FloatOperands, a: _Side, b: _Side
) -> tuple[_Side, _Side]:
    """The operands, transposed where `transA` and `transB` say so."""
    options = operands.attributes
    left = a.transposed() if options.get("transA", 0) else a
    return left, b.transposed() if options.get("transB", 0) else b


def _bias(
    operands: NodeOperands, step: Array, inputs: Sequence[Value], width: int, unscaled: bool
) -> BiasParts:
    """C as a bias of the `width` columns if it is one; else it is added to the output."""
    if not operands.node.has_input(2):
        return BiasParts()
    c = inputs[2]
    one_per_row = c.ndim > 0 and c.shape[-1] == 1 < width
    if not unscaled or c.size not in (1, width) or one_per_row:
        return BiasParts(rest=c.astype(np.float64))
    bias = operands.bias(2, step, inputs)
    if bias.integers is None:
        return bias
    return BiasParts(np.broadcast_to(bias.integers.reshape(-1), (width,)))


def product_sums(
    runner: SumRunner, a: Integers, b: Integers, bias: Array | None, finish: Finish | None
) -> Array | None:
    """The sums, int64, of `a` (..., R, K) and `b` (..., K, N), which numpy broadcasts.

    Columns are the channels; `bias` is (N). With `finish` returns the output that it makes of the
    sums; None where no kernel does.
    """
    after = zero_points_stay(runner.accumulator, a, b)
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
    return subtract_zero_points(
        sums, a, b, lambda x, y: _multiply(x.values, y.values, exact_product, np.int64)
    )


def begun_sums(runner: SumRunner, a: Integers, b: Integers, bias: Array | None = None) -> Array:
    """The sums, int64, of `a` (..., R, K) and `b` (..., K, N), which the runner has begun."""
    sums = _gathered_sums(a, b, runner, bias, None)
    if sums is not None:
        return sums
    depth, width = _size(b)
    product = runner.product(slice(0, width), bias, Terms(depth))
    return _multiply(a.values, b.values, product, np.int64)


def sums_of_blocks(runner: SumRunner, a: Integers, b: Integers) -> Iterator[Array]:
    """Yields the sums, int64 (R, N), of each block, which the runner has begun.

    They are those of rows `a` (R, blocks, size) times columns `b` (N, blocks, size).
    """
    rows, blocks, size = a.numbers.shape
    width, terms = len(b.numbers), Terms(size)
    weights, values = np.ascontiguousarray(b.values.swapaxes(0, 1)), a.values
    for part in parallel.pieces(blocks, max(_SUMS // max(rows * width, 1), 1)):
        gathered = Gathered(
            weights[part].reshape(-1, size), from_blocks(a, part, width), None, terms
        )
        out = tensors.empty((part.stop - part.start, rows, width), np.int64)
        if not runner.sum_gathered(gathered, out):
            product = runner.product(slice(0, width), None, terms)
            for block, sums in enumerate(out, part.start):
                sums[:] = _multiply(values[:, block], weights[block].T, product, np.int64)
        yield from out


def float_sums(
    a: float_arithmetic.CastOperand,
    b: float_arithmetic.CastOperand,
    start: Array | None,
    runner: float_arithmetic.FloatRunner,
    number: int = 0,
) -> Array:
    """The sums, float32, of `a` (..., R, K) and `b` (..., K, N), after `start` (N).

    `number` tells products of a node apart.
    """
    left, right = a.numbers, b.numbers
    rows = 1 if left.ndim == 1 else left.shape[-2]
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    product = runner.product(math.prod(batch) * rows, start, number=number)
    sums = _multiply(left, right, product, np.float32)
    # The output lacks an axis for each vector, the last one for a vector on the right. So do the
    # factors, which have one number there.
    vectors = tuple(axis for axis, side in ((_ROWS, left), (_COLUMNS, right)) if side.ndim == 1)
    return float_arithmetic.scaled(sums, *(
        None if each is None else (np.atleast_2d(each) if vectors else each).squeeze(vectors)
        for each in (a.factor, b.factor)
    ))  # fmt: skip


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
        one_block = replace(a, numbers=a.numbers.reshape(matrices * left[-2], 1, depth))
        gathered = Gathered(weights, from_blocks(one_block, slice(0, 1), width), bias, terms)
        flat: tuple[int, ...] = (matrices * left[-2], width)
    else:
        lefts, rights = (
            np.broadcast_to(each, (*batch, *each.shape[-2:])) for each in (a.values, b.numbers)
        )
        right_sides = replace(b, numbers=rights.reshape(matrices, depth, width))
        rows = np.ascontiguousarray(lefts).reshape(matrices * left[-2], depth)
        gathered = Gathered(
            rows, from_matrices(right_sides, left[-2]), bias, terms, (a.low, a.high)
        )
        flat = (matrices, *shape[-2:])
    out = tensors.empty(shape, np.int64 if finish is None else finish.bytes.dtype)
    return out if runner.sum_gathered(gathered, out.reshape(flat), finish) else None


def _multiply(left: Array, right: Array, product: PlacedProduct, dtype: Any) -> Array:
    """Returns `left` (..., R, K) times `right` (..., K, N), as numpy's matmul, on threads.

    `product` multiplies the transposed right matrix (N, K) with some rows of the left one as
    columns (K, P). They are numbered by matrix, then by row; there is one group. It is called from
    several threads.
    """
    rows = left[None] if left.ndim == 1 else left
    columns = right[:, None] if right.ndim == 1 else right
    if columns.ndim == 2:
        flat = rows.reshape(math.prod(rows.shape[:-1]), len(columns))
        out = _multiply_blocks(flat, columns, product, 0, dtype)
        out = out.reshape(*rows.shape[:-1], columns.shape[1])
    else:
        batch = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
        out = np.empty((*batch, rows.shape[-2], columns.shape[-1]), dtype)
        lefts, rights = (
            np.broadcast_to(each, (*batch, *each.shape[-2:])) for each in (rows, columns)
        )
        indices = list(np.ndindex(*batch))

        def block(number: int) -> None:
            index, first = indices[number], number * rows.shape[-2]
            out[index] = _multiply_blocks(lefts[index], rights[index], product, first, dtype)

        parallel.run_blocks(len(indices), block)
    out = out[..., 0, :] if left.ndim == 1 else out
    return out[..., 0] if right.ndim == 1 else out


def _multiply_blocks(a: Array, b: Array, product: PlacedProduct, first: int, dtype: Any) -> Array:
    """`a` (R, K) times `b` (K, N) as (R, N): columns of `b` are the rows of the product.

    `first` is the number of the first row of `a` among all columns of the product.
    """
    weights = np.ascontiguousarray(b.T)
    out = np.empty((len(a), len(weights)), dtype)
    parts = parallel.pieces(len(a), max(_BLOCK // max(*weights.shape, 1), _FEWEST))

    def block(index: int) -> None:
        part = parts[index]
        rows = a[part]
        sums = np.empty((len(weights), len(rows)), dtype)
        product(weights, np.ascontiguousarray(rows.T), sums, Place(0, first + part.start))
        out[part] = sums.T

    parallel.run_blocks(len(parts), block)
    return out
