"""Matrix products: K MACs per output; a bias is one addition per output."""

from __future__ import annotations

from analyzers.cost.count import Count
from analyzers.cost.operation import Operation
from analyzers.cost.registry import counts
from analyzers.cost.rules.convolution import REQUANTISE, zero_points


@counts("MatMul")
def _matmul(op: Operation) -> Count:
    return product(op)


def product(op: Operation) -> Count:
    """MACs of `input 0 @ input 1`, batched and broadcast as in numpy."""
    return Count(macs=op.output().size * op.input(0).shape[-1])


@counts("MatMulInteger", settings=(2, 3))
def _matmul_integer(op: Operation) -> Count:
    return product(op) + zero_points(op, ((0, 2), (1, 3)))


@counts("QLinearMatMul", settings=(1, 2, 4, 5, 6, 7))
def _qlinear_matmul(op: Operation) -> Count:
    offsets = zero_points(op, ((0, 2), (3, 5)))
    return product(op) + offsets + REQUANTISE * op.output().size


@counts("Gemm")
def _gemm(op: Operation) -> Count:
    return gemm(op)


def gemm(op: Operation) -> Count:
    """alpha A B + beta C, where a factor of 1 costs nothing."""
    inner = op.input(0).shape[0 if op.integer("transA", 0) else 1]
    outputs = op.output().size
    count = Count(macs=outputs * inner)
    if op.number("alpha", 1.0) != 1.0:
        count += Count(muls=outputs)
    beta = op.number("beta", 1.0)
    if op.has(2) and beta != 0.0:
        count += Count(adds=outputs, muls=op.input(2).size if beta != 1.0 else 0)
    return count
