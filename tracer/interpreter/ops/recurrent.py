"""RNN, GRU and LSTM: their gates; `numeric.recurrent` runs the steps."""

from collections.abc import Sequence

import numpy as np

from tracer.interpreter.numeric.recurrent import (
    Activation,
    Cell,
    RecurrentSettings,
    State,
    activations,
    run,
)
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_Floats = Sequence[float] | None
_Names = Sequence[str] | None


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
    settings = _settings(W, activations or ["Tanh"], activation_alpha, activation_beta, clip,
                         direction, layout, 1)  # fmt: skip
    cells = [
        (W[d], _rnn_cell(R[d], bias, functions))
        for d, (bias, functions) in enumerate(_directions(R, B, 1, settings, 1))
    ]
    return run(X, sequence_lens, [initial_h], R.shape[-1], settings, cells)


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
    settings = _settings(W, activations or ["Sigmoid", "Tanh"], activation_alpha,
                         activation_beta, clip, direction, layout, 2)  # fmt: skip
    cells = [
        (W[d], _gru_cell(R[d], bias, functions, bool(linear_before_reset)))
        for d, (bias, functions) in enumerate(_directions(R, B, 3, settings, 2))
    ]
    return run(X, sequence_lens, [initial_h], R.shape[-1], settings, cells)


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
    settings = _settings(W, activations or ["Sigmoid", "Tanh", "Tanh"], activation_alpha,
                         activation_beta, clip, direction, layout, 3)  # fmt: skip
    hidden = R.shape[-1]
    peeps = np.zeros((len(W), 3 * hidden), X.dtype) if P is None else P
    cells = [
        (W[d], _lstm_cell(R[d], bias, peeps[d], functions, bool(input_forget)))
        for d, (bias, functions) in enumerate(_directions(R, B, 4, settings, 3))
    ]
    return run(X, sequence_lens, [initial_h, initial_c], hidden, settings, cells)


def _rnn_cell(r: Array, bias: tuple[Array, Array], functions: Sequence[Activation]) -> Cell:
    total = bias[0] + bias[1]

    def cell(share: Array, state: State) -> State:
        return (functions[0](share + state[0] @ r.T + total),)

    return cell


def _gru_cell(
    r: Array, bias: tuple[Array, Array], functions: Sequence[Activation], linear: bool
) -> Cell:
    hidden = r.shape[-1]
    gates, last = slice(0, 2 * hidden), slice(2 * hidden, None)
    total = (bias[0] + bias[1])[gates]

    def cell(share: Array, state: State) -> State:
        h = state[0]
        z, reset = np.split(functions[0](share[:, gates] + h @ r[gates].T + total), 2, axis=1)
        if linear:
            past = reset * (h @ r[last].T + bias[1][last])
        else:
            past = (reset * h) @ r[last].T + bias[1][last]
        new = functions[1](share[:, last] + past + bias[0][last])
        return ((1 - z) * new + z * h,)

    return cell


def _lstm_cell(
    r: Array,
    bias: tuple[Array, Array],
    peeps: Array,
    functions: Sequence[Activation],
    coupled: bool,
) -> Cell:
    total = bias[0] + bias[1]
    peep_i, peep_o, peep_f = np.split(peeps, 3)
    gate, squash, output = functions

    def cell(share: Array, state: State) -> State:
        h, c = state
        i, o, f, g = np.split(share + h @ r.T + total, 4, axis=1)
        i = gate(i + peep_i * c)
        f = 1 - i if coupled else gate(f + peep_f * c)
        c = f * c + i * squash(g)
        return gate(o + peep_o * c) * output(c), c

    return cell


def _settings(
    w: Array,
    names: Sequence[str],
    alphas: _Floats,
    betas: _Floats,
    clip: float | None,
    direction: str,
    layout: int,
    each: int,
) -> RecurrentSettings:
    """Repeats one set of activations for both directions if there is no second set."""
    count = each * len(w)
    repeated = (list(names) * len(w))[:count] if len(names) < count else list(names)[:count]
    return RecurrentSettings(repeated, alphas or (), betas or (), clip, direction, layout)


def _directions(
    r: Array, b: Array | None, gates: int, settings: RecurrentSettings, each: int
) -> list[tuple[tuple[Array, Array], list[Activation]]]:
    """Returns per direction the biases of input and state, and the activations."""
    size = gates * r.shape[-1]
    biases = np.zeros((len(r), 2 * size), r.dtype) if b is None else b
    functions = activations(settings)
    return [
        ((biases[d][:size], biases[d][size:]), functions[each * d : each * (d + 1)])
        for d in range(len(r))
    ]
