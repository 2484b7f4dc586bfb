"""MoE and QMoE, domain com.microsoft: each token through the experts that a router chose for it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric import block_weights, products
from tracer.interpreter.numeric.block_weights import BlockWeights, packed_bytes, unpacked
from tracer.interpreter.numeric.tensors import widened
from tracer.interpreter.operators import MICROSOFT, Arguments, Input, operator
from tracer.interpreter.ops.activation import gelu, relu, swish
from tracer.interpreter.ops.packed_weights import INT8_ACTIVATIONS, integer_product, product
from tracer.interpreter.ops.softmax import softmax
from tracer.support.types import Array

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": relu,
    "gelu": lambda x: gelu(x, approximate="tanh"),
    "silu": swish,
    "identity": lambda x: x,
}
_Layer = Callable[[Array], Array]
"""A layer of an expert: tokens [n, inputs] to [n, outputs], in float32."""


@dataclass(frozen=True, slots=True)
class _Activation:
    """What an expert does between its layers.

    `name` is swiglu or one of `_ACTIVATIONS`. The parts of swiglu, g and l, are neighbours in the
    first layer's output if `fusion` is 1, its halves if 2, and of two layers if 0.
    """

    name: str
    alpha: float
    beta: float
    limit: float
    fusion: int

    def __call__(self, first: Array, third: Array | None) -> Array:
        """Returns the input of the second layer, of the outputs of the first and the third."""
        if self.name != "swiglu":
            active = _ACTIVATIONS[self.name](first)
            return active if third is None else active * third
        gate, linear = self._parts(first, third)
        gate = np.minimum(gate, np.float32(self.limit))
        linear = np.clip(linear, np.float32(-self.limit), np.float32(self.limit))
        return swish(gate, alpha=self.alpha) * (linear + np.float32(self.beta))

    def _parts(self, first: Array, third: Array | None) -> tuple[Array, Array]:
        if self.fusion == 1:
            return first[:, ::2], first[:, 1::2]
        if self.fusion == 2:
            half = first.shape[1] // 2
            return first[:, :half], first[:, half:]
        if third is None:
            raise ModelError("swiglu_fusion is 0, and there are no weights of fc3")
        return first, third


def check_dense(given: Arguments) -> None:
    """Raises ModelError for weights of MoE that do not fit each other, the input or the router."""
    input = given.input
    _check_router(given.router_probs, input, given.k)
    for weights, bias, name, depth in (
        (given.fc1_experts_weights, given.fc1_experts_bias, "fc1", input.shape[-1]),
        (given.fc2_experts_weights, given.fc2_experts_bias, "fc2", None),
        (given.fc3_experts_weights, given.fc3_experts_bias, "fc3", input.shape[-1]),
    ):
        if weights is not None:
            _check_bias(bias, weights.shape[:2], name)
            _check_experts(weights.shape, given.router_probs, depth, name)


@operator("MoE", domain=MICROSOFT, check=check_dense)
def moe(
    input: Array,
    router_probs: Array,
    fc1_experts_weights: Array,
    fc1_experts_bias: Array | None,
    fc2_experts_weights: Array,
    fc2_experts_bias: Array | None = None,
    fc3_experts_weights: Array | None = None,
    fc3_experts_bias: Array | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float = np.inf,
    use_sparse_mixer: int = 0,
) -> Array:
    """The sum of the chosen experts' outputs, weighted by the router. Raises ModelError."""
    activation = _activation(
        activation_type, activation_alpha, activation_beta, swiglu_limit, swiglu_fusion
    )
    routes = _routes(router_probs, None, k, bool(normalize_routing_weights), use_sparse_mixer)
    layers = [
        _dense(weights, bias, name)
        for weights, bias, name in (
            (fc1_experts_weights, fc1_experts_bias, "fc1"),
            (fc2_experts_weights, fc2_experts_bias, "fc2"),
            (fc3_experts_weights, fc3_experts_bias, "fc3"),
        )
        if weights is not None
    ]
    return _mixed(input, routes, layers, activation)


