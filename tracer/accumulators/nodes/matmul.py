"""MatMul, Gemm, MatMulInteger, QLinearMatMul and QGemm: rows times columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tracer.accumulators.engine import zero_points
from tracer.accumulators.engine.column_source import of_rows
from tracer.accumulators.engine.node_operands import Integers, NodeOperands, Shift
from tracer.accumulators.engine.sum_runner import Reduction, SumRunner
from tracer.accumulators.nodes import Summing, Sums, lowering
from tracer.accumulators.spec.orders import Terms
from tracer.errors import ModelError
from tracer.interpreter.numeric import buffer_pool, parallel
from tracer.interpreter.numeric.products import Product, integers
from tracer.interpreter.ops.contrib import DOMAIN, columns, gemm_output
from tracer.interpreter.ops.integer import matmul_factor, requantized
from tracer.interpreter.ops.matmul import per_row
from tracer.interpreter.values import Value
from tracer.support.types import Array

_BLOCK = 1 << 18
"""Elements of the left operand that are turned and multiplied at a time."""


@lowering("MatMul")
def matmul(site: NodeOperands) -> Summing:
    """Dequantised or fixed-point operands; weights are on the right, or both are activations."""
    a, b = site.inputs(0), site.weights(1)
    step = a.steps(None) * b.steps(-1)

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        made = summed(meter, a.integers(inputs[0]), b.integers(inputs[1]), None)
        return Sums(made, lambda sums: (sums * step).astype(inputs[0].dtype))

    return compute


@lowering("Gemm")
def gemm(site: NodeOperands) -> Summing:
    """As MatMul; C is summed with the products if it is a bias of whole steps."""
    options = site.attributes
    a, b = site.inputs(0), site.weights(1)
    alpha, beta = options.get("alpha", 1.0), options.get("beta", 1.0)
    turn_a, turn_b = options.get("transA", 0), options.get("transB", 0)
    step = a.steps(None) * b.steps(0 if turn_b else 1)

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        left, right = a.integers(inputs[0]), b.integers(inputs[1])
        left = replace(left, values=left.values.T) if turn_a else left
        right = replace(right, values=right.values.T) if turn_b else right
        shift = _shift(site, step, inputs, right.values.shape[1], alpha == beta == 1)
        made = summed(meter, left, right, shift.integers)

        def restore(sums: Array) -> Array:
            out = alpha * (sums * step)
            return (out if shift.rest is None else out + beta * shift.rest).astype(inputs[0].dtype)

        return Sums(made, restore)

    return compute


@lowering("MatMulInteger")
def matmul_integer(site: NodeOperands) -> Summing:
    """8-bit operands, zero points taken off; they may be per row, column."""

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        a, b, a_zero, b_zero = (*inputs, None, None)[:4]
        left = site.centred(0, a, _centred(a, None if a_zero is None else per_row(a_zero)), a_zero)
        right = site.centred(1, b, _centred(b, b_zero), b_zero)
        made = summed(meter, left, right, None)
        return Sums(made, lambda sums: sums.astype(np.int32))

    return compute


@lowering("QLinearMatMul")
def qlinear_matmul(site: NodeOperands) -> Summing:
    """Quantised operands; the sums are quantised again."""

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = inputs
        left = site.centred(0, a, _centred(a, None if a_zero is None else per_row(a_zero)), a_zero)
        right = site.centred(3, b, _centred(b, b_zero), b_zero)
        made = summed(meter, left, right, None)
        factor = matmul_factor(a_scale, b_scale, y_scale)
        return Sums(made, lambda sums: requantized(sums, factor, y_zero))

    return compute


@lowering("QGemm", domain=DOMAIN)
def qgemm(site: NodeOperands) -> Summing:
    """Quantised operands; C, of one number for each column, is summed with the products."""
    turn_a, turn_b = site.attributes.get("transA", 0), site.attributes.get("transB", 0)
    alpha = np.float32(site.attributes.get("alpha", 1.0))

    def compute(inputs: Sequence[Value], meter: SumRunner) -> Sums:
        a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = (*inputs, None, None, None)[:9]
        left = site.centred(0, a, _centred(a, a_zero), a_zero)
        right = site.centred(3, b, _centred(b, columns(b_zero, bool(turn_b))), b_zero)
        left = replace(left, values=left.values.T) if turn_a else left
        right = replace(right, values=right.values.T) if turn_b else right
        width = right.values.shape[1]
        if c is not None and c.size not in (1, width):
            raise ModelError(f"a bias of shape {list(c.shape)} for {width} columns")
        bias = None if c is None else np.broadcast_to(c.astype(np.int64).reshape(-1), (width,))
        made = summed(meter, left, right, bias)
        step = alpha * a_scale * b_scale
        return Sums(made, lambda sums: gemm_output(sums, step, y_scale, y_zero))

    return compute


def summed(meter: SumRunner, a: Integers, b: Integers, bias: Array | None) -> Array:
    """The sums, int64, of `a` (..., R, K) and `b` (..., K, N), which numpy broadcasts.

    Columns are the channels; `bias` is (N).
    """
    after = zero_points.stay_in(meter.accumulator, a, b)
    left, right = (a.stored(), b.stored()) if after else (a, b)
    depth, columns = right.values.shape[-2:] if right.values.ndim > 1 else (right.values.size, 1)
    terms = Terms(depth)
    stored = right.values.T if right.constant and right.values.ndim == 2 else None
    ranges = (left.low, left.high), (right.low, right.high)
    meter.begin(Reduction(columns, terms, *ranges, stored, bias))
    made = _gathered(left, right, meter, bias)
    if made is None:
        made = _product(left, right, meter.product(slice(0, columns), bias, terms))
    if not after:
        return made
    return zero_points.taken_off(made, a, b, lambda x, y: _product(x, y, integers))


def _gathered(a: Integers, b: Integers, meter: SumRunner, bias: Array | None) -> Array | None:
    """The sums of all rows in one pass; None where that cannot be."""
    if b.values.ndim != 2 or a.values.ndim < 2:
        return None
    depth, width = b.values.shape
    if not depth:
        return None
    rows = a.values.reshape(-1, depth)
    columns = of_rows(a, rows, width)
    out = buffer_pool.empty((len(rows), width), np.int64)
    weights, whole = np.ascontiguousarray(b.values.T), slice(0, width)
    if columns is None or not meter.gathered(weights, columns, bias, Terms(depth), whole, out):
        return None
    return out.reshape(*a.values.shape[:-1], width)


def _product(a: Integers, b: Integers, product: Product) -> Array:
    """numpy's matmul, int64, every matrix by `product`."""
    left = a.values[None] if a.values.ndim == 1 else a.values
    right = b.values[:, None] if b.values.ndim == 1 else b.values
    if right.ndim == 2:
        out = _times(left.reshape(math.prod(left.shape[:-1]), len(right)), right, product)
        out = out.reshape(*left.shape[:-1], right.shape[1])
    else:
        out = _stacked(left, right, product)
    out = out[..., 0, :] if a.values.ndim == 1 else out
    return out[..., 0] if b.values.ndim == 1 else out


