"""Attributes that onnx_chainer's converters leave out, by function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import onnx

Attributes: TypeAlias = dict[str, object]


def correct(name: str, function: Any, nodes: Sequence[onnx.NodeProto]) -> None:
    """Complete the nodes that were made of `function`, which onnx_chainer knows as `name`."""
    import onnx

    if name not in _CORRECTIONS:
        return
    operator, attributes = _CORRECTIONS[name]
    for node in (node for node in nodes if node.op_type == operator):
        for key, value in attributes(function).items():
            kept = [a for a in node.attribute if a.name != key]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute(key, value)])


def _dilations(function: Any) -> Attributes:
    return {"dilations": list(function.dilate)}


def _interpolation(function: Any) -> Attributes:
    """Chainer aligns the corners unless told otherwise; Resize never does unless told to."""
    if function.mode == "nearest":
        return {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
    corners = "align_corners" if function.align_corners else "half_pixel"
    return {"coordinate_transformation_mode": corners}


_CORRECTIONS: dict[str, tuple[str, Callable[[Any], Attributes]]] = {
    "ConvolutionND": ("Conv", _dilations),
    "DeconvolutionND": ("ConvTranspose", _dilations),
    "ResizeImages": ("Resize", _interpolation),
}
