"""RNN, LSTM and GRU: products of inputs and of states, then gates one element after the other.

Their source is onnxruntime's core/providers/cpu/rnn: the state's product is added to the input's,
as a bias would be; biases of input and state are added to each other first, and RNN adds them
before the state's product.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from onnx import helper

from tracer.arithmetic import c_library, mlas
from tracer.arithmetic.kernel import Facts, Inputs, Kernel, NotKnown, Rule, reveal, share_of_equal
from tracer.arithmetic.replays import replay_of
from tracer.arithmetic.replays.elementwise import relu
from tracer.arithmetic.sums import Operands, orders_of_products, products, replay_regions
from tracer.support.types import Array

Function = Callable[[Array], Array]
_TANH = (
    (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
     1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03),
    (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03),
)  # fmt: skip
"""Numerator and denominator of tanh(x) / x in x², without fused multiply-add."""
_HALF = np.float32(0.5)


def _tanh_of_gru(x: Array) -> Array:
    x = np.clip(x, np.float32(-10), np.float32(10))
    over, under = (np.polyval(np.array(each, np.float32), x * x) for each in _TANH)
    return x * over / under


def _sigmoid_of_rnn(x: Array) -> Array:
    one, power = np.float32(1), c_library.exp(-np.abs(x))
    return np.where(x >= 0, one, power) / (one + power)


def _hard_sigmoid(x: Array) -> Array:
    least: Array = np.fmax(np.float32(0.2) * x + _HALF, np.float32(0))  # in place of NaN, too
    return np.minimum(least, np.float32(1))


_FUNCTIONS: dict[str, Function] = {
    "sigmoid": mlas.logistic, "tanh": mlas.tanh, "relu": relu, "hardsigmoid": _hard_sigmoid,
    "softsign": lambda x: x / (np.float32(1) + np.abs(x)),
}  # fmt: skip
_OF_GRU = {
    mlas.logistic: lambda x: (_tanh_of_gru(_HALF * x) + np.float32(1)) * _HALF,
    mlas.tanh: _tanh_of_gru,
}
"""Functions of the reset gate and of the output, in place of those of the update gate."""
_OF_RNN: dict[Function, Function] = {
    mlas.logistic: _sigmoid_of_rnn,
    mlas.tanh: lambda x: np.float32(2) * _sigmoid_of_rnn(x + x) - np.float32(1),
    relu: lambda x: relu(np.where(np.isnan(x), np.float32(0), x)),
}
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_UNKNOWN = ("activation_alpha", "activation_beta", "input_forget", "layout")
"""Attributes whose effect is not known."""
_MOST = np.finfo(np.float32).max


@dataclass(frozen=True)
class _Layer:
    """One direction: W and R (gates x H rows), both biases (2 x gates x H), clip, functions."""

    w: Array
    r: Array
    both: Array | None
    clip: np.float32
    functions: Sequence[Function]
    facts: Facts
    is_linear: bool
    """Whether GRU multiplies the state by R before it resets parts of it."""

    def input_sums(self, x: Array) -> Array:
        """Returns the products of inputs (T, N, I) and W: (T, N, gates x H)."""
        sums = _product(self.facts["input"], x.reshape(-1, x.shape[-1]), self.w.T)
        return sums.reshape(*x.shape[:2], -1)

    def with_state(self, state: Array, rows: slice, sums: Array) -> Array:
        """Returns `sums` with the product of a state (N, H) and rows of R added."""
        return _product(self.facts["state"], state, self.r[rows].T, sums)

    def limit(self, sums: Array, bias: Array | None) -> Array:
        """Returns sums with their bias, limited to ± `clip`; NaN becomes `clip`."""
        total = sums if bias is None else sums + bias
        limited: Array = np.maximum(np.fmin(total, self.clip), -self.clip)
        return limited

    def bias(self, gate: int) -> Array | None:
        """Returns the biases of input and state of a gate, added."""
        pair = self.bias_pair(gate)
        return None if pair is None else pair[0] + pair[1]

    def bias_pair(self, gate: int) -> tuple[Array, Array] | None:
        """Returns the bias of the input and that of the state of a gate, (H) each."""
        if self.both is None:
            return None
        size, half = self.r.shape[1], len(self.r)
        rows = slice(gate * size, (gate + 1) * size)
        return self.both[:half][rows], self.both[half:][rows]


Cell = Callable[[_Layer, Array, Sequence[Array]], tuple[Array, ...]]
"""From the input's sums (N, gates x H) and the states to the next states, (N, H) each."""


