"""MoE and QMoE, domain com.microsoft: each token through the experts that a router chose for it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric import products, tensors
from tracer.interpreter.operators import MICROSOFT, Arguments, operator, parameters_of
from tracer.interpreter.ops.arithmetic import gelu, relu, swish
from tracer.interpreter.ops.packed_weights import INT8_ACTIVATIONS, integer_product, product
from tracer.interpreter.ops.softmax import softmax
from tracer.support.types import Array

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": relu,
    "gelu": lambda x: gelu(x, approximate="tanh"),
    "silu": swish,
    "identity": lambda x: x,
}
_Layer = Callable[[int, Array], Array]
"""A layer of the experts: an expert, tokens [n, inputs] -> tokens [n, outputs], in float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mixture:
    """The attributes that MoE and QMoE share: which experts, and what is between their layers.

    `activation_type` is swiglu or one of `_ACTIVATIONS`. The parts of swiglu, g and l, are
    neighbours in the first layer's output if `swiglu_fusion` is 1, its halves if 2, and of two
    layers if 0.
    """

    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    activation_type: str = "relu"
    k: int = 1
    normalize_routing_weights: int = 0
    swiglu_fusion: int = 0
    swiglu_limit: float = np.inf
    use_sparse_mixer: int = 0

    def __post_init__(self) -> None:
        if self.activation_type != "swiglu" and self.activation_type not in _ACTIVATIONS:
            known = ", ".join((*_ACTIVATIONS, "swiglu"))
            raise ModelError(f"activation_type is '{self.activation_type}'", f"Known: {known}.")

    def routes(
        self, probabilities: Array, weights: Array | None, normalized: bool
    ) -> tuple[Array, Array]:
        """Returns the experts of each token [tokens, k], and their shares. Raises ModelError."""
        if self.use_sparse_mixer:
            raise ModelError("use_sparse_mixer is 1, which onnxruntime's CUDA kernels alone have")
        shares = softmax(tensors.widened(probabilities))
        chosen = np.argsort(-shares, axis=1, kind="stable")[:, : self.k]
        if weights is not None:
            if weights.shape != probabilities.shape:
                raise ModelError(f"router_weights are {list(weights.shape)}")
            shares = tensors.widened(weights)
        of_chosen = np.take_along_axis(shares, chosen, axis=1)
        if normalized or self.normalize_routing_weights:
            of_chosen = of_chosen / of_chosen.sum(axis=1, keepdims=True)
        return chosen, of_chosen

    def output(self, input: Array, routes: tuple[Array, Array], layers: Sequence[_Layer]) -> Array:
        """Returns the weighted sum of the outputs of the chosen experts."""
        chosen, shares = routes
        first, second, *third = layers
        tokens = tensors.widened(input.reshape(-1, input.shape[-1]))
        output = np.zeros(tokens.shape, np.float32)
        for expert in np.unique(chosen).tolist():
            rows, places = np.nonzero(chosen == expert)
            own = tokens[rows]
            inside = self._second_input(
                first(expert, own), third[0](expert, own) if third else None
            )
            output[rows] += second(expert, inside) * shares[rows, places][:, None]
        return output.reshape(input.shape).astype(input.dtype, copy=False)

    def _second_input(self, first: Array, third: Array | None) -> Array:
        """Returns the input of the second layer, of the outputs of the first and the third."""
        if self.activation_type != "swiglu":
            active = _ACTIVATIONS[self.activation_type](first)
            return active if third is None else active * third
        if self.swiglu_fusion == 1:
            gate, linear = first[:, ::2], first[:, 1::2]
        elif self.swiglu_fusion == 2:
            half = first.shape[1] // 2
            gate, linear = first[:, :half], first[:, half:]
        elif third is not None:
            gate, linear = first, third
        else:
            raise ModelError("swiglu_fusion is 0, and there are no weights of fc3")
        gate = np.minimum(gate, np.float32(self.swiglu_limit))
        linear = np.clip(linear, np.float32(-self.swiglu_limit), np.float32(self.swiglu_limit))
        active = swish(gate, alpha=self.activation_alpha)
        return active * (linear + np.float32(self.activation_beta))


