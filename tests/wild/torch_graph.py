"""Computes an ONNX graph of a quantised network with the operators of torch."""

import numpy as np
import torch
from onnx import helper, numpy_helper
from torch.nn import functional


def run_in_torch(proto, feeds):
    """Returns the outputs of a graph as arrays. Raises KeyError for an operator without a rule."""
    values = {each.name: _tensor(numpy_helper.to_array(each)) for each in proto.graph.initializer}
    values |= {name: _tensor(array) for name, array in feeds.items()}
    wanted = [value.name for value in proto.graph.output]
    with torch.inference_mode():
        for index, node in enumerate(proto.graph.node):
            options = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            inputs = [values[name] if name else None for name in node.input]
            values[node.output[0]] = _OPERATORS[node.op_type](options, *inputs)
            read_later = {name for each in proto.graph.node[index + 1 :] for name in each.input}
            for name in {*node.input} - read_later - {*wanted}:
                values.pop(name, None)
    return [values[name].numpy() for name in wanted]


def _tensor(array):
    return torch.from_numpy(np.array(array))


def _along(values, scale, axis):
    """Returns scales, or zero points, in the shape in which they belong to values."""
    return (
        scale
        if scale.ndim == 0
        else scale.reshape([-1 if d == axis else 1 for d in range(values.ndim)])
    )


def _quantized(options, x, scale, zero):
    info = torch.iinfo(zero.dtype)
    integers = torch.round(x / scale) + zero  # torch rounds halves to even
    return integers.clamp(info.min, info.max).to(zero.dtype)


def _dequantized(options, x, scale, zero):
    axis = options.get("axis", 1)
    differences = x.to(torch.int32) - _along(x, zero.to(torch.int32), axis)
    return differences.to(torch.float32) * _along(x, scale, axis)


def _padded(options, x, window, value=0.0):
    """Returns images with the pads of an operator that moves a window over them."""
    top, left, bottom, right = options.get("pads", [0] * 4)
    if options.get("auto_pad") == b"SAME_UPPER":
        strides, dilations = options.get("strides", [1, 1]), options.get("dilations", [1, 1])
        spans = [(size - 1) * step + 1 for size, step in zip(window, dilations, strict=True)]
        sizes = zip(x.shape[2:], strides, spans, strict=True)
        rests = [-(-size // stride) * stride - stride + span - size for size, stride, span in sizes]
        (top, bottom), (left, right) = ((max(r, 0) // 2, (max(r, 0) + 1) // 2) for r in rests)
    return functional.pad(x, (left, right, top, bottom), value=value)


def _convolved(options, x, weights, bias=None):
    return functional.conv2d(
        _padded(options, x, weights.shape[2:]), weights, bias, options.get("strides", 1), 0,
        options.get("dilations", 1), options.get("group", 1),
    )  # fmt: skip


def _multiplied(options, x, weights, bias=None):
    assert not options.get("transA") and options.get("alpha", 1) == options.get("beta", 1) == 1
    return functional.linear(x, weights if options.get("transB") else weights.T, bias)


def _pooled(options, x):
    return functional.max_pool2d(
        _padded(options, x, options["kernel_shape"], -torch.inf),
        options["kernel_shape"], options.get("strides", 1),
        dilation=options.get("dilations", 1), ceil_mode=bool(options.get("ceil_mode")),
    )  # fmt: skip


def _averaged(options, x):
    assert not any(options.get("pads", []))
    return functional.avg_pool2d(x, options["kernel_shape"], options.get("strides", 1))


def _reshaped(options, x, shape):
    return x.reshape([x.shape[n] if size == 0 else size for n, size in enumerate(shape.tolist())])


def _reduced(function):
    def reduce(options, x, axes=None):
        found = options.get("axes") if axes is None else axes.tolist()
        return function(x, dim=found, keepdim=bool(options.get("keepdims", 1)))

    return reduce


def _unsqueezed(options, x, axes=None):
    for axis in sorted(options.get("axes") if axes is None else axes.tolist()):
        x = x.unsqueeze(axis)
    return x


_OPERATORS = {
    "Add": lambda options, a, b: a + b,
    "AveragePool": _averaged,
    "Constant": lambda options: _tensor(numpy_helper.to_array(options["value"])),
    "Conv": _convolved,
    "DequantizeLinear": _dequantized,
    "Flatten": lambda options, x: x.flatten(options.get("axis", 1)),
    "Gemm": _multiplied,
    "GlobalAveragePool": lambda options, x: x.mean((2, 3), keepdim=True),
    "MatMul": lambda options, a, b: a @ b,
    "MaxPool": _pooled,
    "PRelu": lambda options, x, slopes: torch.where(x < 0, x * slopes, x),
    "QuantizeLinear": _quantized,
    "ReduceMax": _reduced(torch.amax),
    "ReduceMean": _reduced(torch.mean),
    "Relu": lambda options, x: x.relu(),
    "Reshape": _reshaped,
    "Transpose": lambda options, x: x.permute(options["perm"]),
    "Unsqueeze": _unsqueezed,
}
