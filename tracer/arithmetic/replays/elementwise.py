"""Operators of one element: which function it is, and where in a buffer the C library computes it.

Vectors take four elements; what is left over at the end of each thread's part is computed by the
C library, with other bits. Probes of one value in all places tell where that is.

The functions have onnxruntime's steps in their order, each rounded to float32. `library` has exp,
log …: `packets`, or `c_library` for what is left over. `attributes` are those of the node.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from tracer.arithmetic import c_library, mlas, packets
from tracer.arithmetic.kernel import Facts, Inputs, Kernel, NotKnown, Rule
from tracer.arithmetic.replays import ROUNDED, of_floats
from tracer.support.types import Array

_F = np.float32
_ONE, _HALF, _LARGEST = _F(1), _F(0.5), np.finfo(np.float32).max
_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
_MINUS_ZERO = np.int32(-(2**31))
_ROOT_HALF = _F(np.sqrt(0.5))
_GELU_SLOPE, _GELU_CUBE = _F(0.7978845608028654), _F(0.035677408136300125)
"""The square root of 2/pi, and 0.044715 times it."""
Attributes = Mapping[str, Any]


def elu(library: ModuleType, x: Array, attributes: Attributes) -> Array:
    """Returns alpha (exp(x) - 1) below 0."""
    return np.where(x >= 0, x, _F(attributes.get("alpha", 1)) * (library.exp(x) - _ONE))


def selu(library: ModuleType, x: Array, attributes: Attributes) -> Array:
    """Returns gamma times an Elu; the two factors are multiplied first."""
    gamma = _F(attributes.get("gamma", _SELU_GAMMA))
    factor = gamma * _F(attributes.get("alpha", _SELU_ALPHA))
    return np.where(x > 0, gamma * x, factor * (library.exp(x) - _ONE))


def celu(library: ModuleType, x: Array, attributes: Attributes) -> Array:
    """Returns x above 0, and alpha (exp(x / alpha) - 1) below."""
    alpha = _F(attributes.get("alpha", 1))
    low = alpha * (library.exp(x / alpha) - _ONE)
    return np.asarray(np.maximum(x, _F(0)) + np.minimum(low, _F(0)))


def softplus(library: ModuleType, x: Array, attributes: Attributes) -> Array:
    """Returns log(1 + exp(x)), the exponent never above 0."""
    low: Array = library.log1p(library.exp(x))
    return np.asarray(np.where(x > 0, x + library.log1p(library.exp(-x)), low))


def mish(library: ModuleType, x: Array, attributes: Attributes) -> Array:
    """Returns x tanh(softplus(x))."""
    return np.asarray(x * mlas.tanh(softplus(library, x, attributes)))


def is_plain(*arrays: Array) -> bool:
    """Whether no number is -0 or NaN: a maximum does not depend on the order of operands."""
    return not any(
        (np.ascontiguousarray(x).view(np.int32) == _MINUS_ZERO).any() or np.isnan(x).any()
        for x in arrays
    )


def relu(x: Array) -> Array:
    """Returns x, or 0 below it: -0 stays."""
    return np.maximum(x, _F(0)) if is_plain(x) else np.where(x < 0, _F(0), x)


def clip(x: Array, *rest: Any) -> Array:
    """Returns x within its other inputs, or those of the attributes, which come last.

    What equals a limit stays, with its sign.
    """
    *inputs, attributes = rest
    given = (*inputs, None)[:2] if inputs else (attributes.get("min"), attributes.get("max"))
    low, high = (  # without a limit, the largest number is one
        np.asarray(usual if each is None else each, _F)
        for each, usual in zip(given, (-_LARGEST, _LARGEST), strict=True)
    )
    if is_plain(x, low, high):
        return np.asarray(np.clip(x, low, high))
    x = np.where(x < low, low, x)
    return np.where(x > high, high, x)


def softsign(x: Array) -> Array:
    """Returns x / (1 + |x|) as a product with the reciprocal."""
    return _ONE / (_ONE + np.abs(x)) * x


def gelu(x: Array) -> Array:
    """Returns x (1 + erf(x / sqrt 2)) / 2."""
    return _HALF * x * (mlas.erf(x * _ROOT_HALF) + _ONE)


def gelu_by_tanh(x: Array) -> Array:
    """Returns the approximation of Gelu by a hyperbolic tangent."""
    return _HALF * x * (mlas.tanh(x * (_GELU_CUBE * x * x + _GELU_SLOPE)) + _ONE)


def quick_gelu(x: Array, alpha: float, most: np.float32 = _LARGEST) -> Array:
    """Returns x / (1 + exp(-alpha x)), its quotient at most `most`."""
    return np.asarray(x * np.minimum(mlas.logistic(x if alpha == 1 else x * _F(alpha)), most))


Form = Callable[..., Array]
"""Takes the inputs of a node, and its attributes."""
_PROBES = 3
"""Values that are put in all places; a single one may be equal by chance after a later step."""


def runs_of(places: Array) -> list[int]:
    """Returns the runs of true places of a vector."""
    edges = np.flatnonzero(np.diff(places, prepend=False, append=False)).reshape(-1, 2)
    return [int(number) for low, high in edges for number in (low, high - low)]


def indices_of(runs: Sequence[int]) -> Array:
    """Returns the indices in runs."""
    pairs = np.reshape(runs, (-1, 2)).astype(np.int64)
    return np.concatenate([np.arange(low, low + length) for low, length in pairs] or [pairs[:, 0]])


@dataclass(frozen=True)
class Elementwise:
    """How an operator is computed, and how for what is left over, if otherwise."""

    text: str
    form: Form
    rest: Form | None = None

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        """Yields the one rule, with the places of what is left over."""
        if self.rest is None:
            yield Rule(self.text)
            return
        ((name, (_, shape)),) = kernel.inputs.items()
        drawn = np.random.default_rng(0).uniform(-1, 1, 4096).astype(np.float32)
        drawn = np.concatenate([drawn, np.float32(4) * drawn])
        with np.errstate(all="ignore"):
            results = [each(drawn, kernel.attributes) for each in (self.form, self.rest)]
        telling = np.flatnonzero((results[0] != results[1]) & ~np.isnan(results[0]))[:_PROBES]
        by_library = np.zeros(int(np.prod(shape)), bool)
        for probe in telling:
            out = kernel.run({name: np.full(shape, drawn[probe])})[0].ravel()
            is_rest = out == results[1][probe]
            if not (is_rest | (out == results[0][probe])).all():
                raise NotKnown("it computes neither by vectors nor by the C library")
            by_library |= is_rest
        text = f"{self.text}, {by_library.sum()} left over by the C library"
        yield Rule(text, {"rest": runs_of(by_library)})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        """Returns the output by the form, and by the other one in the places left over."""
        values = kernel.values(inputs)
        with np.errstate(all="ignore"):
            out = np.asarray(self.form(*values, kernel.attributes), np.float32)
            if self.rest is not None:
                (x,) = values
                places = indices_of(facts["rest"])
                out = out.copy()
                out.flat[places] = self.rest(x.flat[places], kernel.attributes)
        return [out]


@dataclass(frozen=True)
class _Extremes:
    """Max and Min of several inputs, from left to right: of two zeros, vectors keep the second."""

    is_larger: Callable[[Array, Array], Array]
    loser: float
    """What no zero loses to."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        runs = []
        for stage in range(1, len(kernel.node.input)):
            zeros = [0.0 if n < stage else -0.0 if n == stage else self.loser
                     for n in range(len(kernel.node.input))]  # fmt: skip
            shapes = [kernel.shape(n) or () for n in range(len(zeros))]
            filled = [np.full(*pair, np.float32) for pair in zip(shapes, zeros, strict=True)]
            probed = kernel.with_constants(
                {n: each for n, each in enumerate(filled) if kernel.constant(n) is not None}
            )
            out = probed.run(dict(zip(kernel.node.input, filled, strict=True)))[0]
            runs.append(runs_of(~np.signbit(out).ravel()))
        yield Rule("from left to right; probes tell which of two zeros is kept", {"first": runs})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        first, *others = kernel.values(inputs)
        shape = np.broadcast_shapes(*[each.shape for each in (first, *others) if each is not None])
        out: Array = np.array(np.broadcast_to(np.asarray(first), shape))
        for runs, other in zip(facts["first"], others, strict=True):
            is_kept = self.is_larger(out, other) | np.isnan(out)
            places = indices_of(runs)
            is_kept.flat[places] |= (out == other).flat[places]
            out = np.where(is_kept, out, other)
        return [out]


