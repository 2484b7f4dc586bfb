"""Functions of one tensor, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tracer.interpreter.numeric import compiled_elementwise
from tracer.interpreter.numeric.elementwise import Compute, apply, apply_float
from tracer.interpreter.registry import operator
from tracer.interpreter.values import Array

_SINCE_1 = {
    "Abs": np.absolute,
    "Ceil": np.ceil,
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": np.log,
    "Neg": np.negative,
    "Reciprocal": np.reciprocal,
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
}
_LATER = {
    "Acos": (7, np.arccos),
    "Acosh": (9, np.arccosh),
    "Asin": (7, np.arcsin),
    "Asinh": (9, np.arcsinh),
    "Atan": (7, np.arctan),
    "Atanh": (9, np.arctanh),
    "Cos": (7, np.cos),
    "Cosh": (9, np.cosh),
    "Round": (11, np.rint),
    "Sign": (9, np.sign),
    "Sin": (7, np.sin),
    "Sinh": (9, np.sinh),
    "Tan": (7, np.tan),
}


def unary(compute: Compute) -> Callable[..., Array]:
    """An operator of one input; `consumed_inputs` was a hint that opset 6 dropped."""

    def function(X: Array, *, consumed_inputs: Sequence[int] | None = None) -> Array:  # noqa: N803
        return apply(compute, X)

    return function


for _name, _compute in _SINCE_1.items():
    operator(_name)(unary(_compute))
for _name, (_since, _compute) in _LATER.items():
    operator(_name, since=_since)(unary(_compute))


@operator("Erf", since=9)
def erf(input: Array) -> Array:
    """The error function."""
    if input.dtype.kind in "iu":
        return apply(erf_into, input.astype(np.float64)).astype(input.dtype)
    if compiled_elementwise.suits(input):
        return compiled_elementwise.ratio(input, *_SINGLE, 4, 1)
    return apply_float(erf_into, input)


# float64: W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23
# (1969): x P(x^2)/Q(x^2) up to 0.46875, then 1 - exp(-x^2) P(x)/Q(x) up to 4, beyond which the
# same with 1/x^2. float32: x P(x^2)/Q(x^2) up to 4, fitted to math.erf (6 units in the last
# place). Highest power first.
_NEAR = (
    (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2,
     3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
     2.84423683343917062e3),
)  # fmt: skip
_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
     1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
     1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3,
     1.23033935480374942e3),
)  # fmt: skip
_FAR = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
     1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242, 1.87295284992346047, 5.27905102951428412e-1,
     6.05183413124413191e-2, 2.33520497626869185e-3),
)  # fmt: skip
_SINGLE = (
    (1.98673998e-06, 2.84566065e-4, 3.88343334e-3, 5.31020138e-2, 1.93547394e-1, 1.12837914),
    (3.7419745e-05, 1.1855894e-3, 1.5207431e-2, 1.15350928e-1, 5.04859468e-1, 1.0),
)


def erf_into(x: Array, out: Array) -> None:
    """The error function of float32 or float64 `x`, written to `out`."""
    if x.dtype.itemsize > 4:
        _erf_double(x, out)
        return
    near = np.clip(x, -4, 4)
    np.multiply(near, _ratio(_SINGLE, near * near), out=out)
    np.clip(out, -1, 1, out=out)


def _erf_double(x: Array, out: Array) -> None:
    size = np.abs(x)
    middle = np.clip(size, 0.46875, 4.0)
    np.multiply(np.exp(-middle * middle), _ratio(_MIDDLE, middle), out=out)
    far = np.clip(size, 4.0, 6.0)
    inverse = 1 / (far * far)
    tail = inverse * _ratio(_FAR, inverse)
    np.copyto(out, np.exp(-far * far) * (1 / np.sqrt(np.pi) - tail) / far, where=size > 4)
    np.subtract(1, out, out=out)
    np.copyto(out, size, where=np.isnan(size))
    np.copysign(out, x, out=out)
    near = np.minimum(size, 0.46875)
    np.copyto(out, x * _ratio(_NEAR, near * near), where=size <= 0.46875)


def _ratio(coefficients: tuple[Sequence[float], Sequence[float]], x: Array) -> Array:
    top, bottom = (_polynomial(terms, x) for terms in coefficients)
    top /= bottom
    return top


def _polynomial(terms: Sequence[float], x: Array) -> Array:
    total = np.full_like(x, terms[0])
    for term in terms[1:]:
        total *= x
        total += term
    return total