def _stacked(left: Array, right: Array, product: Product) -> Array:
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    out = np.empty((*batch, left.shape[-2], right.shape[-1]), np.int64)
    lefts = np.broadcast_to(left, (*batch, *left.shape[-2:]))
    rights = np.broadcast_to(right, (*batch, *right.shape[-2:]))
    places = list(np.ndindex(*batch))

    def block(index: int) -> None:
        place = places[index]
        out[place] = _times(lefts[place], rights[place], product)

    parallel.run_blocks(len(places), block)
    return out


def _times(a: Array, b: Array, product: Product) -> Array:
    """`a` (R, K) times `b` (K, N) into (R, N): columns of `b` are the rows of the product."""
    depth, columns = b.shape
    weights = np.ascontiguousarray(b.T)
    out = np.empty((len(a), columns), np.int64)
    parts = parallel.pieces(len(a), max(_BLOCK // max(depth, 1), 64))

    def block(index: int) -> None:
        rows = a[parts[index]]
        made = np.empty((columns, len(rows)), np.int64)
        product(weights, np.ascontiguousarray(rows.T), made)
        out[parts[index]] = made.T

    parallel.run_blocks(len(parts), block)
    return out


def _shift(
    site: NodeOperands, step: Array, inputs: Sequence[Value], columns: int, whole: bool
) -> Shift:
    """C as a bias of the columns if it is one; else what is added to the output."""
    if not site.given(2):
        return Shift()
    value = inputs[2]
    of_rows = value.ndim > 0 and value.shape[-1] == 1 < columns
    if not whole or value.size not in (1, columns) or of_rows:
        return Shift(rest=value.astype(np.float64))
    found = site.shift(2, step, inputs)
    if found.integers is None:
        return found
    return Shift(np.broadcast_to(found.integers.reshape(-1), (columns,)))


def _centred(tensor: Array, zero_point: Array | None) -> Array:
    """int32 without the zero point, which is one number or one for each column."""
    wide = tensor.astype(np.int32)
    return wide if zero_point is None else wide - zero_point.astype(np.int32)
