"""MatMulNBits of accuracy level 4: blocks of integers, each a sum of its own."""

from collections.abc import Sequence

import numpy as np

from tracer.accumulators.engine.node_operands import Integers, NodeOperands, NoIntegerForm
from tracer.accumulators.engine.sum_runner import Reduction, SumRunner
from tracer.accumulators.nodes import ComputeSums, NodeSums, finished, lowering
from tracer.accumulators.nodes.matmul import begun_sums
from tracer.accumulators.spec.orders import Terms
from tracer.interpreter.numeric.block_weights import BlockWeights, unpacked
from tracer.interpreter.operators import MICROSOFT
from tracer.interpreter.ops.packed_weights import (
    INT8_ACTIVATIONS,
    has_integer_kernel,
    packed_product,
    rounded_activations,
    scaled,
)
from tracer.interpreter.values import Value
from tracer.support.types import Array

_LARGEST = 127
"""The code of the largest activation of a block; the least is -127."""
_STORED = {1: "weights", 2: "scales", 3: "zero points"}
"""Inputs that must be equal in every run, for onnxruntime rounds activations only then."""


@lowering("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(operands: NodeOperands) -> ComputeSums:
    """Activations rounded to 8 bits times codes minus zero points.

    The sums of blocks are scaled and added in float32. The order of additions begins anew in each
    block; a last block that K does not fill ends with zeros.
    """
    _check(operands)
    kept: dict[bool, Array] = {}

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        product = packed_product(*inputs, **operands.attributes)
        weights, after = product.weights, runner.accumulator.is_zero_point_in_sum
        if after not in kept:
            kept[after] = _numbers(weights, not after)
        activations, steps = rounded_activations(product.rows, weights)
        # a NaN or an infinity makes the scale of its block NaN or infinite, and so the output
        activations = np.where(np.isnan(activations), 0, activations).astype(np.int8)
        low, high = _range(weights, not after)
        runner.begin(_reduction(kept[after], low, high))
        out = np.zeros((len(product.rows), len(weights.codes)), np.float32)
        for block, numbers in enumerate(activations):
            left = Integers(numbers, -_LARGEST, _LARGEST)
            right = Integers(kept[after][:, block].T, low, high, constant=True)
            sums = begun_sums(runner, left, right)
            if after:
                sums = sums - np.outer(numbers.sum(1, np.int64), weights.zeros[:, block])
            scales = weights.scales[:, block].astype(np.float32)
            out += scaled(sums.astype(np.float32), steps[block], scales)
        return finished(product.output(out))

    return compute


def _check(operands: NodeOperands) -> None:
    """Raises UnfitError for a node whose products are floats."""
    attributes = operands.attributes
    level = attributes.get("accuracy_level", 0)
    if level != INT8_ACTIVATIONS:
        raise NoIntegerForm(
            f"accuracy_level is {level}, so that it multiplies floats",
            remedy=f"Set the attribute accuracy_level of MatMulNBits to {INT8_ACTIVATIONS}, which "
            "rounds activations to 8 bits, or choose a float accumulator, such as fp16.",
        )
    if operands.has_input(4):
        raise NoIntegerForm("g_idx chooses the scale of each term, so that it multiplies floats")
    for index, what in _STORED.items():
        if operands.has_input(index) and not operands.constant(index):
            raise NoIntegerForm(f"its {what} are computed, so that it multiplies floats")
    bits, block = attributes.get("bits", 4), attributes["block_size"]
    if not has_integer_kernel(bits, block, _has_packed_zeros(operands)):
        raise NoIntegerForm(
            f"onnxruntime multiplies floats for {bits} bits in blocks of {block}, or zero points "
            "that are floats"
        )


def _has_packed_zeros(operands: NodeOperands) -> bool:
    if not operands.has_input(3):
        return True
    zeros = operands.scales.value(operands.node.inputs[3], operands.node.scope)
    return zeros is not None and zeros.dtype == np.uint8


def _numbers(weights: BlockWeights, centred: bool) -> Array:
    """Codes, minus zero points if `centred`, (N, blocks, block); 0 beyond the depth."""
    rows, blocks = weights.scales.shape
    kind = np.int8 if weights.bits < np.iinfo(np.int8).bits else np.int16
    codes = unpacked(weights.codes, weights.bits, blocks * weights.block).astype(kind)
    if centred:
        codes = codes - np.repeat(weights.zeros.astype(kind), weights.block, axis=1)
    codes[:, weights.depth :] = 0
    return codes.reshape(rows, blocks, weights.block)


def _range(weights: BlockWeights, centred: bool) -> tuple[int, int]:
    """The least and the greatest number of the type of the weights."""
    most, zeros = (1 << weights.bits) - 1, weights.zeros
    if not centred or not zeros.size:
        return 0, most
    return -int(zeros.max()), most - int(zeros.min())


def _reduction(numbers: Array, low: int, high: int) -> Reduction:
    rows, blocks, block = numbers.shape
    return Reduction(
        rows, Terms(block), (-_LARGEST, _LARGEST), (low, high), numbers.reshape(-1, block),
        blocks=blocks,
    )  # fmt: skip
