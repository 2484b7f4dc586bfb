"""RNN, GRU and LSTM: their gates; `numeric.recurrent` runs the steps."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tracer.interpreter.numeric import recurrent
from tracer.interpreter.numeric.recurrent import Activation, Cell, RecurrentSettings, State
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_Floats = Sequence[float] | None
_Names = Sequence[str] | None

Biases = tuple[Array, Array]
"""The biases of the input and of the state."""
TimesGates = Callable[[Array, slice], Array]
"""A state (N, H) times the recurrence of some gates."""
_ALL = slice(None)
"""All gates."""


@operator("RNN")
def rnn(
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activation_alpha: _Floats = None,
    activation_beta: _Floats = None,
    activations: _Names = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 0,
) -> tuple[Array, ...]:
    """h' = f(x W^T + h R^T + b)."""
    settings = RecurrentSettings(activations or ["Tanh"], activation_alpha or (),
                                 activation_beta or (), clip, direction, layout)  # fmt: skip
    return _run(X, W, R, B, sequence_lens, [initial_h], settings, [_rnn_cell] * len(R),
                gates=1, each=1)  # fmt: skip


@operator("GRU")
def gru(
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    activation_alpha: _Floats = None,
    activation_beta: _Floats = None,
    activations: _Names = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    output_sequence: int = 0,
) -> tuple[Array, ...]:
    """h' = (1 - z) g + z h, with gates z, r, and g from the reset state."""
    settings = RecurrentSettings(activations or ["Sigmoid", "Tanh"], activation_alpha or (),
                                 activation_beta or (), clip, direction, layout)  # fmt: skip
    cells = [partial(_gru_cell, linear=bool(linear_before_reset))] * len(R)
    return _run(X, W, R, B, sequence_lens, [initial_h], settings, cells,
                gates=3, each=2)  # fmt: skip


@operator("LSTM")
def lstm(
    X: Array,
    W: Array,
    R: Array,
    B: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    P: Array | None = None,
    *,
    activation_alpha: _Floats = None,
    activation_beta: _Floats = None,
    activations: _Names = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 0,
) -> tuple[Array, ...]:
    """c' = f c + i g, h' = o tanh(c'), with optional peepholes P."""
    settings = RecurrentSettings(activations or ["Sigmoid", "Tanh", "Tanh"],
                                 activation_alpha or (), activation_beta or (), clip, direction,
                                 layout)  # fmt: skip
    peeps = np.zeros((len(W), 3 * R.shape[-1]), X.dtype) if P is None else P
    cells = [partial(lstm_cell, peeps=peeps[d], coupled=bool(input_forget)) for d in range(len(R))]
    return _run(X, W, R, B, sequence_lens, [initial_h, initial_c], settings, cells,
                gates=4, each=3)  # fmt: skip


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


def lstm_cell(
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
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    lengths: Array | None,
    initial: Sequence[Array | None],
    settings: RecurrentSettings,
    cells: Sequence[Callable[[TimesGates, Biases, list[Activation]], Cell]],
    gates: int,
    each: int,
) -> tuple[Array, ...]:
    """Runs one of `cells` per direction; each has a number of gates and of activations.

    One set of activations serves both directions if there is no second set.
    """
    names = (list(settings.activations) * len(w))[: each * len(w)]
    size = gates * r.shape[-1]
    biases = np.zeros((len(r), 2 * size), r.dtype) if b is None else b
    functions = recurrent.activations(replace(settings, activations=names))
    products, ready = recurrent.gate_products(w, r), []
    for d, cell in enumerate(cells):
        bias = biases[d][:size], biases[d][size:]
        share, times = partial(products.of_input, d), partial(products.of_state, d)
        ready.append((share, cell(times, bias, functions[each * d : each * (d + 1)])))
    return recurrent.run(x, lengths, initial, r.shape[-1], settings, ready)
