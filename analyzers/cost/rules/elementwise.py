"""Operators that compute each output element from one element of each input, and activations.

A function of several steps counts as its formula in the ONNX specification, with constants folded.
Optimizers of training (ai.onnx.preview.training) count for each weight that they update; rates that
are the same for all weights are not counted.
"""

from tracer.analyzers.cost.count import (
    NOTHING,
    Count,
    Operation,
    UnknownWorkError,
    counts,
    no_work,
    per_output,
)
from tracer.analyzers.cost.rules import reduction
from tracer.graph.operators import MICROSOFT

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
_TRAINING = "ai.onnx.preview.training"

_DECAY = Count(adds=1, muls=1)  # G + norm_coefficient X


def per_element(name: str) -> Count:
    """Returns the work per element of a fused activation. Raises UnknownWorkError if unknown."""
    canonical = _ALSO.get(name, name)
    by_lower = {each.lower(): count for each, count in PER_ELEMENT.items()}
    if canonical.lower() not in by_lower:  # recurrent operators compare without case
        raise UnknownWorkError(f"the activation '{name}' is unknown")
    return by_lower[canonical.lower()]


_PER_OUTPUT: dict[str, Count] = {
    "Add": Count(adds=1),
    "Sub": Count(adds=1),
    "Mul": Count(muls=1),
    "Shrink": Count(adds=1, other=2),
    **{name: PER_ELEMENT[name] for name in (
        "Relu", "Tanh", "Sigmoid", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "HardSwish",
        "Elu", "Selu", "Celu", "Softplus", "Softsign", "Mish",
    )},
    "PRelu": PER_ELEMENT["LeakyRelu"],
}  # fmt: skip

_ONE_OTHER = (
    # arithmetic that is neither addition nor multiplication
    *("Div", "Mod", "Pow", "Neg", "Abs", "Sign", "Reciprocal", "Sqrt"),
    *("Ceil", "Floor", "Round", "Exp", "Log", "Erf"),
    *("Sin", "Cos", "Tan", "Asin", "Acos", "Atan"),
    *("Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
    # comparisons and logic
    *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN", "IsInf"),
    *("And", "Or", "Xor", "Not"),
    *("BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"),
)


_FOLDS = {
    # per further input, at the end
    "Sum": (Count(adds=1), NOTHING),
    "Mean": (Count(adds=1), ONE),
    "Max": (ONE, NOTHING),
    "Min": (ONE, NOTHING),
}

for _name, _count in _PER_OUTPUT.items():
    counts(_name)(per_output(_count))
counts(*_ONE_OTHER)(per_output(ONE))
counts("Where", "Cast", "CastLike")(no_work)


@counts(*_FOLDS)
def _fold(op: Operation) -> Count:
    """Combines any number of inputs, two at a time."""
    pair, last = _FOLDS[op.op_type]
    return (pair * (len(op.node.inputs) - 1) + last) * op.output().size


@counts("Clip", settings=(1, 2))
def _clip(op: Operation) -> Count:
    bounds = 2 if op.opset < 11 else op.has(1) + op.has(2)
    return Count(other=bounds) * op.output().size


@counts("Gelu")
def _gelu(op: Operation) -> Count:
    name = "FastGelu" if op.text("approximate", "none") == "tanh" else "Gelu"
    return PER_ELEMENT[name] * op.output().size


@counts("Swish")
def _swish(op: Operation) -> Count:
    return swish(op.number("alpha", 1.0)) * op.output().size


@counts("SwiGLU")
def _swiglu(op: Operation) -> Count:
    return (swish(op.number("alpha", 1.0)) + Count(muls=1)) * op.output().size


def swish(alpha: float) -> Count:
    """x × sigmoid(alpha × x); a factor of 1 is no multiplication."""
    return PER_ELEMENT["Sigmoid"] + Count(muls=1 + (alpha != 1.0))


counts("Gelu", domain=MICROSOFT)(per_output(PER_ELEMENT["Gelu"]))
counts("BiasGelu", domain=MICROSOFT)(per_output(Count(adds=1) + PER_ELEMENT["Gelu"]))
counts("BiasAdd", domain=MICROSOFT)(per_output(Count(adds=2)))
counts("BiasSoftmax", domain=MICROSOFT)(per_output(Count(adds=1) + reduction.PER_ELEMENT))


@counts("FastGelu", domain=MICROSOFT)
def _fast_gelu(op: Operation) -> Count:
    return (Count(adds=int(op.has(1))) + PER_ELEMENT["FastGelu"]) * op.output().size


@counts("QuickGelu", domain=MICROSOFT)
def _quick_gelu(op: Operation) -> Count:
    return swish(op.number("alpha", 1.702)) * op.output().size


@counts("BiasSplitGelu", domain=MICROSOFT)
def _bias_split_gelu(op: Operation) -> Count:
    """Adds a bias to both halves, and multiplies one half by the Gelu of the other."""
    gated = PER_ELEMENT["Gelu"] + Count(muls=1)
    return Count(adds=op.input(0).size) + gated * op.output().size


@counts("Adagrad", domain=_TRAINING, settings=(0, 1))
def _adagrad(op: Operation) -> Count:
    """H + G G; X - rate G / (sqrt(H) + epsilon)."""
    return (_regularised(op) + Count(adds=3, muls=2, other=2)) * _weights(op, tensors=3)


@counts("Adam", domain=_TRAINING, settings=(0, 1))
def _adam(op: Operation) -> Count:
    """Averages of G and G G; X - rate V / (sqrt(H) + epsilon), and a decay of the result."""
    decay = Count(muls=1) if op.number("norm_coefficient_post", 0.0) else Count()
    each = Count(adds=4, muls=6, other=2) + decay
    return (_regularised(op) + each) * _weights(op, tensors=4)


@counts("Momentum", domain=_TRAINING, settings=(0, 1))
def _momentum(op: Operation) -> Count:
    """alpha V + beta G; X - rate V, or with Nesterov's momentum X - rate (G + alpha V)."""
    look_ahead = Count(adds=1, muls=1) if op.text("mode", "standard") == "nesterov" else Count()
    each = Count(adds=2, muls=3) + look_ahead
    return (_regularised(op) + each) * _weights(op, tensors=3)


@counts("Gradient", domain=_TRAINING)
def _gradient(op: Operation) -> Count:
    raise UnknownWorkError("it differentiates a graph, whose backward nodes are not in the model")


def _regularised(op: Operation) -> Count:
    return _DECAY if op.number("norm_coefficient", 0.0) else Count()


def _weights(op: Operation, tensors: int) -> int:
    """Returns the weights; after rate and step, inputs are `tensors` groups, weights first."""
    count = (len(op.node.inputs) - 2) // tensors
    return sum(op.input(index).size for index in range(2, 2 + count))
