"""RNN, GRU and LSTM: their gates, and their run over time by directions, layouts and lengths."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric.tensors import flat
from tracer.interpreter.operators import Floats, operator, parameters_of
from tracer.support.types import Array

Activation = Callable[[Array], Array]
State = tuple[Array, ...]
Cell = Callable[[Array, State], State]
"""One step: maps the input's share of the gates and the state to the next state, h first."""
Share = Callable[[Array], Array]
"""The input's share of the gates (P, G), from elements (P, I) of any steps."""
Biases = tuple[Array, Array]
"""The biases of the input and of the state."""
TimesGates = Callable[[Array, slice], Array]
"""A state (N, H) times the recurrence of some gates."""
Operands = tuple[Array, Array, Array, Array | None]
"""X, W (D, gates * H, I), R (D, gates * H, H) and B (D, 2 * gates * H) of a node."""
_ALL = slice(None)
"""All gates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentSettings:
    """The attributes that RNN, GRU and LSTM share."""

    activation_alpha: Floats = None
    activation_beta: Floats = None
    activations: Sequence[str] | None = None
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    layout: int = 0
    output_sequence: int = 0

    def functions(self) -> list[Activation]:
        """Returns the activations by name; alphas and betas are assigned in order."""
        alphas = iter(self.activation_alpha or ())
        betas = iter(self.activation_beta or ())
        functions = []
        for name in self.activations or ():
            if name.lower() not in _ACTIVATIONS:
                raise ModelError(f"activation '{name}' is not one of {', '.join(_ACTIVATIONS)}")
            alpha, beta, function = _ACTIVATIONS[name.lower()]
            if name.lower() in _TAKES_ALPHA:
                alpha = next(alphas, alpha)
            if name.lower() in _TAKES_BETA:
                beta = next(betas, beta)
            functions.append(_clipped(function, alpha, beta, self.clip))
        return functions


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


@operator("RNN")
@parameters_of(RecurrentSettings)
def rnn(
    X: Array, W: Array, R: Array, B: Array | None = None, sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    **attributes: Any,
) -> tuple[Array, ...]:  # fmt: skip
    """h' = f(x W^T + h R^T + b)."""
    settings, cells = RecurrentSettings(**attributes), [_rnn_cell] * len(R)
    return _run((X, W, R, B), sequence_lens, [initial_h], settings, cells, ["Tanh"])


@operator("GRU")
@parameters_of(RecurrentSettings)
def gru(
    X: Array, W: Array, R: Array, B: Array | None = None, sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *, linear_before_reset: int = 0, **attributes: Any,
) -> tuple[Array, ...]:  # fmt: skip
    """h' = (1 - z) g + z h, with gates z, r, and g from the reset state."""
    settings, names = RecurrentSettings(**attributes), ["Sigmoid", "Tanh"]
    cells = [partial(_gru_cell, linear=bool(linear_before_reset))] * len(R)
    return _run((X, W, R, B), sequence_lens, [initial_h], settings, cells, names)


@operator("LSTM")
@parameters_of(RecurrentSettings)
def lstm(
    X: Array, W: Array, R: Array, B: Array | None = None, sequence_lens: Array | None = None,
    initial_h: Array | None = None, initial_c: Array | None = None, P: Array | None = None,
    *, input_forget: int = 0, **attributes: Any,
) -> tuple[Array, ...]:  # fmt: skip
    """c' = f c + i g, h' = o tanh(c'), with optional peepholes P."""
    settings = RecurrentSettings(**attributes)
    states = [initial_h, initial_c]
    return run_lstm((X, W, R, B), sequence_lens, states, settings, P, input_forget)


def run_lstm(
    operands: Operands, lengths: Array | None, initial: Sequence[Array | None],
    settings: RecurrentSettings, peepholes: Array | None, input_forget: int,
    read: Share = np.asarray, clears_ended: bool = False,
) -> tuple[Array, ...]:  # fmt: skip
    """Runs an LSTM; `read` and `clears_ended` are explained at `gate_products` and `_run_cells`."""
    x, _, r, _ = operands
    peeps = np.zeros((len(r), 3 * r.shape[-1]), x.dtype) if peepholes is None else peepholes
    cells = [partial(_lstm_cell, peeps=peeps[d], coupled=bool(input_forget)) for d in range(len(r))]
    names = ["Sigmoid", "Tanh", "Tanh"]
    return _run(operands, lengths, initial, settings, cells, names, read, clears_ended)


