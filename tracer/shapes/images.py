"""Types of the outputs of onnxruntime's operators on images."""

from collections.abc import Mapping

from tracer.graph.tensor_type import Dim
from tracer.interpreter.numeric.windows import window
from tracer.interpreter.ops.conv import geometry
from tracer.shapes.known_node import Known, Outputs, Rule, Shape


def pooled(known: Known, kernel: tuple[int, ...], maps: Dim, last: bool) -> Shape:
    """Returns the shape of what windows over the first input give, or None.

    `maps` are the channels of the output, None as many as before; `last` says where they are.
    """
    shape = known.shape(0)
    if shape is None or len(shape) != len(kernel) + 2:
        return None
    space = shape[1:-1] if last else shape[2:]
    sizes = tuple(size for size in space if isinstance(size, int))
    if len(sizes) < len(space):
        return None
    slid = window(
        sizes, kernel, known.integers("strides") or None, known.integers("pads") or None,
        known.integers("dilations") or None, known.text("auto_pad", "NOTSET"),
        known.integer("ceil_mode"),
    )  # fmt: skip
    channels = maps if maps is not None else shape[-1 if last else 1]
    return (shape[0], *slid.out, channels) if last else (shape[0], channels, *slid.out)


def pooled_whole(shape: Shape, last: bool) -> Shape:
    """Returns the shape of one value for each channel."""
    if shape is None or len(shape) < 3:
        return None
    ones = (1,) * (len(shape) - 2)
    return (shape[0], *ones, shape[-1]) if last else (*shape[:2], *ones)


def _largest(known: Known) -> Outputs:
    last = known.node.op_type == "NhwcMaxPool"
    return [known.typed(0, pooled(known, known.integers("kernel_shape"), None, last))]


def _cropped(known: Known) -> Outputs:
    images, regions, size = known.shape(0), known.shape(1), known.numbers(3)
    if images is None or regions is None or size is None:
        return []
    return [known.typed(0, (regions[0], images[1], *size))]


def _transposed(known: Known) -> Outputs:
    pads = known.numbers(2)
    if known.has(2) and pads is None:
        return []
    return [known.typed(0, transposed(known, pads, None))]


def transposed(
    known: Known, pads: tuple[int, ...] | None, output_shape: tuple[int, ...] | None
) -> Shape:
    """Returns the shape of a transposed convolution of the first input, or None."""
    shape, weights = known.shape(0), known.shape(1)
    if shape is None or weights is None:
        return None
    sizes = [size for size in (*shape[2:], *weights[1:]) if isinstance(size, int)]
    rank = len(shape) - 2
    if len(sizes) < 2 * rank + 1:
        return None
    ones = [1] * rank
    *_, cropped = geometry(
        sizes[:rank], sizes[rank + 1 :], list(known.integers("strides") or ones),
        list(known.integers("dilations") or ones), pads, known.integers("output_padding") or None,
        output_shape, known.text("auto_pad", "NOTSET"),
    )  # fmt: skip
    return (shape[0], sizes[rank] * known.integer("group", 1), *cropped)


RULES: Mapping[str, Rule] = {
    "ConvTransposeWithDynamicPads": _transposed,
    "CropAndResize": _cropped,
    "MaxpoolWithMask": _largest,
    "NhwcMaxPool": _largest,
}
