"""Converters of Chainer's functions: LSTMs, which onnx_chainer lacks, and corrections of its own.

A correction takes the parameters of the conversion and onnx_chainer's converter, and returns the
nodes. On a CPU, `F.n_step_lstm` calls functions for each step. Where all sequences have the same
length it is traced as one function, as onnx_chainer traces `F.n_step_gru`, and becomes one LSTM
node for each layer. Everything here imports onnx_chainer while a model is traced, not before.
"""

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import numpy as np
import onnx

Nodes: TypeAlias = "Sequence[onnx.NodeProto]"
Convert: TypeAlias = Callable[[Any], Nodes]
_GRU, _LSTMS = "n_step_gru", ("n_step_lstm", "n_step_bilstm")
_INPUT, _RECURRENT = (0, 3, 1, 2), (4, 7, 5, 6)
"""Chainer's weights in the order of ONNX's gates: input, output, forget, cell."""
_CORRECTIONS: dict[str, Callable[[Any, Convert], Nodes]] = {}
CONVERTERS: dict[str, Callable[[Any], Nodes]] = {}
"""Converters by the names of their functions; each imports onnx_chainer while a model is traced."""
_Function = TypeVar("_Function", bound=Callable[..., Nodes])


def correct(name: str, params: Any, convert: Convert) -> Nodes:
    """Returns the nodes of the function with onnx_chainer's `name`."""
    correction = _CORRECTIONS.get(name)
    return correction(params, convert) if correction else convert(params)


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
            setattr(*place, _as_function(function, place[1], chainer.Variable))
        yield
    finally:
        mapping._supported_function_set = theirs
        for place, function in zip(places, own, strict=True):
            setattr(*place, function)


def _register(table: dict[str, _Function], *names: str) -> Callable[[_Function], _Function]:
    """Enters a function into a table, under the names of functions of Chainer."""

    def enter(function: _Function) -> _Function:
        table.update(dict.fromkeys(names, function))
        return function

    return enter


@_register(_CORRECTIONS, "ConvolutionND", "DeconvolutionND")
def _dilated(params: Any, convert: Convert) -> Nodes:
    """Adds the dilation, which ConvolutionND and DeconvolutionND leave out."""
    nodes = convert(params)
    _set(nodes[-1], dilations=list(params.func.dilate))
    return nodes


@_register(_CORRECTIONS, "ResizeImages")
def _interpolated(params: Any, convert: Convert) -> Nodes:
    """Sets Resize's alignment of corners, which differs from ResizeImages' default."""
    nodes = convert(params)
    if nodes[-1].op_type != "Resize" or params.opset_version < 11:
        return nodes  # before opset 11 there is no choice
    if params.func.mode == "nearest":
        _set(nodes[-1], mode="nearest", nearest_mode="floor")
        _set(nodes[-1], coordinate_transformation_mode="asymmetric")
        return nodes
    corners = "align_corners" if params.func.align_corners else "half_pixel"
    _set(nodes[-1], coordinate_transformation_mode=corners)
    return nodes


@_register(_CORRECTIONS, "PReLUFunction")
def _slope_by_channel(params: Any, convert: Convert) -> Nodes:
    """Unsqueezes PReLU's slope: Chainer broadcasts from the channel on, ONNX from the last axis."""
    from onnx_chainer.onnx_helper import GraphBuilder

    x, slope = (len(variable.shape) for variable in params.func.inputs)
    axes = list(range(slope, x - 1))
    if slope == 0 or not axes:
        return convert(params)
    builder = GraphBuilder()
    name = builder.op("Unsqueeze", [params.input_names[1]], axes=axes)
    builder.op("PRelu", [params.input_names[0], name])
    return tuple(builder.nodes(params.output_names))


@_register(_CORRECTIONS, "Softplus")
def _sharpened(params: Any, convert: Convert) -> Nodes:
    """Adds Softplus' beta, which is left out: log(1 + exp(beta x)) / beta."""
    from onnx_chainer.onnx_helper import GraphBuilder

    if params.func.beta == 1:
        return convert(params)
    dtype = params.func.inputs[0].dtype
    beta = params.context.add_const(np.array(params.func.beta, dtype), "beta")
    builder = GraphBuilder()
    scaled = builder.op("Mul", [params.input_names[0], beta])
    builder.op("Div", [builder.op("Softplus", [scaled]), beta])
    return tuple(builder.nodes(params.output_names))


@_register(_CORRECTIONS, "Unpooling2D")
def _cropped(params: Any, convert: Convert) -> Nodes:
    """Crops the larger image as Unpooling2D with `cover_all` does; onnx_chainer stretches it."""
    from onnx_chainer.functions.array import get_slice_node
    from onnx_chainer.onnx_helper import GraphBuilder

    function = params.func
    if not function.cover_all:
        return convert(params)
    height, width = function.inputs[0].shape[2:]
    uncropped = copy.copy(function)
    uncropped.cover_all = False
    uncropped.outh = function.sy * (height - 1) + function.kh - 2 * function.ph
    uncropped.outw = function.sx * (width - 1) + function.kw - 2 * function.pw
    outputs, stretched = params.output_names, f"{params.output_names[0]}_whole"
    params.func, params.output_names = uncropped, [stretched]
    nodes = convert(params)
    params.func, params.output_names = function, outputs
    builder = GraphBuilder()
    sizes = [function.outh, function.outw]
    get_slice_node(
        builder, params.opset_version, params.context, [stretched], [2, 3], [0, 0], sizes, [1, 1]
    )
    return (*nodes, *builder.nodes(outputs))


@_register(_CORRECTIONS, "TransposeSequence")
def _by_step(params: Any, convert: Convert) -> Nodes:
    """Converts TransposeSequence of any lengths; onnx_chainer wants one length."""
    from onnx_chainer.onnx_helper import GraphBuilder

    lengths = [variable.shape[0] for variable in params.func.inputs]
    if len(set(lengths)) == 1:
        return convert(params)
    builder = GraphBuilder()
    steps = [
        builder.op("Split", [name], num_outputs=length, axis=0) if length > 1 else [name]
        for name, length in zip(params.input_names, lengths, strict=True)
    ]
    for time, output in enumerate(params.output_names):
        there = [each[time] for each in steps if len(each) > time]
        builder.op_output_named("Concat", there, [output], axis=0)
    return tuple(builder.nodes())


def _set(node: onnx.NodeProto, **attributes: object) -> None:
    """Sets attributes of the node and replaces those of the same name."""
    unchanged = [attribute for attribute in node.attribute if attribute.name not in attributes]
    changed = [onnx.helper.make_attribute(name, value) for name, value in attributes.items()]
    del node.attribute[:]
    node.attribute.extend([*unchanged, *changed])


def _as_function(function: Callable[..., Any], name: str, variable: type) -> Callable[..., Any]:
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


@_register(CONVERTERS, "LSTM")
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


@_register(CONVERTERS, *_LSTMS)
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
            _stacked(builder, [_concat(builder, [each[i] for i in order]) for each in of[own]])
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


def _concat(builder: Any, names: Sequence[str]) -> str:
    joined: str = builder.op("Concat", names, axis=0)
    return joined


def _stacked(builder: Any, names: Sequence[str]) -> str:
    return _concat(builder, [builder.op("Unsqueeze", [name], axes=[0]) for name in names])
