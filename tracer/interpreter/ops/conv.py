"""Conv, ConvTranspose, Col2Im, and CausalConvWithState of ONNX and of com.microsoft."""

import math
from collections.abc import Sequence

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric import compiled, parallel
from tracer.interpreter.numeric.products import check_channels, convolve, depthwise
from tracer.interpreter.numeric.tensors import is_half, widened
from tracer.interpreter.numeric.windows import window
from tracer.interpreter.operators import MICROSOFT, Arguments, Ints, operator
from tracer.interpreter.ops.arithmetic import swish
from tracer.support.types import Array


@operator("Conv")
def conv(
    X: Array, W: Array, B: Array | None = None,
    *, auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1, kernel_shape: Ints = None,
    pads: Ints = None, strides: Ints = None,
) -> Array:  # fmt: skip
    """Convolves X (N, C, *size) with W (M, C / group, *kernel) and adds B (M)."""
    check_channels(X, W, group)
    if B is not None and B.shape != W.shape[:1]:
        raise ModelError(f"a bias of shape {list(B.shape)} for {len(W)} maps")
    dtype = X.dtype
    if is_half(dtype):
        X, W = X.astype(np.float32), W.astype(np.float32)
    slid = window(X.shape[2:], W.shape[2:], strides, pads, dilations, auto_pad)
    bias = None if B is None else B.astype(X.dtype, copy=False)
    by_channel = W.shape[1] == 1 and group > 1
    rows, depth = len(W) // (1 if by_channel else group), math.prod(W.shape[1:])
    if (
        X.ndim <= 4
        and not (by_channel and slid.pointwise)
        and compiled.takes_product(X.dtype, rows, depth, len(X) * slid.pixels)
    ):
        if by_channel:
            result = compiled.depthwise(X, W, slid, bias)
        else:
            result = compiled.convolve(X, W, slid, group, bias)
    else:
        result = (depthwise if by_channel else convolve)(X, W, slid, group)
        if bias is not None:
            result += bias.reshape(-1, *[1] * (X.ndim - 2))
    return result.astype(dtype, copy=False)


