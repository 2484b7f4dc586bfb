"""One tile of 64 x 64 by Triton's `tl.dot`: the instruction of tensor cores without a library."""

import torch
import triton
import triton.language as tl


@triton.jit
def _dot(left, right, out, terms, step: tl.constexpr, size: tl.constexpr,
         precision: tl.constexpr, promote: tl.constexpr):  # fmt: skip
    rows, columns = tl.arange(0, size), tl.arange(0, size)
    total = tl.zeros((size, size), tl.float32)
    for first in range(0, terms, step):
        k = first + tl.arange(0, step)
        a = tl.load(left + rows[:, None] * terms + k[None, :])
        b = tl.load(right + columns[None, :] * terms + k[:, None])
        total = tl.dot(a, b, total, input_precision=precision, max_num_imprecise_acc=promote)
    tl.store(out + rows[:, None] * size + columns[None, :], total)


def product(left, right, case):
    """Returns the product of 64 rows and 64 rows, float32."""
    out = torch.empty((case.m, case.n), dtype=torch.float32, device=left.device)
    precision = "tf32" if case.dtype == "tf32" else "ieee"
    promote = 128 if "promote=128" in case.options else None
    _dot[(1,)](
        left, right, out, case.k, step=128 if "fp8" in case.dtype else 64, size=64,
        precision=precision, promote=promote, num_warps=4,
    )  # fmt: skip
    return out
