"""FusedMatMul and TransposeMatMul, domain com.microsoft: a scaled product of transposed tensors."""

import numpy as np

from tracer.interpreter.numeric import products
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.registry import operator
from tracer.support.types import Array


@operator("FusedMatMul", "TransposeMatMul", domain=DOMAIN)
def fused_matmul(
    A: Array,
    B: Array,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Array:
    """alpha A B, with A and B transposed as the attributes say; vectors are not transposed."""
    left = transposed_as(A, bool(transA), bool(transBatchA))
    product = products.matmul(left, transposed_as(B, bool(transB), bool(transBatchB)))
    return product if alpha == 1 else (product * alpha).astype(A.dtype)


def transposed_as(x: Array, last: bool, batch: bool) -> Array:
    """Moves the first axis behind the batch axes, then exchanges the last two axes."""
    if x.ndim < 2:
        return x
    moved = np.moveaxis(x, 0, -2) if batch else x
    return np.swapaxes(moved, -1, -2) if last else moved