def _rnn(layer: _Layer, sums: Array, states: Sequence[Array]) -> tuple[Array, ...]:
    (hidden,), (function,), bias = states, layer.functions, layer.bias(0)
    total = layer.with_state(hidden, slice(None), sums if bias is None else sums + bias)
    if layer.clip < _MOST:
        total = np.clip(total, -layer.clip, layer.clip)
    return (_OF_RNN.get(function, function)(total),)


def _lstm(layer: _Layer, sums: Array, states: Sequence[Array]) -> tuple[Array, ...]:
    hidden, cell = states
    parts = np.split(layer.with_state(hidden, slice(None), sums), 4, 1)
    enter, leave, keep, new = (layer.limit(p, layer.bias(n)) for n, p in enumerate(parts))
    gate, inner, outer = layer.functions
    cell = cell * gate(keep) + gate(enter) * inner(new)
    return outer(cell) * gate(leave), cell


def _gru(layer: _Layer, sums: Array, states: Sequence[Array]) -> tuple[Array, ...]:
    (hidden,) = states
    size = hidden.shape[1]
    first, last = slice(0, 2 * size), slice(2 * size, None)
    keep, reset = np.split(layer.with_state(hidden, first, sums[:, first]), 2, 1)
    gate, inner = layer.functions
    inner, opening = _OF_GRU.get(inner, inner), _OF_GRU.get(gate, gate)
    share, bias = opening(layer.limit(reset, layer.bias(1))), layer.bias(2)
    if layer.is_linear:
        bias, own = layer.bias_pair(2) or (None, np.zeros(size, np.float32))
        state = layer.with_state(hidden, last, np.tile(own, (len(hidden), 1)))
        new = sums[:, last] + share * state
    else:
        new = layer.with_state(share * hidden, last, sums[:, last])
    new, kept = inner(layer.limit(new, bias)), gate(layer.limit(keep, layer.bias(0)))
    return ((np.float32(1) - kept) * new + kept * hidden,)


def _product(facts: Facts, a: Array, b: Array, sums: Array | None = None) -> Array:
    if "cells" not in facts:
        return products(facts, a, b, sums)
    operands = Operands(a[None], b[None], None if sums is None else sums[None])
    product: Array = replay_regions(facts, operands)[0]
    return product


def _orders_of_columns(kernel: Kernel, rows: int, weights: Array, sums: bool) -> Iterator[Rule]:
    """Yields the rule of a product of an RNN, whose last columns may have orders of their own.

    A Gemm of its shape, whose weights are not packed either, is the same product.
    """
    if kernel.op_type == "RNN":
        columns, terms = weights.shape[1:]
        shapes = [(rows, terms), (columns, terms), (rows, columns)][: 2 + sums]
        inputs = {name: (np.dtype(np.float32), s) for name, s in zip("awc", shapes, strict=False)}
        node = helper.make_node("Gemm", [*inputs], ["y"], transB=1)
        yield reveal(replay_of("", "Gemm"), Kernel(node, inputs, {}, {"": 17}, kernel.threads))


