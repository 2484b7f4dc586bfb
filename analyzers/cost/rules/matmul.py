"""Matrix products: K MACs per output; a bias is one addition per output."""

from tracer.analyzers.cost.activations import PER_ELEMENT, per_element
from tracer.analyzers.cost.count import Count
from tracer.analyzers.cost.operation import Operation
from tracer.analyzers.cost.registry import counts
from tracer.analyzers.cost.rules.quantization import REQUANTISE, zero_points


@counts("MatMul")
@counts("MatMulInteger16", domain="com.microsoft")
def product(op: Operation) -> Count:
    """Counts the MACs of `input 0 @ input 1`, batched and broadcast as in numpy."""
    return Count(macs=op.output().size * op.input(0).shape[-1])


@counts("MatMulInteger", settings=(2, 3))
def _matmul_integer(op: Operation) -> Count:
    return product(op) + zero_points(op, ((0, 2), (1, 3)))


@counts("QLinearMatMul", settings=(1, 2, 4, 5, 6, 7))
def _qlinear_matmul(op: Operation) -> Count:
    offsets = zero_points(op, ((0, 2), (3, 5)))
    return product(op) + offsets + REQUANTISE * op.output().size


@counts("Gemm")
def gemm(op: Operation) -> Count:
    """Counts alpha A B + beta C; a factor of 1 costs nothing."""
    inner = op.input(0).shape[0 if op.integer("transA", 0) else 1]
    outputs = op.output().size
    count = Count(macs=outputs * inner)
    if op.number("alpha", 1.0) != 1.0:
        count += Count(muls=outputs)
    beta = op.number("beta", 1.0)
    if op.has(2) and beta != 0.0:
        count += Count(adds=outputs, muls=op.input(2).size if beta != 1.0 else 0)
    return count


@counts("FusedGemm", domain="com.microsoft")
def _fused_gemm(op: Operation) -> Count:
    return gemm(op) + per_element(op.text("activation", "")) * op.output().size


@counts("GemmFastGelu", domain="com.microsoft")
def _gemm_fast_gelu(op: Operation) -> Count:
    outputs = op.output().size
    return product(op) + Count(adds=outputs if op.has(2) else 0) + PER_ELEMENT["FastGelu"] * outputs


@counts("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul", domain="com.microsoft")
def _fused_matmul(op: Operation) -> Count:
    """Counts alpha A B, with A or B transposed or not, and an activation.

    transBatchA puts the first axis before the last; transA exchanges the last two afterwards.
    """
    shape, outputs = op.input(0).shape, op.output().size
    rows = 0 if op.integer("transBatchA", 0) else -2
    inner = shape[rows] if op.integer("transA", 0) and len(shape) > 1 else shape[-1]
    scale = Count(muls=outputs if op.number("alpha", 1.0) != 1.0 else 0)
    return Count(macs=outputs * inner) + scale + per_element(op.text("activation", "")) * outputs