def check_dense(given: Arguments) -> None:
    """Raises ModelError for weights of MoE that do not fit each other, the input or the router."""
    _check_router(given.router_probs, given.input, given.k)
    for name in ("fc1", "fc2", "fc3"):
        weights = getattr(given, f"{name}_experts_weights")
        if weights is not None:
            _check_bias(getattr(given, f"{name}_experts_bias"), weights.shape[:2], name)
            depth = None if name == "fc2" else given.input.shape[-1]
            _check_experts(weights.shape, given.router_probs, depth, name)


@operator("MoE", domain=MICROSOFT, check=check_dense)
@parameters_of(_Mixture)
def moe(
    input: Array, router_probs: Array, fc1_experts_weights: Array, fc1_experts_bias: Array | None,
    fc2_experts_weights: Array, fc2_experts_bias: Array | None = None,
    fc3_experts_weights: Array | None = None, fc3_experts_bias: Array | None = None,
    **attributes: Any,
) -> Array:  # fmt: skip
    """The sum of the chosen experts' outputs, weighted by the router. Raises ModelError."""
    mixture = _Mixture(**attributes)
    routes = mixture.routes(router_probs, None, False)
    layers = [
        _dense(weights, bias, name)
        for weights, bias, name in (
            (fc1_experts_weights, fc1_experts_bias, "fc1"),
            (fc2_experts_weights, fc2_experts_bias, "fc2"),
            (fc3_experts_weights, fc3_experts_bias, "fc3"),
        )
        if weights is not None
    ]
    return mixture.output(input, routes, layers)


def check_quantized(given: Arguments) -> None:
    """Raises ModelError for weights of QMoE that do not fit each other or the attributes."""
    _check_router(given.router_probs, given.input, given.k)
    for name in ("fc1", "fc2", "fc3"):
        weights, scales, zeros, bias, bits = (
            getattr(given, f"{name}_{what}")
            for what in ("experts_weights", "scales", "zero_points", "experts_bias",
                         "expert_weight_bits")
        )  # fmt: skip
        if weights is None:
            continue
        bits = bits or given.expert_weight_bits
        experts, rows, blocks = shape = blocks_of(weights, bits, given.block_size, name)
        if scales is None or scales.size != math.prod(shape):
            found = "no scales" if scales is None else f"scales {list(scales.shape)}"
            raise ModelError(f"{name} has {found}, not {list(shape)}")
        _check_bias(bias, shape[:2], name)
        packed: tuple[int, ...] = (experts, tensors.packed_bytes(rows, bits))
        if given.block_size > 0:
            packed = (experts, rows, tensors.packed_bytes(blocks, bits))
        if zeros is not None and zeros.shape != packed:
            raise ModelError(f"zero points of {name} are {list(zeros.shape)}, not {list(packed)}")
    experts, rows, width = given.fc1_experts_weights.shape
    depth = width * 8 // (given.fc1_expert_weight_bits or given.expert_weight_bits)
    _check_experts((experts, rows, depth), given.router_probs, given.input.shape[-1], "fc1")


@operator("QMoE", domain=MICROSOFT, check=check_quantized)
@parameters_of(_Mixture)
def qmoe(
    input: Array, router_probs: Array, fc1_experts_weights: Array, fc1_scales: Array | None,
    fc1_experts_bias: Array | None, fc2_experts_weights: Array, fc2_scales: Array | None = None,
    fc2_experts_bias: Array | None = None, fc3_experts_weights: Array | None = None,
    fc3_scales: Array | None = None, fc3_experts_bias: Array | None = None,
    fc1_zero_points: Array | None = None, fc2_zero_points: Array | None = None,
    fc3_zero_points: Array | None = None, router_weights: Array | None = None,
    *, accuracy_level: int = 0, block_size: int = 0, expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int | None = None, fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None, quant_type: str = "int", weights_prepacked: int = -1,
    **attributes: Any,
) -> Array:  # fmt: skip
    """MoE whose weights are packed codes of 2, 4 or 8 bits, each row or block with its scale.

    The weights are `BlockWeights`. As in onnxruntime's CPU kernel, shares of the chosen experts add
    up to 1 unless `router_weights` gives them. Raises ModelError.
    """
    if quant_type != "int" or weights_prepacked == 1:
        raise ModelError(
            f"weights of quant_type '{quant_type}', weights_prepacked {weights_prepacked}",
            "The interpreter reads integers as they are stored: 'int', 0 or -1.",
        )
    mixture = _Mixture(**attributes)
    routes = mixture.routes(router_probs, router_weights, router_weights is None)
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
    return mixture.output(input, routes, layers)


