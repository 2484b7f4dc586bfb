"""MatMulBnb4, domain com.microsoft: a product with weights in the 4-bit types of bitsandbytes."""

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.node_inputs import Input
from tracer.interpreter.numeric import products
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_FP4 = np.array([0, 1 / 192, 8 / 12, 1, 4 / 12, 6 / 12, 2 / 12, 3 / 12], np.float32)
"""The values of the codes 0 to 7 of FP4; codes 8 to 15 are their negatives."""

_NF4 = np.array([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
], np.float32)  # fmt: skip
"""The values of the codes of NF4 ("QLoRA", Dettmers et al. 2023, appendix E)."""

_TABLES = {0: np.concatenate([_FP4, -_FP4]), 1: _NF4}
"""Values of the 16 codes by `quant_type`."""


def check_inputs(
    A: Input, B: Input, absmax: Input, *, K: int, N: int, block_size: int, quant_type: int
) -> None:
    """Raises ModelError for inputs that do not fit each other or the attributes."""
    if quant_type not in _TABLES:
        raise ModelError(f"quant_type is {quant_type}", "It is 0 for FP4, 1 for NF4.")
    if block_size < 1:
        raise ModelError(f"block_size is {block_size}, and must be at least 1")
    weights = N * K
    for name, given, wanted, what in (
        ("B", B, -(-weights // 2), "bytes of two weights"),
        ("absmax", absmax, -(-weights // block_size), f"blocks of {block_size} weights"),
    ):
        if given.size != wanted:
            raise ModelError(f"{name} is {list(given.shape)}, and {N} x {K} are {wanted} {what}")


@operator("MatMulBnb4", domain=DOMAIN, check=check_inputs)
def matmul_bnb4(
    A: Array,
    B: Array,
    absmax: Array,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    training_mode: int = 0,
    transB: int = 1,
) -> Array:
    """A times the weights [N, K], transposed with `transB`; sums are float32.

    A weight is the value of its code times `absmax` of its block. Blocks run through the flattened
    weights. A byte has the code of the earlier weight in its upper half.
    """
    limits.allow((N, K), np.float32)
    codes = np.stack([B.reshape(-1) >> 4, B.reshape(-1) & 15], axis=-1).reshape(-1)[: N * K]
    values = _TABLES[quant_type][codes]
    values *= np.repeat(absmax.astype(np.float32).reshape(-1), block_size)[: N * K]
    weights = values.reshape(N, K)
    columns = weights.T if transB else weights
    if A.shape[-1:] != columns.shape[:1]:
        raise ModelError(f"A has {list(A.shape)[-1:]} columns, and the weights {len(columns)} rows")
    return products.matmul(A.astype(np.float32, copy=False), columns).astype(A.dtype, copy=False)