@operator("ConvTranspose")
def conv_transpose(
    X: Array, W: Array, B: Array | None = None,
    *, auto_pad: str = "NOTSET", dilations: Ints = None, group: int = 1, kernel_shape: Ints = None,
    output_padding: Ints = None, output_shape: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Array:  # fmt: skip
    """Transposed convolution of X (N, C, *size) with W (C, M / group, *kernel), plus B (M)."""
    rank = X.ndim - 2
    if W.ndim != X.ndim or X.shape[1] != W.shape[0] or X.shape[1] % group:
        raise ModelError(
            f"weights {list(W.shape)} do not fit {X.shape[1]} channels, {group} groups"
        )
    steps, spread = list(strides or [1] * rank), list(dilations or [1] * rank)
    full, before, size = geometry(
        X.shape[2:], W.shape[2:], steps, spread, pads, output_padding, output_shape, auto_pad
    )
    maps = W.shape[1] * group
    limits.allow((len(X), maps, *full), X.dtype)
    dtype = X.dtype
    wide = np.float32 if is_half(dtype) else dtype
    full_output = np.zeros((len(X), maps, *(max(f, b + n) for f, b, n in zip(full, before, size,
                      strict=True))), wide)  # fmt: skip
    _spread(
        X.astype(wide, copy=False), W.astype(wide, copy=False), group, steps, spread, full_output
    )
    crop = (slice(b, b + n) for b, n in zip(before, size, strict=True))
    output: Array = full_output[:, :, *crop]
    if B is not None:
        output = output + B.astype(wide).reshape(-1, *[1] * rank)
    return output.astype(dtype, copy=False)


def geometry(
    size: Sequence[int], kernel: Sequence[int], steps: Sequence[int], spread: Sequence[int],
    pads: Ints, output_padding: Ints, output_shape: Ints, auto_pad: str,
) -> tuple[list[int], list[int], list[int]]:  # fmt: skip
    """Returns per spatial axis the full size, the output's start in it, and the output's size.

    Raises ModelError for an empty output, as onnxruntime does.
    """
    more = output_padding or [0] * len(size)
    full = [
        (n - 1) * s + (k - 1) * d + 1 + extra
        for n, s, k, d, extra in zip(size, steps, kernel, spread, more, strict=True)
    ]
    rank = len(full)
    if output_shape is None and not auto_pad.startswith("SAME"):
        around = list(pads or [0] * (2 * rank)) if auto_pad == "NOTSET" else [0] * (2 * rank)
        before = around[:rank]
        cropped = [f - around[i] - around[rank + i] for i, f in enumerate(full)]
    else:  # pads are never negative, so a small kernel makes a small output
        cropped = [min(n * s, f) for n, s, f in zip(size, steps, full, strict=True)]
        if output_shape is not None:
            cropped = list(output_shape)[-rank:]
        total = [max(f - n, 0) for f, n in zip(full, cropped, strict=True)]
        before = [t // 2 if auto_pad == "SAME_UPPER" else t - t // 2 for t in total]
    if min(cropped, default=1) < 1:
        raise ModelError(
            f"the output would be {cropped}, cut from {full}; every axis must be at least 1"
        )
    return full, before, cropped


def _spread(
    x: Array, w: Array, group: int, steps: list[int], spread: list[int], full_output: Array
) -> None:
    """Adds transposed weights times input at the outputs each kernel position reaches."""
    kernel, size = w.shape[2:], x.shape[2:]
    deep, maps = x.shape[1] // group, w.shape[1]
    rows = w.reshape(group, deep, math.prod(w.shape[1:])).transpose(0, 2, 1)

    def block(index: int) -> None:
        image, number = divmod(index, group)
        pixels = x[image, number * deep : (number + 1) * deep].reshape(deep, math.prod(size))
        products = (rows[number] @ pixels).reshape(maps, *kernel, *size)
        target = full_output[image, number * maps : (number + 1) * maps]
        for position in np.ndindex(*kernel):
            reached = _window_slices(position, spread, size, steps)
            target[(slice(None), *reached)] += products[(slice(None), *position)]

    parallel.run_blocks(len(x) * group, block)


def _window_slices(
    position: Sequence[int], spread: Sequence[int], counts: Sequence[int], steps: Sequence[int]
) -> tuple[slice, ...]:
    """Returns where the elements at a kernel position lie, of as many windows as `counts`."""
    return tuple(
        slice(p * d, p * d + (n - 1) * s + 1, s)
        for p, d, n, s in zip(position, spread, counts, steps, strict=True)
    )


@operator("Col2Im", since=18)
def col2im(
    input: Array, image_shape: Array, block_shape: Array,
    *, dilations: Ints = None, pads: Ints = None, strides: Ints = None,
) -> Array:  # fmt: skip
    """Images (N, C, *image_shape) from columns (N, C times the size of a block, blocks)."""
    image, block = image_shape.tolist(), block_shape.tolist()
    rank = len(image)
    spread, steps = list(dilations or [1] * rank), list(strides or [1] * rank)
    around = list(pads or [0] * (2 * rank))
    sizes = [n + around[i] + around[rank + i] for i, n in enumerate(image)]
    if not len(block) == len(spread) == len(steps) == rank == len(around) / 2:
        raise ModelError(f"blocks {block} and attributes do not fit images {image}")
    counts = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, d, s in zip(sizes, block, spread, steps, strict=True)
    ]
    volume = math.prod(block)
    if min(*block, *counts, *spread, *steps) < 1 or input.shape[1] % volume or (
        input.shape[2] != math.prod(counts)
    ):  # fmt: skip
        raise ModelError(f"columns {list(input.shape)} do not fit {counts} blocks of {block}")
    shape = (len(input), input.shape[1] // volume)
    limits.allow((*shape, *sizes), input.dtype)
    columns = input.reshape(*shape, *block, *counts)
    images = np.zeros((*shape, *sizes), input.dtype)
    for position in np.ndindex(*block):
        reached = _window_slices(position, spread, counts, steps)
        images[:, :, *reached] += columns[:, :, *position]
    inside = tuple(slice(start, start + n) for start, n in zip(around, image, strict=False))
    return images[:, :, *inside]


def check_causal(given: Arguments) -> None:
    """Raises ModelError for inputs that do not fit each other or the attributes."""
    input, weight, bias, past_state = given.input, given.weight, given.bias, given.past_state
    dilation = getattr(given, "dilation", 1)  # the standard's has none
    if given.activation not in ("none", "silu", "swish"):
        raise ModelError(f"activation is '{given.activation}'", "Known: none, silu, swish.")
    if dilation < 1:
        raise ModelError(f"the dilation is {dilation}, and taps are at least 1 apart")
    if input.ndim != 3 or weight.ndim != 3 or weight.shape[:2] != (input.shape[1], 1):
        raise ModelError(
            f"taps {list(weight.shape)} for {list(input.shape)}",
            "They are [channels, 1, k] for [batch, channels, length].",
        )
    channels, _, taps = weight.shape
    state = (input.shape[0], channels, (taps - 1) * dilation)
    if past_state is not None and past_state.shape != state:
        raise ModelError(f"past_state is {list(past_state.shape)}, not {list(state)}")
    if bias is not None and bias.shape != (channels,):
        raise ModelError(f"the bias is {list(bias.shape)}, and there are {channels} channels")


@operator("CausalConvWithState", since=27, check=check_causal)
def causal_conv_with_state(
    input: Array, weight: Array, bias: Array | None = None, past_state: Array | None = None,
    *, activation: str = "none",
) -> tuple[Array, Array]:  # fmt: skip
    """Convolves [batch, channels, length] with [channels, 1, k] taps that end at each position.

    The state, [batch, channels, k - 1], holds the positions before; zeros without one. Also returns
    the state at the end.
    """
    return contrib_causal_conv_with_state(input, weight, bias, past_state, activation=activation)


@operator("CausalConvWithState", domain=MICROSOFT, check=check_causal)
def contrib_causal_conv_with_state(
    input: Array, weight: Array, bias: Array | None = None, past_state: Array | None = None,
    *, activation: str = "none", channels_last: int = 0, dilation: int = 1, ndim: int = 1,
    state_window: int = 0,
) -> tuple[Array, Array]:  # fmt: skip
    """CausalConvWithState whose taps are `dilation` apart; halves are summed in float32.

    The activation is x sigmoid(x), if any. Raises ModelError for other layouts.
    """
    for name, value, plain in (
        ("ndim", ndim, 1), ("channels_last", channels_last, 0), ("state_window", state_window, 0),
    ):  # fmt: skip
        if value != plain:
            raise ModelError(f"{name} is {value}; the interpreter computes {plain} alone")
    batch, channels, length = input.shape
    taps = weight.shape[2]
    kept = (taps - 1) * dilation
    past = np.zeros((batch, channels, kept), input.dtype) if past_state is None else past_state
    whole = np.concatenate([past, input], axis=2)
    wide, each = widened(whole), widened(weight)
    output = np.zeros(input.shape, wide.dtype)
    for tap in range(taps):
        output += wide[..., tap * dilation : tap * dilation + length] * each[:, :, tap]
    if bias is not None:
        output += widened(bias)[:, None]
    sums = output.astype(whole.dtype, copy=False)
    return sums if activation == "none" else swish(sums), whole[..., length:]
