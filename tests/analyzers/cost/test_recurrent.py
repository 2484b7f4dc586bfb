"""Recurrent layers against their equations, evaluated with numbers that count."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime import InferenceSession

from tests.analyzers.cost import counted
from tests.analyzers.cost.counted import of
from tests.analyzers.cost.single import run

small = st.integers(1, 3)


def sigmoid(x):
    return 1 / (1 + of(math.exp, -x))


def tanh(x):
    return of(math.tanh, x)


def dot(row, vector):
    return counted.total(a * b for a, b in zip(row, vector, strict=True))


def gate(weights, recurrence, bias, x, h):
    """W x + Wb + R h + Rb."""
    return (dot(weights, x) + bias[0]) + (dot(recurrence, h) + bias[1])


def rnn(w, r, b, x, h, c, units):
    return [tanh(gate(w[u], r[u], b[u], x, h)) for u in range(units)], c


def gru(w, r, b, x, h, c, units):
    def part(g, u, state):
        return gate(w[g * units + u], r[g * units + u], b[g * units + u], x, state)

    z, reset = ([sigmoid(part(g, u, h)) for u in range(units)] for g in (0, 1))
    kept = [a * b for a, b in zip(reset, h, strict=True)]
    new = [tanh(part(2, u, kept)) for u in range(units)]
    return [(1 - z[u]) * new[u] + z[u] * h[u] for u in range(units)], c


def lstm(w, r, b, x, h, c, units):
    def part(g, u):
        return gate(w[g * units + u], r[g * units + u], b[g * units + u], x, h)

    i, o, f = ([sigmoid(part(g, u)) for u in range(units)] for g in (0, 1, 2))
    new = [tanh(part(3, u)) for u in range(units)]
    c = [f[u] * c[u] + i[u] * new[u] for u in range(units)]
    return [o[u] * tanh(c[u]) for u in range(units)], c


CELLS = {"RNN": (rnn, 1), "GRU": (gru, 3), "LSTM": (lstm, 4)}


@pytest.mark.parametrize("name", CELLS)
@given(steps=small, batch=small, features=small, units=small)
@settings(max_examples=8, deadline=None)
def test_a_layer_does_what_its_equations_do(name, steps, batch, features, units):
    step, gates = CELLS[name]
    random = np.random.default_rng(1)
    x = random.normal(size=(steps, batch, features)).astype(np.float32)
    w = random.normal(size=(1, gates * units, features)).astype(np.float32)
    r = random.normal(size=(1, gates * units, units)).astype(np.float32)
    b = random.normal(size=(1, 2 * gates * units)).astype(np.float32)
    expected, row, _ = run(name, [x, w, r, b], hidden_size=units)
    bias = counted.array(b[0].reshape(2, -1).T)
    weights, recurrence, inputs = map(counted.array, (w[0], r[0], x))
    with counted.tally() as tally:
        for n in range(batch):
            h = c = [counted.Number(0)] * units
            for t in range(steps):
                h, c = step(weights, recurrence, bias, inputs[t, n], h, c, units)
                result = [value.value for value in h]
                np.testing.assert_allclose(result, expected[t, 0, n], rtol=1e-4, atol=1e-5)
    assert row["macs"] == steps * batch * gates * units * (features + units)
    assert (row["adds"], row["muls"]) == (tally["adds"], tally["muls"])
    assert row["flops"] == tally.total()


def test_two_directions_are_twice_the_work():
    x = np.ones((2, 3, 4), np.float32)
    rows = []
    for directions, name in ((1, "forward"), (2, "bidirectional")):
        w, r = np.ones((directions, 20, 4), np.float32), np.ones((directions, 20, 5), np.float32)
        b, p = np.ones((directions, 40), np.float32), np.ones((directions, 15), np.float32)
        state = np.ones((directions, 3, 5), np.float32)
        lengths = np.full(3, 2, np.int32)
        inputs = [x, w, r, b, lengths, state, state, p]
        onnxruntime = lambda proto: InferenceSession(proto.SerializeToString())  # noqa: E731
        options = {"hidden_size": 5, "direction": name, "evaluator": onnxruntime}
        rows.append(run("LSTM", inputs, **options)[1])
    forward, both = rows
    for column in ("macs", "adds", "muls", "flops"):
        assert both[column] == 2 * forward[column]
    peepholes = 2 * 3 * 5 * 3
    assert forward["muls"] == forward["macs"] + 2 * 3 * 5 * 3 + peepholes
