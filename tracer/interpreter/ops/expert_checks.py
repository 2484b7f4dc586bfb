"""What inputs MoE and QMoE take: routers, weights and biases that fit each other."""

import math
from collections.abc import Sequence

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.node_inputs import Input
from tracer.interpreter.numeric import block_weights
from tracer.interpreter.numeric.block_weights import packed_bytes


def check_dense(
    input: Input,
    router_probs: Input,
    fc1_experts_weights: Input,
    fc1_experts_bias: Input | None = None,
    fc2_experts_weights: Input | None = None,
    fc2_experts_bias: Input | None = None,
    fc3_experts_weights: Input | None = None,
    fc3_experts_bias: Input | None = None,
    *,
    k: int = 1,
) -> None:
    """Raises ModelError for weights of MoE that do not fit each other, the input or the router."""
    _check_router(router_probs, input, k)
    for weights, bias, name, depth in (
        (fc1_experts_weights, fc1_experts_bias, "fc1", input.shape[-1]),
        (fc2_experts_weights, fc2_experts_bias, "fc2", None),
        (fc3_experts_weights, fc3_experts_bias, "fc3", input.shape[-1]),
    ):
        if weights is not None:
            _check_bias(bias, weights.shape[:2], name)
            _check_experts(weights.shape, router_probs, depth, name)


def check_quantized(
    input: Input,
    router_probs: Input,
    fc1_experts_weights: Input,
    fc1_scales: Input | None = None,
    fc1_experts_bias: Input | None = None,
    fc2_experts_weights: Input | None = None,
    fc2_scales: Input | None = None,
    fc2_experts_bias: Input | None = None,
    fc3_experts_weights: Input | None = None,
    fc3_scales: Input | None = None,
    fc3_experts_bias: Input | None = None,
    fc1_zero_points: Input | None = None,
    fc2_zero_points: Input | None = None,
    fc3_zero_points: Input | None = None,
    *,
    block_size: int = 0,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int | None = None,
    fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None,
    k: int = 1,
) -> None:
    """Raises ModelError for weights of QMoE that do not fit each other or the attributes."""
    _check_router(router_probs, input, k)
    for weights, scales, zeros, bias, bits, name in (
        (fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_experts_bias,
         fc1_expert_weight_bits, "fc1"),
        (fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_experts_bias,
         fc2_expert_weight_bits, "fc2"),
        (fc3_experts_weights, fc3_scales, fc3_zero_points, fc3_experts_bias,
         fc3_expert_weight_bits, "fc3"),
    ):  # fmt: skip
        if weights is not None:
            shape = blocks_of(weights, bits or expert_weight_bits, block_size, name)
            _check_layer(scales, zeros, bias, shape, bits or expert_weight_bits, block_size, name)
    depth = fc1_experts_weights.shape[2] * 8 // (fc1_expert_weight_bits or expert_weight_bits)
    _check_experts((*fc1_experts_weights.shape[:2], depth), router_probs, input.shape[-1], "fc1")


def _check_router(probabilities: Input, input: Input, count: int) -> None:
    """Refuses a router of other tokens than the input, and more experts than it has."""
    if probabilities.ndim != 2 or not 1 <= count <= probabilities.shape[1]:
        raise ModelError(f"{count} experts of each token, of {list(probabilities.shape)}")
    tokens = math.prod(input.shape[:-1])
    if probabilities.shape[0] != tokens:
        raise ModelError(
            f"the router has {probabilities.shape[0]} rows, and there are {tokens} tokens"
        )


def _check_experts(shape: Sequence[int], router: Input, depth: int | None, name: str) -> None:
    """Refuses weights [experts, outputs, inputs] of other experts or, if known, other inputs."""
    experts, _, inputs = shape
    if experts != router.shape[1]:
        raise ModelError(
            f"{name} has {experts} experts, and the router chooses of {router.shape[1]}"
        )
    if depth not in (None, inputs):
        raise ModelError(f"{name} has {inputs} inputs, and gets {depth}")


def _check_bias(bias: Input | None, shape: Sequence[int], name: str) -> None:
    if bias is not None and bias.shape != tuple(shape):
        raise ModelError(f"the bias of {name} is {list(bias.shape)}, not {list(shape)}")


def blocks_of(weights: Input, bits: int, block_size: int, name: str) -> tuple[int, int, int]:
    """Returns the experts, the rows of each, and the blocks of a row. Raises ModelError."""
    block_weights.check_bits(bits)
    experts, rows, width = weights.shape
    depth = width * 8 // bits
    if block_size <= 0:
        return experts, rows, 1
    block_weights.check_block(block_size)
    if depth % block_size:
        raise ModelError(f"{name} has {depth} inputs, which blocks of {block_size} do not divide")
    return experts, rows, depth // block_size


def _check_layer(
    scales: Input | None,
    zeros: Input | None,
    bias: Input | None,
    shape: tuple[int, int, int],
    bits: int,
    block_size: int,
    name: str,
) -> None:
    """Refuses scales, zero points and a bias of other experts, rows or blocks than `shape`."""
    if scales is None or scales.size != np.prod(shape):
        found = "no scales" if scales is None else f"scales {list(scales.shape)}"
        raise ModelError(f"{name} has {found}, not {list(shape)}")
    _check_bias(bias, shape[:2], name)
    experts, rows, blocks = shape
    packed = (
        (experts, rows, packed_bytes(blocks, bits))
        if block_size > 0
        else (experts, packed_bytes(rows, bits))
    )
    if zeros is not None and zeros.shape != packed:
        raise ModelError(f"zero points of {name} are {list(zeros.shape)}, not {list(packed)}")