def check_quantized(given: Arguments) -> None:
    """Raises ModelError for weights of QMoE that do not fit each other or the attributes."""
    fc1_experts_weights, expert_weight_bits = given.fc1_experts_weights, given.expert_weight_bits
    _check_router(given.router_probs, given.input, given.k)
    for weights, scales, zeros, bias, bits, name in (
        (fc1_experts_weights, given.fc1_scales, given.fc1_zero_points, given.fc1_experts_bias,
         given.fc1_expert_weight_bits, "fc1"),
        (given.fc2_experts_weights, given.fc2_scales, given.fc2_zero_points, given.fc2_experts_bias,
         given.fc2_expert_weight_bits, "fc2"),
        (given.fc3_experts_weights, given.fc3_scales, given.fc3_zero_points, given.fc3_experts_bias,
         given.fc3_expert_weight_bits, "fc3"),
    ):  # fmt: skip
        if weights is not None:
            shape = blocks_of(weights, bits or expert_weight_bits, given.block_size, name)
            _check_layer(
                scales, zeros, bias, shape, bits or expert_weight_bits, given.block_size, name
            )
    depth = fc1_experts_weights.shape[2] * 8 // (given.fc1_expert_weight_bits or expert_weight_bits)
    _check_experts(
        (*fc1_experts_weights.shape[:2], depth), given.router_probs, given.input.shape[-1], "fc1"
    )


@operator("QMoE", domain=MICROSOFT, check=check_quantized)
def qmoe(
    input: Array,
    router_probs: Array,
    fc1_experts_weights: Array,
    fc1_scales: Array | None,
    fc1_experts_bias: Array | None,
    fc2_experts_weights: Array,
    fc2_scales: Array | None = None,
    fc2_experts_bias: Array | None = None,
    fc3_experts_weights: Array | None = None,
    fc3_scales: Array | None = None,
    fc3_experts_bias: Array | None = None,
    fc1_zero_points: Array | None = None,
    fc2_zero_points: Array | None = None,
    fc3_zero_points: Array | None = None,
    router_weights: Array | None = None,
    *,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int = 0,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int | None = None,
    fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None,
    k: int = 1,
    normalize_routing_weights: int = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float = np.inf,
    use_sparse_mixer: int = 0,
    weights_prepacked: int = -1,
) -> Array:
    """MoE whose weights are packed codes of 2, 4 or 8 bits, each row or block with its scale.

    The weights are those of `numeric.block_weights`. As in onnxruntime's CPU kernel, shares of the
    chosen experts add up to 1 unless `router_weights` gives them. Raises ModelError.
    """
    if quant_type != "int" or weights_prepacked == 1:
        raise ModelError(
            f"weights of quant_type '{quant_type}', weights_prepacked {weights_prepacked}",
            "The interpreter reads integers as they are stored: 'int', 0 or -1.",
        )
    activation = _activation(
        activation_type, activation_alpha, activation_beta, swiglu_limit, swiglu_fusion
    )
    normalized = router_weights is None or bool(normalize_routing_weights)
    routes = _routes(router_probs, router_weights, k, normalized, use_sparse_mixer)
    layers = [
        _quantized(weights, scales, zeros, bias, bits or expert_weight_bits, block_size,
                   accuracy_level, name)
        for weights, scales, zeros, bias, bits, name in (
            (fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_experts_bias,
             fc1_expert_weight_bits, "fc1"),
            (fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_experts_bias,
             fc2_expert_weight_bits, "fc2"),
            (fc3_experts_weights, fc3_scales, fc3_zero_points, fc3_experts_bias,
             fc3_expert_weight_bits, "fc3"),
        )
        if weights is not None
    ]  # fmt: skip
    return _mixed(input, routes, layers, activation)


