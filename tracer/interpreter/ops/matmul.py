"""MatMul, Gemm, Einsum, MatMulInteger."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracer import limits
from tracer.interpreter.numeric import products
from tracer.interpreter.numeric.tensors import is_half
from tracer.interpreter.operators import operator, parameters_of
from tracer.support.types import Array


@operator("MatMul")
def matmul(A: Array, B: Array) -> Array:
    """The matrix product with numpy's broadcasting."""
    return products.matmul(A, B)


@operator("Gemm", since=7)
def gemm(
    A: Array, B: Array, C: Array | None = None,
    *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0,
) -> Array:  # fmt: skip
    """alpha A B + beta C, with A and B optionally transposed."""
    output = products.matmul(A.T if transA else A, B.T if transB else B)
    if alpha != 1:
        output = (output * alpha).astype(A.dtype)
    if C is None or beta == 0:
        return output
    output += C if beta == 1 else (C * beta).astype(A.dtype)
    return output


@operator("Gemm")
@parameters_of(gemm)
def gemm_1(A: Array, B: Array, C: Array, *, broadcast: int = 0, **attributes: Any) -> Array:
    """Gemm before opset 7: `broadcast` enables broadcasting of C."""
    return gemm(A, B, C, **attributes)


@operator("Einsum", since=12)
def einsum(*Inputs: Array, equation: str) -> Array:
    """The sum of products described by `equation`."""
    narrow = is_half(Inputs[0].dtype)
    inputs = [v.astype(np.float32) for v in Inputs] if narrow else list(Inputs)
    limits.allow(einsum_shape(equation, [v.shape for v in inputs]), inputs[0].dtype)
    output = np.einsum(equation.replace(" ", ""), *inputs, optimize=len(inputs) > 1)
    return np.asarray(output).astype(Inputs[0].dtype, copy=False)


@operator("MatMulInteger", since=10)
def matmul_integer(
    A: Array, B: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None
) -> Array:
    """Subtracts zero points (also per row or column) of 8-bit matrices; multiplies into int32."""
    left = A.astype(np.int32)
    if a_zero_point is not None:
        left -= per_row(a_zero_point)
    right = B.astype(np.int32)
    if b_zero_point is not None:
        right -= b_zero_point.astype(np.int32)
    return integer_matmul(left, right, products.integers)


def per_row(zero_point: Array) -> Array:
    """Reshapes zero points of the left matrix, one or one per row, to match its rows."""
    wide = zero_point.astype(np.int32)
    return wide[..., None] if wide.ndim == 1 and wide.size > 1 else wide


def integer_matmul(a: Array, b: Array, product: products.Product) -> Array:
    """Computes numpy's matmul of integers into int32, each matrix by `product`."""
    left = a[None] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    shape = (*batch, left.shape[-2], right.shape[-1])
    limits.allow(shape, np.int32)
    out = np.empty(shape, np.int32)
    lefts = np.broadcast_to(left, (*batch, *left.shape[-2:]))
    rights = np.broadcast_to(right, (*batch, *right.shape[-2:]))
    for index in np.ndindex(*batch):
        product(lefts[index], rights[index], out[index])
    if a.ndim == 1:
        out = out[..., 0, :]
    return out[..., 0] if b.ndim == 1 else out


def einsum_shape(equation: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Returns the shape of an Einsum of tensors of these shapes.

    Raises ValueError for an equation that does not fit them.
    """
    terms, arrow, result = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    around: tuple[int, ...] = ()
    for term, shape in zip(terms.split(","), shapes, strict=True):
        head, dots, tail = term.partition("...")
        middle = len(shape) - len(tail) if dots else len(head)
        ends = (*shape[: len(head)], *shape[middle:])
        for letter, size in zip(head + tail, ends, strict=True):
            sizes[letter] = max(size, sizes.get(letter, size)) if size else 0
        around = np.broadcast_shapes(around, shape[len(head) : middle])
    if not arrow:  # labels that occur once, in alphabetical order
        letters = terms.replace(",", "").replace(".", "")
        result = "..." * ("..." in terms) + "".join(
            letter for letter in sorted(sizes) if letters.count(letter) == 1
        )
    head, dots, tail = result.partition("...")
    return (
        *(sizes[letter] for letter in head), *(around if dots else ()),
        *(sizes[letter] for letter in tail),
    )  # fmt: skip
