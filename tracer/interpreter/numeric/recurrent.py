"""Runs RNN, GRU and LSTM cells over time: directions, layouts, sequence lengths."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric.axes import flat
from tracer.support.types import Array

Activation = Callable[[Array], Array]
State = tuple[Array, ...]
Cell = Callable[[Array, State], State]
"""One step: maps the input's share of the gates and the state to the next state, h first."""

Share = Callable[[Array], Array]
"""The input's share of the gates (P, G), from elements (P, I) of any steps."""


@dataclass(frozen=True, slots=True)
class GateProducts:
    """The products of a node: of its input (P, I) or state (N, H) and the weights of a direction.

    `of_state` computes some of the gates, a slice.
    """

    of_input: Callable[[int, Array], Array]
    of_state: Callable[[int, Array, slice], Array]


_REPLACEMENT: ContextVar[GateProducts | None] = ContextVar("gate products", default=None)


@contextmanager
def replaced(products: GateProducts) -> Iterator[None]:
    """Lets `products` compute what this thread's nodes multiply: a seam for other arithmetic."""
    token = _REPLACEMENT.set(products)
    try:
        yield
    finally:
        _REPLACEMENT.reset(token)


def gate_products(w: Array, r: Array, read: Share = np.asarray) -> GateProducts:
    """The products of weights (D, G, I) and (D, G, H) with what `read` makes of a factor."""
    return _REPLACEMENT.get() or GateProducts(
        lambda d, x: read(x) @ w[d].T, lambda d, h, gates: read(h) @ r[d][gates].T
    )


_ACTIVATIONS: dict[str, tuple[float, float, Callable[[Array, float, float], Array]]] = {
    # name: default alpha, default beta, function
    "affine": (1.0, 0.0, lambda x, a, b: a * x + b),
    "elu": (1.0, 0.0, lambda x, a, b: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0)))),
    "hardsigmoid": (0.2, 0.5, lambda x, a, b: np.clip(a * x + b, 0, 1)),
    "leakyrelu": (0.01, 0.0, lambda x, a, b: np.where(x >= 0, x, a * x)),
    "relu": (0.0, 0.0, lambda x, a, b: np.maximum(x, 0)),
    "scaledtanh": (1.0, 1.0, lambda x, a, b: a * np.tanh(b * x)),
    "sigmoid": (0.0, 0.0, lambda x, a, b: 1 / (1 + np.exp(-x))),
    "softplus": (0.0, 0.0, lambda x, a, b: np.logaddexp(x, 0)),
    "softsign": (0.0, 0.0, lambda x, a, b: x / (1 + np.absolute(x))),
    "tanh": (0.0, 0.0, lambda x, a, b: np.tanh(x)),
    "thresholdedrelu": (1.0, 0.0, lambda x, a, b: np.where(x > a, x, 0)),
}
_TAKES_ALPHA = {"affine", "elu", "hardsigmoid", "leakyrelu", "scaledtanh", "thresholdedrelu"}
_TAKES_BETA = {"affine", "hardsigmoid", "scaledtanh"}


@dataclass(frozen=True, slots=True)
class RecurrentSettings:
    """The attributes that RNN, GRU and LSTM share."""

    activations: Sequence[str]
    alphas: Sequence[float]
    betas: Sequence[float]
    clip: float | None
    direction: str
    layout: int
    clears_ended: bool = False
    """Whether cells read zeros for sequences that ended before the last step, as Y has there. Only
    a cell that looks at the whole batch, as one that takes its range, gives other results then."""


def activations(settings: RecurrentSettings) -> list[Activation]:
    """Returns the activations by name; alphas and betas are assigned in order."""
    alphas, betas = iter(settings.alphas), iter(settings.betas)
    functions = []
    for name in settings.activations:
        if name.lower() not in _ACTIVATIONS:
            raise ModelError(f"activation '{name}' is not one of {', '.join(_ACTIVATIONS)}")
        alpha, beta, function = _ACTIVATIONS[name.lower()]
        if name.lower() in _TAKES_ALPHA:
            alpha = next(alphas, alpha)
        if name.lower() in _TAKES_BETA:
            beta = next(betas, beta)
        functions.append(_clipped(function, alpha, beta, settings.clip))
    return functions


def run(
    x: Array,
    lengths: Array | None,
    initial: Sequence[Array | None],
    hidden: int,
    settings: RecurrentSettings,
    cells: Sequence[tuple[Share, Cell]],
) -> tuple[Array, ...]:
    """Returns Y and the last states, for one cell and share of the input per direction.

    Layout 0 has x as (L, N, I), Y as (L, D, N, H) and states as (D, N, H); layout 1 has the
    batch first. Beyond the length of a sequence Y is 0 and the state does not change. A step of the
    backward direction has the last element of each sequence, then the one before, and so on.
    """
    if settings.layout:
        x = np.swapaxes(x, 0, 1)
        initial = [None if v is None else np.swapaxes(v, 0, 1) for v in initial]
    backwards = _directions(settings.direction, len(cells))
    steps, batch = x.shape[:2]
    counts = np.full(batch, steps) if lengths is None else lengths
    rows, places = np.arange(batch), np.arange(steps)[:, None]
    order = np.where(places < counts, counts - 1 - places, places)  # of each sequence, its own
    limits.allow((steps, len(cells), batch, hidden), x.dtype)
    every = np.zeros((steps, len(cells), batch, hidden), x.dtype)
    last = [np.zeros((len(cells), batch, hidden), x.dtype) for _ in initial]
    for number, ((share, cell), back) in enumerate(zip(cells, backwards, strict=True)):
        state: State = tuple(
            np.zeros((batch, hidden), x.dtype) if v is None else v[number] for v in initial
        )
        gates = share(flat(x, 0, 2))
        shares = gates.reshape(steps, batch, gates.shape[1])
        if back:
            shares = shares[order, rows]
        for step in range(steps):
            limits.in_force().clock()
            alive, read = (step < counts)[:, None], state
            if settings.clears_ended:
                read = tuple(np.where((step <= counts)[:, None], v, 0) for v in state)
            after = cell(shares[step], read)
            state = tuple(np.where(alive, new, old) for new, old in zip(after, state, strict=True))
            every[step, number] = np.where(alive, after[0], 0)
        if back:
            every[:, number] = every[order, number, rows]
        for final, value in zip(last, state, strict=True):
            final[number] = value
    if settings.layout:
        return every.transpose(2, 0, 1, 3), *(np.swapaxes(v, 0, 1) for v in last)
    return every, *last


def _directions(direction: str, count: int) -> list[bool]:
    """Whether each direction runs backwards."""
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    backwards["foward"] = backwards["forward"]  # the spelling of GRU-1's default
    if direction not in backwards or len(backwards[direction]) != count:
        raise ModelError(f"direction '{direction}' with weights for {count} directions")
    return backwards[direction]


def _clipped(
    function: Callable[[Array, float, float], Array], alpha: float, beta: float, clip: float | None
) -> Activation:
    if clip is None:
        return lambda x: function(x, alpha, beta)
    return lambda x: function(np.clip(x, -clip, clip), alpha, beta)
