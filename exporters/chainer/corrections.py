"""Correct onnx_chainer's converters that leave something out, by function.

A correction takes the parameters of the conversion and onnx_chainer's converter, and returns the
nodes. It imports onnx_chainer, so it runs only while a model is traced.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx

Nodes: TypeAlias = "Sequence[onnx.NodeProto]"
Convert: TypeAlias = Callable[[Any], Nodes]


def correct(name: str, params: Any, convert: Convert) -> Nodes:
    """Returns the nodes of the function with onnx_chainer's `name`."""
    correction = _CORRECTIONS.get(name)
    return correction(params, convert) if correction else convert(params)


def _dilated(params: Any, convert: Convert) -> Nodes:
    """Adds the dilation, which ConvolutionND and DeconvolutionND leave out."""
    nodes = convert(params)
    _set(nodes[-1], dilations=list(params.func.dilate))
    return nodes


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


_CORRECTIONS: dict[str, Callable[[Any, Convert], Nodes]] = {
    "ConvolutionND": _dilated,
    "DeconvolutionND": _dilated,
    "PReLUFunction": _slope_by_channel,
    "ResizeImages": _interpolated,
    "Softplus": _sharpened,
    "TransposeSequence": _by_step,
    "Unpooling2D": _cropped,
}