class _Where:
    """A choice is the sum of two that are 0 elsewhere: a -0 of the first becomes 0.

    Source: onnxruntime's `core/providers/cpu/tensor/where_op.cc`.
    """

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        yield ROUNDED
        yield Rule("moved; a -0 of the first becomes 0", {"loses_sign": True})

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        if not facts:
            return kernel.interpret(inputs)
        condition, first, second = kernel.values(inputs)
        chosen, other = np.where(condition, first, 0), np.where(condition, 0, second)
        return [np.where(chosen != 0, chosen, other).astype(first.dtype)]


class _Range:
    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        yield Rule("the step is added to each number for the next")

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        start, _, step = (np.ravel(value)[0] for value in kernel.values(inputs))
        (out,) = kernel.interpret(inputs)
        terms = np.full(len(out), step)
        terms[:1] = start
        return [np.add.accumulate(terms)]


def _composed(form: Callable[[ModuleType, Array, Mapping[str, Any]], Array]) -> Elementwise:
    """An operator that is written with exp, log …, by vectors or by the C library."""
    return Elementwise("in vectors", partial(form, packets), partial(form, c_library))


def _plain(text: str, function: Callable[[Array], Array]) -> Elementwise:
    """A function of the one input alone."""
    return Elementwise(text, lambda x, attributes: function(x))