@dataclass(frozen=True)
class _Recurrent:
    """An operator: its cell, the number of its states, and its functions where none are named."""

    cell: Cell
    states: int
    functions: tuple[str, ...]

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        w, r = kernel.constant(1), kernel.constant(2)
        if w is None or r is None or w.dtype != np.float32:
            raise NotKnown("weights that the graph computes, or of this type, are not known")
        unknown = [name for name in _UNKNOWN if kernel.attributes.get(name)]
        if unknown := unknown + ["peepholes"] * bool(kernel.shape(7)):
            raise NotKnown(f"a layer with {' and '.join(unknown)} is not known")
        states = list(orders_of_products(r.shape[-1], True, False))
        without_state = kernel.with_constants({2: np.zeros_like(r)})
        steps, batch = (kernel.shape(0) or ())[:2]
        inputs = orders_of_products(w.shape[-1], False, False)
        for rule in chain(inputs, _orders_of_columns(kernel, steps * batch, w, False)):
            facts = {"input": rule.facts, "state": states[0].facts}
            if share_of_equal(self, without_state, Rule(rule.text, facts)) == 1:
                for state in chain(states, _orders_of_columns(kernel, batch, r, True)):
                    text = f"inputs: {rule.text}; states: {state.text}; then gates"
                    yield Rule(text, {"input": rule.facts, "state": state.facts})
                return

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        x, w, r, b, given, *begin = [*kernel.values(inputs), *[None] * 4][: 5 + self.states]
        lengths = np.full(x.shape[1], len(x)) if given is None else given.astype(np.int64)
        found = []
        direction = kernel.attributes.get("direction", "forward")
        for place, is_reversed in enumerate(_DIRECTIONS[direction]):
            layer = _Layer(
                w[place], r[place], None if b is None else b[place],
                np.float32(kernel.attributes.get("clip", _MOST)),
                self._functions(kernel, place), facts,
                bool(kernel.attributes.get("linear_before_reset")),
            )  # fmt: skip
            zeros = np.zeros((x.shape[1], r.shape[-1]), np.float32)
            states = [zeros if each is None else each[place] for each in begin]
            found.append(_run(layer, self.cell, x, lengths, states, is_reversed))
        y = np.stack([each[0] for each in found], 1)
        last = [np.stack(ends) for ends in zip(*(each[1] for each in found), strict=True)]
        pairs = zip(kernel.node.output, (y, *last), strict=False)
        return [value for name, value in pairs if name]

    def _functions(self, kernel: Kernel, place: int) -> list[Function]:
        count = len(self.functions)
        named = [each.decode().lower() for each in kernel.attributes.get("activations", ())]
        names = named[place * count : (place + 1) * count] or self.functions
        if not set(names) <= set(_FUNCTIONS):
            raise NotKnown(f"the functions {', '.join(names)} are not known")
        return [_FUNCTIONS[name] for name in names]


def _run(
    layer: _Layer, cell: Cell, x: Array, lengths: Array, states: list[Array], is_reversed: bool
) -> tuple[Array, list[Array]]:
    """Returns the outputs (T, N, H), 0 behind the end of a sequence, and the last states."""
    steps = np.arange(len(x))[:, None]
    active = steps < lengths
    order = np.where(active & is_reversed, lengths - 1 - steps, steps)[..., None]
    sums = layer.input_sums(np.take_along_axis(x, order, 0))
    y = np.zeros((*x.shape[:2], states[0].shape[1]), np.float32)
    for step in range(int(lengths.max(initial=0))):
        new, is_active = cell(layer, sums[step], states), active[step][:, None]
        states = [np.where(is_active, *pair) for pair in zip(new, states, strict=True)]
        y[step] = np.where(is_active, new[0], np.float32(0))
    return np.take_along_axis(y, order, 0), states


REPLAYS = {
    "RNN": _Recurrent(_rnn, 1, ("tanh",)),
    "LSTM": _Recurrent(_lstm, 2, ("sigmoid", "tanh", "tanh")),
    "GRU": _Recurrent(_gru, 1, ("sigmoid", "tanh")),
}
