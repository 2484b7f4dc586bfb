"""Element-wise functions of one tensor: Exp, Log, Sqrt, Sin, Erf and so on."""

from collections.abc import Callable, Sequence

import numpy as np

from tracer.interpreter.numeric import compiled_elementwise
from tracer.interpreter.numeric.elementwise import Compute, apply, apply_float
from tracer.interpreter.registry import operator
from tracer.support.types import Array

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
    """Returns an operator of one input; `consumed_inputs` is a hint that opset 6 dropped."""

    def function(X: Array, *, consumed_inputs: Sequence[int] | None = None) -> Array:
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


# float32: x P(x^2)/Q(x^2) up to 4, fitted to math.erf (6 units in the last place). Highest power
# first.
_SINGLE = (
    (1.98673998e-06, 2.84566065e-4, 3.88343334e-3, 5.31020138e-2, 1.93547394e-1, 1.12837914),
    (3.7419745e-05, 1.1855894e-3, 1.5207431e-2, 1.15350928e-1, 5.04859468e-1, 1.0),
)


def erf_into(x: Array, out: Array) -> None:
    """Writes the error function of float32 or float64 `x` to `out`."""
    if x.dtype.itemsize > 4:
        from scipy import special  # 0.35 s, and few models compute in float64

        special.erf(x, out=out)
        return
    near = np.clip(x, -4, 4)
    np.multiply(near, _ratio(_SINGLE, near * near), out=out)
    np.clip(out, -1, 1, out=out)


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
