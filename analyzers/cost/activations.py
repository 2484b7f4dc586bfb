"""Operations per element of activation functions.

A function of several steps counts as its formula in the ONNX specification, with constants folded.
"""

from tracer.analyzers.cost.count import NOTHING, Count, UnknownWorkError

ONE = Count(other=1)

PER_ELEMENT: dict[str, Count] = {
    "Relu": ONE,
    "Tanh": ONE,
    "Sigmoid": Count(adds=1, other=3),  # 1 / (1 + exp(-x))
    "LeakyRelu": Count(muls=1, other=1),
    "ThresholdedRelu": ONE,
    "Affine": Count(adds=1, muls=1),
    "ScaledTanh": Count(muls=2, other=1),  # alpha tanh(beta x)
    "HardSigmoid": Count(adds=1, muls=1, other=2),  # max(0, min(1, alpha x + beta))
    "HardSwish": Count(adds=1, muls=2, other=2),  # x HardSigmoid(x)
    "Elu": Count(adds=1, muls=1, other=2),  # alpha (exp(x) - 1), and the comparison
    "Selu": Count(adds=1, muls=2, other=2),
    "Celu": Count(adds=2, muls=1, other=4),  # max(0, x) + min(0, alpha (exp(x / alpha) - 1))
    "Softplus": Count(adds=1, other=2),  # log(exp(x) + 1)
    "Softsign": Count(adds=1, other=2),  # x / (1 + |x|)
    "Mish": Count(adds=1, muls=1, other=3),  # x tanh(log(1 + exp(x)))
    "Swish": Count(adds=1, muls=2, other=3),  # x / (1 + exp(-alpha x))
    "Gelu": Count(adds=1, muls=3, other=1),  # 0.5 x (1 + erf(x / sqrt(2)))
    "FastGelu": Count(adds=2, muls=6, other=1),  # 0.5 x (1 + tanh(c (x + 0.044715 x x x)))
    "Clip": Count(other=2),
    "": NOTHING,
    "none": NOTHING,
}

_ALSO = {"silu": "Swish", "swish": "Swish", "QuickGelu": "Swish", "Silu": "Swish"}


def per_element(name: str) -> Count:
    """Returns the work per element of a fused activation. Raises UnknownWorkError if unknown."""
    canonical = _ALSO.get(name, name)
    by_lower = {each.lower(): count for each, count in PER_ELEMENT.items()}
    if canonical.lower() not in by_lower:  # recurrent operators compare without case
        raise UnknownWorkError(f"the activation '{name}' is unknown")
    return by_lower[canonical.lower()]