def _mixed(
    input: Array,
    routes: tuple[Array, Array],
    layers: Sequence[Sequence[_Layer]],
    activation: _Activation,
) -> Array:
    """Returns the weighted sum of the outputs of the chosen experts."""
    chosen, shares = routes
    tokens = widened(input.reshape(-1, input.shape[-1]))
    output = np.zeros(tokens.shape, np.float32)
    for expert in np.unique(chosen).tolist():
        rows, places = np.nonzero(chosen == expert)
        first, second, *third = (layer[expert] for layer in layers)
        inside = activation(first(tokens[rows]), third[0](tokens[rows]) if third else None)
        output[rows] += second(inside) * shares[rows, places][:, None]
    return output.reshape(input.shape).astype(input.dtype, copy=False)


def _routes(
    probabilities: Array, weights: Array | None, count: int, normalized: bool, sparse: int
) -> tuple[Array, Array]:
    """Returns the experts of each token [tokens, count], and their shares. Raises ModelError."""
    if sparse:
        raise ModelError("use_sparse_mixer is 1, which onnxruntime's CUDA kernels alone have")
    shares = softmax(widened(probabilities))
    chosen = np.argsort(-shares, axis=1, kind="stable")[:, :count]
    if weights is not None:
        if weights.shape != probabilities.shape:
            raise ModelError(f"router_weights are {list(weights.shape)}")
        shares = widened(weights)
    of_chosen = np.take_along_axis(shares, chosen, axis=1)
    if normalized:
        of_chosen = of_chosen / of_chosen.sum(axis=1, keepdims=True)
    return chosen, of_chosen


def _activation(name: str, alpha: float, beta: float, limit: float, fusion: int) -> _Activation:
    if name != "swiglu" and name not in _ACTIVATIONS:
        known = ", ".join((*_ACTIVATIONS, "swiglu"))
        raise ModelError(f"activation_type is '{name}'", f"Known: {known}.")
    return _Activation(name, alpha, beta, limit, fusion)


def _dense(weights: Array, bias: Array | None, name: str) -> list[_Layer]:
    """Returns a layer of each expert, of weights [experts, outputs, inputs]. Raises ModelError."""
    shifts = _shifts(bias, len(weights))

    def layer(expert: int) -> _Layer:
        def compute(tokens: Array) -> Array:
            if tokens.shape[1] != weights.shape[2]:
                raise ModelError(f"{name} {list(weights.shape)} for {tokens.shape[1]} channels")
            return products.matmul(tokens, widened(weights[expert]).T) + shifts[expert]

        return compute

    return [layer(expert) for expert in range(len(weights))]


def _shifts(bias: Array | None, experts: int) -> Array:
    """Returns the bias [experts, outputs] of a layer, 0 without one."""
    if bias is None:
        return np.zeros((experts, 1), np.float32)
    return widened(bias)


def _quantized(
    weights: Array,
    scales: Array | None,
    zeros: Array | None,
    bias: Array | None,
    bits: int,
    block_size: int,
    level: int,
    name: str,
) -> list[_Layer]:
    """Returns a layer of each expert, of packed weights."""
    experts, _, blocks = shape = blocks_of(weights, bits, block_size, name)
    depth = weights.shape[2] * 8 // bits
    block = depth // blocks
    shifts = _shifts(bias, experts)
    assert scales is not None
    steps = scales.reshape(shape)
    points = _zero_points(zeros, shape, bits, block_size > 0)
    rounds = block_size > 0 and (bits == 8 or (bits == 4 and level == INT8_ACTIVATIONS))

    def layer(expert: int) -> _Layer:
        packed = BlockWeights(weights[expert], steps[expert], points[expert], bits, block, depth)

        def compute(tokens: Array) -> Array:
            if tokens.shape[1] != depth:
                raise ModelError(f"{name} has {depth} inputs, and gets {tokens.shape[1]}")
            return (integer_product if rounds else product)(tokens, packed) + shifts[expert]

        return compute

    return [layer(expert) for expert in range(experts)]


def _zero_points(
    zeros: Array | None, shape: tuple[int, int, int], bits: int, blocked: bool
) -> Array:
    """Returns zero points [experts, rows, blocks]; rows, or blocks of a row, are packed."""
    if zeros is None:
        return np.full(shape, 1 << (bits - 1), np.uint8)
    _, rows, blocks = shape
    return unpacked(zeros, bits, blocks if blocked else rows).reshape(shape)


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
