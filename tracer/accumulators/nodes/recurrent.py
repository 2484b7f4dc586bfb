"""RNN, GRU and LSTM of fixed-point numbers, and DynamicQuantizeLSTM: two products a step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tracer.accumulators.engine.integer_arithmetic import (
    Fixed,
    Integers,
    NodeOperands,
    NoIntegerForm,
    minus_zero_point,
)
from tracer.accumulators.engine.sum_runner import Reduction, SumRunner
from tracer.accumulators.nodes import ComputeSums, NodeSums, finished, lowering
from tracer.accumulators.nodes.contrib_products import LARGEST, rounded_to_bytes
from tracer.accumulators.spec.orders import Terms
from tracer.errors import ModelError
from tracer.interpreter.numeric.products import Place
from tracer.interpreter.operators import MICROSOFT, NodeContext
from tracer.interpreter.ops import recurrent
from tracer.interpreter.ops.quantized import by_direction, dynamic_quantize_lstm
from tracer.interpreter.ops.recurrent import GateProducts, gru, lstm, rnn
from tracer.interpreter.values import Value
from tracer.support.types import Array

_OPERATORS: Mapping[str, Callable[..., tuple[Array, ...]]] = {"GRU": gru, "LSTM": lstm, "RNN": rnn}
_INPUT, _STATE = range(2)
"""The two products: of an element and W, of the state and R."""
_ALL = slice(None)


@lowering("GRU", "LSTM", "RNN")
def fixed_point_gates(operands: NodeOperands) -> ComputeSums:
    """The input times W, and the state times R: a sum each, which are added in floats."""
    if operands.formats is None:
        raise NoIntegerForm(
            "the state that it multiplies is floats, which nothing quantises between its steps",
            remedy="Set fixed-point formats, which round the state too: --fixed 8:5.",
        )
    x, w, r = operands.activations(0), operands.weights(1), operands.weights(2)
    state = Fixed(operands.formats.activations, False)
    function = _OPERATORS[operands.node.op_type]

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        weights = w.integers(inputs[1]), r.integers(inputs[2])
        sums = _GateSums(runner, weights, (x.range, state.range))
        steps = x.steps(None) * w.steps(None), state.steps(None) * r.steps(None)

        def of_input(direction: int, rows: Array) -> Array:
            exact = sums(_INPUT, direction, x.integers(rows), _ALL)
            return (exact * steps[_INPUT]).astype(rows.dtype)

        def of_state(direction: int, h: Array, gates: slice) -> Array:
            exact = sums(_STATE, direction, state.integers(h), gates)
            return (exact * steps[_STATE]).astype(h.dtype)

        with recurrent.replaced(GateProducts(of_input, of_state)):
            return finished(*function(*inputs, **operands.attributes))

    return compute


@lowering("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_gates(operands: NodeOperands) -> ComputeSums:
    """As LSTM, of bytes: the input and, in each step, the state are rounded by their own range."""
    context = NodeContext(operands.node, 1)

    def minus_zero_points(weights: Array, zeros: Array | None) -> Array:
        if zeros is None or zeros.size == 1:
            return minus_zero_point(weights, None if zeros is None else zeros.reshape(()))
        return minus_zero_point(weights, zeros.reshape(len(zeros), 1, -1))

    def compute(inputs: Sequence[Value], runner: SumRunner) -> NodeSums:
        if runner.accumulator.is_zero_point_in_sum:
            raise ModelError(
                f"'{operands.node.key}' has a new zero point in each step",
                "Subtract them from the operands: zero_points='before'.",
            )
        w, r = (
            operands.centred(index, inputs, minus_zero_points, zero_at=at)
            for index, at in ((1, 9), (2, 11))
        )
        weights = tuple(replace(q, numbers=q.values.swapaxes(1, 2), shift=0) for q in (w, r))
        steps = tuple(
            np.broadcast_to(by_direction(inputs[at]), (len(inputs[1]), 1, inputs[1].shape[2]))
            for at in (8, 10)
        )
        every_byte = -LARGEST, LARGEST
        sums = _GateSums(runner, (weights[0], weights[1]), (every_byte, every_byte))

        def product(part: int, direction: int, rows: Array, gates: slice) -> Array:
            numbers, scale = rounded_to_bytes(rows)
            exact = sums(part, direction, numbers, gates).astype(np.float32)
            return exact * (scale * steps[part][direction, 0, gates])

        multiply = GateProducts(
            lambda direction, rows: product(_INPUT, direction, rows, _ALL),
            lambda direction, h, gates: product(_STATE, direction, h, gates),
        )
        with recurrent.replaced(multiply):
            outputs = dynamic_quantize_lstm(*inputs, **operands.attributes, ctx=context)
        return finished(*outputs)

    return compute


class _GateSums:
    """The products of weights (D, G, K), for input and state, in the accumulators of one node.

    A gate of a direction is a channel. `ranges` are those of input and state.
    """

    def __init__(
        self, runner: SumRunner, weights: tuple[Integers, Integers],
        ranges: tuple[tuple[int, int], tuple[int, int]],
    ) -> None:  # fmt: skip
        self._runner, self._weights = runner, weights
        for part, (each, range_) in enumerate(zip(weights, ranges, strict=True)):
            directions, gates, depth = each.numbers.shape
            rows = each.numbers.reshape(directions * gates, depth)
            runner.begin(Reduction(
                len(rows), Terms(depth), range_, (each.low, each.high),
                rows if each.constant else None, part=part,
            ))  # fmt: skip

    def __call__(self, part: int, direction: int, factor: Integers, gates: slice) -> Array:
        """The sums (P, gates), int64, of a factor (P, K) and some gates of a direction."""
        every = self._weights[part].numbers[direction]
        some = np.ascontiguousarray(every[gates])
        first = direction * len(every) + (gates.start or 0)
        out = np.zeros((len(some), len(factor.numbers)), np.int64)
        if out.size:
            channels = slice(first, first + len(some))
            product = self._runner.product(channels, None, Terms(some.shape[1]))
            product(some, np.ascontiguousarray(factor.values.T), out, Place(0, 0))
        return out.T