def _dense(weights: Array, bias: Array | None, name: str) -> _Layer:
    """Returns the layer of weights [experts, outputs, inputs]."""
    shifts = _shifts(bias, len(weights))

    def layer(expert: int, tokens: Array) -> Array:
        if tokens.shape[1] != weights.shape[2]:
            raise ModelError(f"{name} {list(weights.shape)} for {tokens.shape[1]} channels")
        return products.matmul(tokens, tensors.widened(weights[expert]).T) + shifts[expert]

    return layer


def _shifts(bias: Array | None, experts: int) -> Array:
    """Returns the bias [experts, outputs] of a layer, 0 without one."""
    return np.zeros((experts, 1), np.float32) if bias is None else tensors.widened(bias)


def _quantized(
    weights: Array, scales: Array | None, zeros: Array | None, bias: Array | None, bits: int,
    block_size: int, level: int, name: str,
) -> _Layer:  # fmt: skip
    """Returns the layer of packed weights [experts, outputs, bytes]."""
    experts, rows, blocks = shape = blocks_of(weights, bits, block_size, name)
    depth = weights.shape[2] * 8 // bits
    shifts = _shifts(bias, experts)
    assert scales is not None
    steps = scales.reshape(shape)
    if zeros is None:
        points = np.full(shape, 1 << (bits - 1), np.uint8)
    else:  # blocks of a row, or rows, are packed
        points = tensors.unpacked(zeros, bits, blocks if block_size > 0 else rows).reshape(shape)
    rounds = block_size > 0 and (bits == 8 or (bits == 4 and level == INT8_ACTIVATIONS))

    def layer(expert: int, tokens: Array) -> Array:
        if tokens.shape[1] != depth:
            raise ModelError(f"{name} has {depth} inputs, and gets {tokens.shape[1]}")
        packed = tensors.BlockWeights(
            weights[expert], steps[expert], points[expert], bits, depth // blocks, depth
        )
        return (integer_product if rounds else product)(tokens, packed) + shifts[expert]

    return layer


def blocks_of(weights: Array, bits: int, block_size: int, name: str) -> tuple[int, int, int]:
    """Returns the experts, the rows of each, and the blocks of a row. Raises ModelError."""
    tensors.check_bits(bits)
    experts, rows, width = weights.shape
    depth = width * 8 // bits
    if block_size <= 0:
        return experts, rows, 1
    tensors.check_block(block_size)
    if depth % block_size:
        raise ModelError(f"{name} has {depth} inputs, which blocks of {block_size} do not divide")
    return experts, rows, depth // block_size


def _check_router(probabilities: Array, input: Array, count: int) -> None:
    """Refuses a router of other tokens than the input, and more experts than it has."""
    if probabilities.ndim != 2 or not 1 <= count <= probabilities.shape[1]:
        raise ModelError(f"{count} experts of each token, of {list(probabilities.shape)}")
    tokens = math.prod(input.shape[:-1])
    if probabilities.shape[0] != tokens:
        raise ModelError(
            f"the router has {probabilities.shape[0]} rows, and there are {tokens} tokens"
        )


def _check_experts(shape: Sequence[int], router: Array, depth: int | None, name: str) -> None:
    """Refuses weights [experts, outputs, inputs] of other experts or, if known, other inputs."""
    experts, _, inputs = shape
    if experts != router.shape[1]:
        raise ModelError(
            f"{name} has {experts} experts, and the router chooses of {router.shape[1]}"
        )
    if depth not in (None, inputs):
        raise ModelError(f"{name} has {inputs} inputs, and gets {depth}")


def _check_bias(bias: Array | None, shape: Sequence[int], name: str) -> None:
    if bias is not None and bias.shape != tuple(shape):
        raise ModelError(f"the bias of {name} is {list(bias.shape)}, not {list(shape)}")
