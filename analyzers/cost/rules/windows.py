"""Convolutions, pooling and resampling: the full window counts, padding included, as papers do.

An output of a convolution with K = C/group × window weights takes K MACs. An input element of a
transposed convolution takes M/group × window MACs. A bias is one addition per output.
Like every sum, a maximum is accumulated from its neutral element: K operations for K elements.

Interpolation takes one multiplication per neighbour and their sum. Coordinates and weights of
neighbours are not counted: they are shared between channels.
"""

import math

from tracer.analyzers.cost.count import (
    NOTHING,
    Count,
    Operation,
    UnknownWorkError,
    counts,
    per_input,
    require,
)
from tracer.analyzers.cost.rules.elementwise import per_element
from tracer.analyzers.cost.rules.quantization import REQUANTISE, zero_points
from tracer.graph.operators import MICROSOFT

_BLOCKED = "com.microsoft.nchwc"
"""The domain of onnxruntime's operators on blocks of channels."""
_NEIGHBOURS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}


@counts("Conv")
@counts("NhwcConv", domain=MICROSOFT)
def _conv(op: Operation) -> Count:
    return convolution(op, weight=1) + bias(op, 2)


def convolution(op: Operation, weight: int) -> Count:
    """Counts the MACs of a convolution; its weights [M, C/group, window] are input `weight`."""
    _, channels, *window = op.input(weight).shape
    given = op.input(0).known_shape
    if given and op.node.domain != _BLOCKED and not op.op_type.startswith("Nhwc"):
        is_last = bool(op.integer("channels_last", 0))
        require(given[-1 if is_last else 1] == channels * op.integer("group", 1))
    per_output = Count(macs=channels * math.prod(window), channel_sums=channels)
    return per_output * op.output().size


def bias(op: Operation, index: int) -> Count:
    """Counts one addition per output if the optional input at `index` is present."""
    return Count(adds=op.output().size) if op.has(index) else Count()