def _vectors(name: str) -> Elementwise:
    """A function that both libraries have."""
    vector, single = getattr(packets, name), getattr(c_library, name)
    return Elementwise(
        "a polynomial in vectors", lambda x, attributes: vector(x), lambda x, attributes: single(x)
    )


def _power(x: Array, y: Array, attributes: Mapping[str, Any]) -> Array:
    if y.size == 1 and y.item() in (2, 3):
        return x * x if y.item() == 2 else x * x * x
    return (c_library.power if y.dtype == np.float32 else c_library.power_of_doubles)(x, y)


@dataclass(frozen=True)
class _Swish:
    """Whether the quotient, which may be just above 1, is limited, a value tells where it is."""

    alpha: float

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        alpha = _F(kernel.attributes.get("alpha", self.alpha))
        near = np.linspace(16, 18, 1 << 14, dtype=np.float32) / alpha
        above = near[mlas.logistic(near if alpha == 1 else near * alpha) > 1]
        ((name, (_, shape)),) = kernel.inputs.items()
        if above.size and (kernel.run({name: np.full(shape, above[0])})[0] == above[0]).all():
            yield Rule(f"{_QUOTIENT}, at most 1", {"limited": True})
        else:
            yield Rule(_QUOTIENT)

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        (x,) = kernel.values(inputs)
        alpha = kernel.attributes.get("alpha", self.alpha)
        return [quick_gelu(x, alpha, _ONE if facts.get("limited") else _LARGEST)]


_QUOTIENT = "a quotient of polynomials with fused multiply-add"
_POLYNOMIAL = "a polynomial with fused multiply-add"
_LIBRARY = ("tan", "sinh", "cosh", "asinh", "acosh", "atanh")
_VECTORS = ("log", "sin", "cos", "asin", "acos", "atan")
REPLAYS = {"Where": _Where(), **of_floats({
    "Exp": _plain(_POLYNOMIAL, mlas.exp),
    "Erf": _plain(_POLYNOMIAL, mlas.erf),
    "Tanh": _plain(_QUOTIENT, mlas.tanh),
    "Sigmoid": _plain(_QUOTIENT, mlas.logistic),
    "Gelu": Elementwise(
        "by erf or tanh, as the node says",
        lambda x, attributes: gelu_by_tanh(x)
        if attributes.get("approximate") == "tanh" else gelu(x),
    ),
    "com.microsoft:Gelu": _plain(_POLYNOMIAL, gelu),
    "com.microsoft:BiasGelu": Elementwise(_POLYNOMIAL, lambda x, b, _: gelu(x + b)),
    "com.microsoft:FastGelu": Elementwise(
        _QUOTIENT,
        lambda x, *rest: gelu_by_tanh(
            x if len(rest) < 2 or rest[0] is None else x + rest[0]
        ),
    ),
    "com.microsoft:QuickGelu": _Swish(1.702),
    "Swish": _Swish(1),
    "Softsign": _plain("a product with the reciprocal", softsign),
    "Pow": Elementwise("squares and cubes by products, others by the C library", _power),
    "Range": _Range(),
    "Relu": _plain("0 below 0", relu),
    "Clip": Elementwise("limits outside them", clip),
    "Max": _Extremes(np.greater, -1),
    "Min": _Extremes(np.less, 1),
    "Elu": _composed(elu),
    "Selu": _composed(selu),
    "Celu": _composed(celu),
    "Softplus": _composed(softplus),
    "Mish": _composed(mish),
    **{name.capitalize(): _plain("the C library's", getattr(c_library, name)) for name in _LIBRARY},
    **{name.capitalize(): _vectors(name) for name in _VECTORS},
})}  # fmt: skip
