"""MACs of an ONNX graph by others: shapes as a run has them, work as torch counts it."""

import json
import tempfile
from pathlib import Path

import onnx
import onnxruntime
import torch
from onnx import helper
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode


def counted(model, feeds):
    """Returns the MACs of a ModelProto on `feeds`.

    onnxruntime runs without optimisation and returns what the operators in OPERATORS read; where a
    model has bodies, its profile tells each node that ran. torch runs its own operator on tensors
    of these shapes, which have no values, and counts two flops for a MAC.
    """
    nodes = model.graph.node
    with FlopCounterMode(display=False) as counter:
        if any(attribute.HasField("g") for node in nodes for attribute in node.attribute):
            _execute(model, feeds)
        else:
            working = [node for node in nodes if node.op_type in OPERATORS]
            names = {name for node in working for name in node.input if name}
            shapes = _shapes(model, feeds, names)
            for node in working:
                _compute(node, [shapes.get(name) for name in node.input])
    return counter.get_total_flops() // 2


def _execute(model, feeds):
    nodes = dict(enumerate(_every(model.graph)))
    for number, node in nodes.items():
        node.name = f"n{number}"
    with tempfile.TemporaryDirectory() as folder:
        options = _unoptimised()
        options.add_session_config_entry(
            "session.disable_prepacking", "1"
        )  # packed ones are not told
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder) / "p")
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        session.run(None, {**feeds})
        events = json.loads(Path(session.end_profiling()).read_text())
    for event in events:
        if event["name"].endswith("_kernel_time") and event["args"]["op_name"] in OPERATORS:
            shapes = [next(iter(each.values())) for each in event["args"]["input_type_shape"]]
            _compute(nodes[int(event["name"][1:].partition("_")[0])], shapes)


def _every(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _every(attribute.g)


def _unoptimised():
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return options


def _compute(node, shapes):
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    OPERATORS[node.op_type](shapes, attributes)


def _shapes(model, feeds, names):
    known = {weight.name: tuple(weight.dims) for weight in model.graph.initializer}
    known |= {name: value.shape for name, value in feeds.items()}
    asked = sorted(names - known.keys())
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    del exposed.graph.output[:]
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in asked)
    session = onnxruntime.InferenceSession(exposed.SerializeToString(), _unoptimised())
    values = session.run(asked, {**feeds}) if asked else []
    return known | {name: value.shape for name, value in zip(asked, values, strict=True)}


def _empty(shape):
    return torch.empty(shape, device="meta")


def _convolution(x, weight, attributes):
    rank = len(x) - 2
    pads = attributes.get("pads", [0] * 2 * rank)
    if attributes.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
        pads = _same_pads(x, weight, attributes)
    around = [side for axis in reversed(range(rank)) for side in (pads[axis], pads[axis + rank])]
    run = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
    run(
        functional.pad(_empty(x), around), _empty(weight), None,
        attributes.get("strides", 1), 0, attributes.get("dilations", 1), attributes.get("group", 1),
    )  # fmt: skip


def _same_pads(x, weight, attributes):
    rank = len(x) - 2
    strides = attributes.get("strides", [1] * rank)
    dilations = attributes.get("dilations", [1] * rank)
    wanted = [-(-size // stride) for size, stride in zip(x[2:], strides, strict=True)]
    total = [
        max(0, (count - 1) * stride + (taps - 1) * dilation + 1 - size)
        for count, stride, taps, dilation, size in zip(
            wanted, strides, weight[2:], dilations, x[2:], strict=True
        )
    ]
    return [0] * rank + total


def _transposed(inputs, attributes):
    x, weight = inputs[:2]
    run = (functional.conv_transpose1d, functional.conv_transpose2d)[len(x) - 3]
    strides, group = attributes.get("strides", 1), attributes.get("group", 1)
    run(_empty(x), _empty(weight), None, strides, 0, 0, group)


def _gemm(inputs, attributes):
    a, b = (_empty(shape) for shape in inputs[:2])
    torch.mm(a.T if attributes.get("transA") else a, b.T if attributes.get("transB") else b)


def _recurrent(x, weight, recurrent):
    """`weight` and `recurrent` are those of each direction, [directions, outputs, inputs]."""
    rows = x[0] * x[1]  # steps, batch
    for directions, outputs, inputs in (weight, recurrent):
        for _ in range(directions):
            torch.mm(_empty((rows, inputs)), _empty((inputs, outputs)))


def _transpose(shape):
    return shape[0], shape[2], shape[1]


OPERATORS = {
    "Conv": lambda inputs, attributes: _convolution(inputs[0], inputs[1], attributes),
    "ConvInteger": lambda inputs, attributes: _convolution(inputs[0], inputs[1], attributes),
    "QLinearConv": lambda inputs, attributes: _convolution(inputs[0], inputs[3], attributes),
    "ConvTranspose": _transposed,
    "Gemm": _gemm,
    "MatMul": lambda inputs, _: torch.matmul(_empty(inputs[0]), _empty(inputs[1])),
    "MatMulInteger": lambda inputs, _: torch.matmul(_empty(inputs[0]), _empty(inputs[1])),
    "LSTM": lambda inputs, _: _recurrent(*inputs[:3]),
    "GRU": lambda inputs, _: _recurrent(*inputs[:3]),
    "DynamicQuantizeLSTM": lambda inputs, _: _recurrent(
        inputs[0], _transpose(inputs[1]), _transpose(inputs[2])
    ),
}
"""Runs torch's operator on tensors of the shapes of a node's inputs."""
