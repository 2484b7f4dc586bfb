"""Mixtures of experts: each token goes through `k` experts, whichever the router chooses.

The weights of as many experts are read as the tokens can choose at most.
"""

from collections.abc import Callable
from functools import partial

from tracer.analyzers.cost.count import Bytes, Count, Operation, counts, known_sum, total
from tracer.analyzers.cost.rules import reduction
from tracer.analyzers.cost.rules.elementwise import per_element, swish
from tracer.analyzers.cost.rules.quantization import DEQUANTISE

_MICROSOFT = "com.microsoft"
_DENSE = ((2, 3), (4, 5), (6, 7))
"""Inputs of MoE: weights and bias of each layer."""
_PACKED = ((2, 4), (5, 7), (8, 10))
"""Inputs of QMoE: weights and bias of each layer; their scales are between them."""
_SCALES = (3, 6, 9, 11, 12, 13)
"""Inputs of QMoE: scales and zero points."""
_SWIGLU = Count(adds=1, muls=1, other=3)
"""Per element, beyond Swish: clip both parts, add beta, multiply."""


def _traffic(op: Operation) -> tuple[Bytes, Bytes]:
    """Reads activations and routes whole, and of everything else the part of the experts."""
    names = op.node.inputs
    whole = {names[index] for index in (0, 1, 14) if op.has(index)}
    experts, used = op.input(2).shape[0], _used(op)
    stored = total(operand for operand in op.inputs() if operand.name not in whole)
    rest = total(operand for operand in op.inputs() if operand.name in whole)
    part = None if stored is None else stored * used // max(experts, 1)
    return known_sum((part, rest)), total(op.outputs())


@counts("MoE", domain=_MICROSOFT, moves=_traffic)
def _moe(op: Operation) -> Count:
    return _experts(op, _DENSE, lambda index: op.input(index).size)


def _unpacked(op: Operation, index: int) -> int:
    """Returns the number of weights at an input, by the bits of its layer, or else of all."""
    layer = 1 + [weights for weights, _ in _PACKED].index(index)
    own_bits = op.integer(f"fc{layer}_expert_weight_bits", 0)
    return op.input(index).size * 8 // (own_bits or op.integer("expert_weight_bits", 4))


@counts("QMoE", domain=_MICROSOFT, moves=_traffic, settings=_SCALES,
        packed={index: partial(_unpacked, index=index) for index, _ in _PACKED})  # fmt: skip
def _quantised_moe(op: Operation) -> Count:
    """Counts MoE, and dequantising each weight of the experts that are read once."""
    weights = [_unpacked(op, index) for index, _ in _PACKED if op.has(index)]
    each = sum(weights) // max(op.input(2).shape[0], 1)
    return _experts(op, _PACKED, partial(_unpacked, op)) + DEQUANTISE * (each * _used(op))


def _experts(
    op: Operation, layers: tuple[tuple[int, int], ...], weights: Callable[[int], int]
) -> Count:
    """Counts the router's softmax, the layers of the chosen experts, and the weighted sum."""
    tokens, experts = op.input(1).shape
    chosen = tokens * op.integer("k", 1)
    count = reduction.PER_ELEMENT * (tokens * experts)
    for index, bias in layers:
        if op.has(index):
            rows = op.input(index).shape[1]
            count += Count(macs=weights(index) // max(experts, 1)) * chosen
            count += Count(adds=rows if op.has(bias) else 0) * chosen
    return (
        count
        + _activation(op, layers) * chosen
        + Count(adds=1, muls=1) * (chosen * op.input(0).shape[-1])
    )


def _activation(op: Operation, layers: tuple[tuple[int, int], ...]) -> Count:
    """Counts what an expert does between its layers with one token."""
    rows = op.input(layers[0][0]).shape[1]
    name = op.text("activation_type", "relu")
    if name == "swiglu":
        inner = rows // 2 if op.integer("swiglu_fusion", 0) else rows
        return (swish(op.number("activation_alpha", 1.0)) + _SWIGLU) * inner
    gated = Count(muls=int(op.has(layers[2][0])))
    if name == "silu":
        return (swish(1.0) + gated) * rows
    known = {"identity": "none", "gelu": "FastGelu"}
    return (per_element(known.get(name, name)) + gated) * rows


def _used(op: Operation) -> int:
    """Returns how many experts the tokens choose at most."""
    tokens, experts = op.input(1).shape
    return min(experts, tokens * op.integer("k", 1))
