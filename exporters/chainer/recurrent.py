"""Converters of Chainer's LSTMs, which onnx_chainer lacks: a step, and whole sequences.

On a CPU, `F.n_step_lstm` calls functions for each step. Where all sequences have the same length it
is traced as one function, as onnx_chainer traces `F.n_step_gru`, and becomes one LSTM node for each
layer.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx

_GRU, _LSTMS = "n_step_gru", ("n_step_lstm", "n_step_bilstm")
_INPUT, _RECURRENT = (0, 3, 1, 2), (4, 7, 5, 6)
"""Chainer's weights in the order of ONNX's gates: input, output, forget, cell."""


@contextmanager
def whole_sequences(chainer: Any) -> Iterator[None]:
    """Has LSTMs and GRUs over sequences of the same length be functions within the context."""
    from onnx_chainer import mapping

    functions, rnn = chainer.functions, chainer.functions.rnn
    places = [(functions, name) for name in (_GRU, *_LSTMS)]
    places += [(rnn.n_step_gru, _GRU), *((rnn.n_step_lstm, name) for name in _LSTMS)]
    own = [getattr(*place) for place in places]
    theirs = mapping._supported_function_set
    try:
        mapping._supported_function_set = theirs - set(places)  # takes sequences of any lengths
        for place, function in zip(places, own, strict=True):
            setattr(*place, _whole(function, place[1], chainer.Variable))
        yield
    finally:
        mapping._supported_function_set = theirs
        for place, function in zip(places, own, strict=True):
            setattr(*place, function)


def _whole(function: Callable[..., Any], name: str, variable: type) -> Callable[..., Any]:
    """Returns `function`, which is one function if its sequences have one length, of variables."""
    from onnx_chainer.replace_func import fake_as_funcnode

    def call(*arguments: Any) -> Any:
        return function(*arguments)

    traced = fake_as_funcnode(call, name, experimental_warning=False)

    def chosen(*arguments: Any, **named: Any) -> Any:
        bound = inspect.signature(function).bind(*arguments, **named)
        states, steps = bound.args[2:], bound.arguments["xs"]
        alike = len({len(step) for step in steps}) == 1
        known = all(isinstance(value, variable) for value in _leaves(states))
        return (traced if alike and known else function)(*bound.args, **bound.kwargs)

    return chosen


def _leaves(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _leaves(value)
        else:
            yield value


def _sequences(params: Any) -> Sequence[onnx.NodeProto]:
    """Converts `n_step_lstm` and `n_step_bilstm`, whose inputs are steps [batch, size]."""
    from onnx_chainer.onnx_helper import GraphBuilder

    builder = GraphBuilder()
    layers, _, hx, _, ws, *_ = params.func.args
    directions, names = len(ws) // layers, iter(params.input_names)
    states = [_split(builder, next(names), layers) for _ in ("h", "c")]
    weights, biases = ([[next(names) for _ in range(8)] for _ in ws] for _ in ("w", "b"))
    x = _stacked(builder, list(names))
    lasts: list[list[str]] = [[], []]
    for layer, initial in enumerate(zip(*states, strict=True)):
        own = slice(layer * directions, (layer + 1) * directions)
        taken = (weights, _INPUT), (weights, _RECURRENT), (biases, _INPUT + _RECURRENT)
        gates = [
            _stacked(builder, [_joined(builder, [each[i] for i in order]) for each in of[own]])
            for of, order in taken
        ]
        y, *last = builder.op(
            "LSTM", [x, *gates, "", *initial], num_outputs=3, hidden_size=hx.shape[2],
            direction="forward" if directions == 1 else "bidirectional",
        )  # fmt: skip
        for state, name in zip(lasts, last, strict=True):
            state.append(name)
        turned = builder.op("Transpose", [y], perm=[0, 2, 1, 3])  # directions beside the cells
        merged = params.context.add_const(np.array([0, 0, -1], np.int64), f"merged{layer}")
        x = builder.op("Reshape", [turned, merged])
    *outputs, ys = params.func.reconstruct_return_value(params.output_names)
    for names_of, output in zip(lasts, outputs, strict=True):
        builder.op_output_named("Concat", names_of, [output], axis=0)
    for step, output in zip(_split(builder, x, len(ys)), ys, strict=True):
        builder.op_output_named("Squeeze", [step], [output], axes=[0])
    return tuple(builder.nodes())


def _split(builder: Any, name: str, parts: int) -> Sequence[str]:
    return builder.op("Split", [name], num_outputs=parts, axis=0) if parts > 1 else [name]


def _joined(builder: Any, names: Sequence[str]) -> str:
    joined: str = builder.op("Concat", names, axis=0)
    return joined


def _stacked(builder: Any, names: Sequence[str]) -> str:
    return _joined(builder, [builder.op("Unsqueeze", [name], axes=[0]) for name in names])


def _step(params: Any) -> Sequence[onnx.NodeProto]:
    """Converts a step of an LSTM: c' = tanh(a) sigmoid(i) + sigmoid(f) c, h = sigmoid(o) tanh(c').

    The gates a, i, f and o of a cell are neighbours in x. Cells without rows in x, whose sequences
    have ended, stay as they are.
    """
    from onnx_chainer.onnx_helper import GraphBuilder

    builder = GraphBuilder()
    (c, x), (next_c, h) = params.input_names, params.output_names
    (cells, *_), (rows, channels, *sizes) = (variable.shape for variable in params.func.inputs)
    split = np.array([0, channels // 4, 4, *sizes], np.int64)
    gates = builder.op("Reshape", [x, params.context.add_const(split, "gates")])
    gates = builder.op("Split", [gates], num_outputs=4, axis=2)
    a, i, f, o = (builder.op("Squeeze", [gate], axes=[2]) for gate in gates)
    ended: list[str] = []
    if rows < cells:
        parts = [rows, cells - rows]
        c, *ended = builder.op("Split", [c], num_outputs=2, axis=0, split=parts)
    added = builder.op("Mul", [builder.op("Tanh", [a]), builder.op("Sigmoid", [i])])
    kept = builder.op("Mul", [builder.op("Sigmoid", [f]), c])
    new = f"{next_c}_new" if ended else next_c
    builder.op_output_named("Add", [added, kept], [new])
    builder.op_output_named("Mul", [builder.op("Sigmoid", [o]), builder.op("Tanh", [new])], [h])
    if ended:
        builder.op_output_named("Concat", [new, *ended], [next_c], axis=0)
    return tuple(builder.nodes())


CONVERTERS: dict[str, Callable[[Any], Sequence[onnx.NodeProto]]] = {
    "LSTM": _step,
    **dict.fromkeys(_LSTMS, _sequences),
}
"""Converters by the names of their functions; each imports onnx_chainer while a model is traced."""
