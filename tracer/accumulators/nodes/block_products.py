"""MatMul and Gemm, also of weights with a scale for each block of terms: a sum for each block."""

from collections.abc import Sequence

import numpy as np

from tracer.accumulators.engine.block_scales import BlockedMatrix, blocked
from tracer.accumulators.engine.node_operands import Integers, NodeOperands, narrow
from tracer.accumulators.engine.sum_runner import Reduction, SumRunner
from tracer.accumulators.nodes import ComputeSums, NodeSums, finished, followed, lowering
from tracer.accumulators.nodes.matmul import begun_sums, gemm, matmul
from tracer.accumulators.spec.orders import Terms
from tracer.errors import ModelError
from tracer.interpreter.values import Value
from tracer.support.types import Array


@lowering("MatMul")
def matmul_or_blocks(operands: NodeOperands) -> ComputeSums:
    """Rows times columns; the sums of blocks are scaled and added in float32."""
    matrix = _blocked(operands, False)
    return matmul(operands) if matrix is None else _block_sums(operands, matrix, False)


@lowering("Gemm")
def gemm_or_blocks(operands: NodeOperands) -> ComputeSums:
    """As MatMul; C is added to scaled sums of blocks in floats."""
    options = operands.attributes
    matrix = _blocked(operands, bool(options.get("transB", 0)))
    if matrix is None:
        return gemm(operands)
    alpha, beta = (options.get(name, 1.0) for name in ("alpha", "beta"))

    def then(output: Array, inputs: Sequence[Value]) -> Array:
        added = beta * inputs[2] if operands.has_input(2) else 0
        return np.asarray(alpha * output + added).astype(output.dtype)

    return followed(_block_sums(operands, matrix, bool(options.get("transA", 0))), then)


def _blocked(operands: NodeOperands, turned: bool) -> BlockedMatrix | None:
    if operands.formats is not None:  # which round the floats that the blocks stand for
        return None
    node = operands.node
    return blocked(operands.scales, node.inputs[1], node.scope, turned)


def _block_sums(operands: NodeOperands, matrix: BlockedMatrix, turned: bool) -> ComputeSums:
    """A sum for each block of terms; the order of additions begins anew in each block."""
    a = operands.activations(0)
    step, columns, size = a.steps(None), matrix.blocks, matrix.block
    width, types = matrix.numbers.shape[1], (matrix.low, matrix.high)
    stored = columns.transpose(2, 0, 1).reshape(-1, size)
    reduction = Reduction(width, Terms(size), a.range, types, stored, blocks=len(columns))

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        left = a.integers(inputs[0])
        if runner.accumulator.is_zero_point_in_sum and (left.zero or matrix.has_zero_points):
            raise ModelError(
                f"'{operands.node.key}' has sums of blocks, which keep no zero points",
                "Subtract them from the operands: zero_points='before'.",
            )
        rows = _filled(left.values.T if turned else left.values, len(columns) * size)
        runner.begin(reduction)
        out = np.zeros((*rows.shape[:-1], width), np.float32)
        for index, block in enumerate(columns):
            part = Integers(rows[..., index * size : (index + 1) * size], left.low, left.high)
            sums = begun_sums(runner, part, Integers(narrow(block), *types, constant=True))
            out += sums.astype(np.float32) * (step * matrix.steps[index]).astype(np.float32)
        return finished(out.astype(operands.float_type(inputs[0])))

    return compute


def _filled(rows: Array, depth: int) -> Array:
    """Rows with zeros at their end."""
    missing = depth - rows.shape[-1]
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, missing)]) if missing else rows