@counts("ConvTranspose")
@counts("ConvTransposeWithDynamicPads", domain=MICROSOFT, settings=(2,))
def _conv_transpose(op: Operation) -> Count:
    """Counts the MACs of a transposed convolution, with its cropped outputs, and the bias."""
    inputs = op.input(0).size
    channels, *rest = op.input(1).shape  # C, M/group, window
    require(op.input(0).shape[1] == channels)
    sums = op.output().size * (channels // op.integer("group", 1))
    count = Count(macs=inputs * math.prod(rest), channel_sums=sums)
    return count + bias(op, 2 if op.op_type == "ConvTranspose" else 3)


@counts("FusedConv", "NhwcFusedConv", domain=MICROSOFT)
@counts("Conv", domain=_BLOCKED)
def _fused_conv(op: Operation) -> Count:
    """Counts a convolution, a bias, a tensor to add, and an activation."""
    activation = per_element(op.text("activation", "")) * op.output().size
    return convolution(op, weight=1) + bias(op, 2) + bias(op, 3) + activation


@counts("ConvInteger", settings=(2, 3))
def _conv_integer(op: Operation) -> Count:
    return convolution(op, weight=1) + zero_points(op, ((0, 2), (1, 3)))


@counts("QLinearConv", domain=("", MICROSOFT), settings=(1, 2, 4, 5, 6, 7))
def _qlinear_conv(op: Operation) -> Count:
    offsets = zero_points(op, ((0, 2), (3, 5)))
    return convolution(op, weight=3) + bias(op, 8) + offsets + REQUANTISE * op.output().size


@counts("DeformConv")
def _deform_conv(op: Operation) -> Count:
    batch, channels = op.input(0).shape[:2]
    window = math.prod(op.input(1).shape[2:])
    samples = batch * channels * math.prod(op.output().shape[2:]) * window
    sampling = Count(adds=3, muls=4 + op.has(4)) * samples  # bilinear, and the mask
    return convolution(op, weight=1) + bias(op, 3) + sampling


@counts("CausalConvWithState", domain=("", MICROSOFT))
def _causal_conv(op: Operation) -> Count:
    outputs = op.output().size
    window = math.prod(op.input(1).shape[1:])
    activation = per_element(op.text("activation", "none"))
    return Count(macs=window, channel_sums=1) * outputs + bias(op, 2) + activation * outputs


@counts("WordConvEmbedding", domain=MICROSOFT)
def _word_embedding(op: Operation) -> Count:
    """Counts every window of letters, of padding as well: bias, tanh, and the largest of all."""
    words, letters = op.input(0).shape
    filters, _, window, size = op.input(1).shape
    scores = words * max(letters - window + 1, 0) * filters
    each = Count(macs=window * size, adds=1, other=1, channel_sums=1) + per_element("Tanh")
    return each * scores


@counts("MaxPool", domain=("", _BLOCKED))
@counts("NhwcMaxPool", domain=MICROSOFT)
@counts("MaxpoolWithMask", domain=MICROSOFT, settings=(1,))
def _max_pool(op: Operation) -> Count:
    return Count(other=_window(op)) * op.output().size


@counts("AveragePool", domain=("", _BLOCKED))
@counts("QLinearAveragePool", domain=MICROSOFT, settings=(1, 2, 3, 4))
def _average_pool(op: Operation) -> Count:
    """Counts a sum of the window and a division; a quantised result is scaled and rounded."""
    average = Count(adds=_window(op), other=1)
    is_quantised = op.op_type == "QLinearAveragePool"
    return (average + REQUANTISE if is_quantised else average) * op.output().size


@counts("LpPool")
def _lp_pool(op: Operation) -> Count:
    return _norm(_window(op), op.integer("p", 2)) * op.output().size


counts("GlobalMaxPool", domain=("", _BLOCKED))(per_input(Count(other=1)))


@counts("GlobalAveragePool", domain=("", _BLOCKED))
def _global_average(op: Operation) -> Count:
    return Count(adds=op.input(0).size, other=op.output().size)


@counts("GlobalLpPool")
def _global_lp(op: Operation) -> Count:
    outputs = op.output().size
    return _norm(op.input(0).size // max(outputs, 1), op.integer("p", 2)) * outputs


def _norm(window: int, p: int) -> Count:
    """Counts the p-norm of `window` elements: powers, their sum, a root."""
    if p == 1:
        return Count(adds=window, other=window)
    if p == 2:
        return Count(adds=window, muls=window, other=1)
    return Count(adds=window, other=2 * window + 1)  # absolute value and power of each, the root


def _window(op: Operation) -> int:
    return math.prod(op.integers("kernel_shape"))


@counts("Resize", "Upsample", settings=(1, 2, 3))
@counts("Upsample", domain=_BLOCKED)
def _resize(op: Operation) -> Count:
    reach = _reach(op, "nearest")
    antialias = bool(op.integer("antialias", 0))
    neighbours = 1
    for before, after in zip(op.input(0).shape, op.output().shape, strict=True):
        if before != after and reach > 1:
            shrink = before / after if antialias else 1
            neighbours *= math.ceil(reach * max(1, shrink))
    return interpolate(neighbours) * op.output().size


@counts("GridSample", domain=("", MICROSOFT))
def _grid_sample(op: Operation) -> Count:
    axes = len(op.input(0).shape) - 2
    return interpolate(_reach(op, "linear") ** axes) * op.output().size


@counts("CropAndResize", domain=MICROSOFT, settings=(3,))
def _crop_and_resize(op: Operation) -> Count:
    return interpolate(_reach(op, "bilinear") ** 2) * op.output().size


@counts("RoiAlign", settings=(2,))
def _roi_align(op: Operation) -> Count:
    ratio = op.integer("sampling_ratio", 0)
    if ratio <= 0:
        raise UnknownWorkError("its number of samples depends on the regions (sampling_ratio is 0)")
    samples = ratio * ratio
    average = op.text("mode", "avg") == "avg"
    pooled = Count(adds=samples, other=1) if average else Count(other=samples)
    return (interpolate(4) * samples + pooled) * op.output().size


@counts("AffineGrid", settings=(1,))
def _affine_grid(op: Operation) -> Count:
    """Multiplies theta by the homogeneous coordinates of every output point."""
    axes = op.output().shape[-1]
    return Count(macs=axes + 1) * op.output().size


def interpolate(neighbours: int) -> Count:
    """Counts a weighted sum of the neighbours; a single neighbour is copied."""
    if neighbours == 1:
        return NOTHING
    return Count(adds=neighbours - 1, muls=neighbours)


def _reach(op: Operation, default: str) -> int:
    mode = op.text("mode", default)
    if mode not in _NEIGHBOURS:
        raise UnknownWorkError(f"the mode '{mode}' is unknown")
    return _NEIGHBOURS[mode]