def _rnn_cell(times: TimesGates, bias: Biases, functions: Sequence[Activation]) -> Cell:
    total = bias[0] + bias[1]

    def cell(share: Array, state: State) -> State:
        return (functions[0](share + times(state[0], _ALL) + total),)

    return cell


def _gru_cell(
    times: TimesGates, bias: Biases, functions: Sequence[Activation], linear: bool
) -> Cell:
    hidden = len(bias[0]) // 3
    gates, last = slice(0, 2 * hidden), slice(2 * hidden, None)
    total = (bias[0] + bias[1])[gates]

    def cell(share: Array, state: State) -> State:
        h = state[0]
        z, reset = np.split(functions[0](share[:, gates] + times(h, gates) + total), 2, axis=1)
        if linear:
            past = reset * (times(h, last) + bias[1][last])
        else:
            past = times(reset * h, last) + bias[1][last]
        new = functions[1](share[:, last] + past + bias[0][last])
        return ((1 - z) * new + z * h,)

    return cell


def _lstm_cell(
    times: TimesGates, bias: Biases, functions: Sequence[Activation], peeps: Array, coupled: bool
) -> Cell:
    """Returns a step of an LSTM with states `times` recurrence, for shares of the input (N, 4H)."""
    total = bias[0] + bias[1]
    peep_i, peep_o, peep_f = np.split(peeps, 3)
    gate, squash, output = functions

    def cell(share: Array, state: State) -> State:
        h, c = state
        i, o, f, g = np.split(share + times(h, _ALL) + total, 4, axis=1)
        i = gate(i + peep_i * c)
        f = 1 - i if coupled else gate(f + peep_f * c)
        c = f * c + i * squash(g)
        return gate(o + peep_o * c) * output(c), c

    return cell


def _run(
    operands: Operands, lengths: Array | None, initial: Sequence[Array | None],
    settings: RecurrentSettings,
    cells: Sequence[Callable[[TimesGates, Biases, list[Activation]], Cell]],
    names: Sequence[str], read: Share = np.asarray, clears_ended: bool = False,
) -> tuple[Array, ...]:  # fmt: skip
    """Runs one of `cells` per direction.

    `names` are the activations of a cell where the node has none. One set of activations serves
    both directions if there is no second set.
    """
    x, w, r, b = operands
    each, size = len(names), r.shape[1]
    names = (list(settings.activations or names) * len(w))[: each * len(w)]
    biases = np.zeros((len(r), 2 * size), r.dtype) if b is None else b
    functions = replace(settings, activations=names).functions()
    products, ready = gate_products(w, r, read), []
    for d, cell in enumerate(cells):
        bias = biases[d][:size], biases[d][size:]
        share, times = partial(products.of_input, d), partial(products.of_state, d)
        ready.append((share, cell(times, bias, functions[each * d : each * (d + 1)])))
    return _run_cells(x, lengths, initial, r.shape[-1], settings, ready, clears_ended)


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


def _clipped(
    function: Callable[[Array, float, float], Array], alpha: float, beta: float, clip: float | None
) -> Activation:
    if clip is None:
        return lambda x: function(x, alpha, beta)
    return lambda x: function(np.clip(x, -clip, clip), alpha, beta)


def _run_cells(
    x: Array, lengths: Array | None, initial: Sequence[Array | None], hidden: int,
    settings: RecurrentSettings, cells: Sequence[tuple[Share, Cell]], clears_ended: bool,
) -> tuple[Array, ...]:  # fmt: skip
    """Returns Y and the last states, for one cell and share of the input per direction.

    Layout 0 has x as (L, N, I), Y as (L, D, N, H) and states as (D, N, H); layout 1 has the
    batch first. Beyond the length of a sequence Y is 0 and the state does not change. A step of the
    backward direction has the last element of each sequence, then the one before, and so on.

    `clears_ended` lets cells read zeros for sequences that ended before the last step, as Y has
    there. Only a cell that looks at the whole batch, as one that takes its range, gives other
    results then.
    """
    if settings.layout:
        x = np.swapaxes(x, 0, 1)
        initial = [None if v is None else np.swapaxes(v, 0, 1) for v in initial]
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    directions["foward"] = directions["forward"]  # the spelling of GRU-1's default
    backwards = directions.get(settings.direction)
    if backwards is None or len(backwards) != len(cells):
        raise ModelError(
            f"direction '{settings.direction}' with weights for {len(cells)} directions"
        )
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
            if clears_ended:
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
