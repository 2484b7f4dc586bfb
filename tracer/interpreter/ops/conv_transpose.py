"""ConvTranspose: adds every input element, times the weights, over an output window."""

import math
from collections.abc import Sequence

import numpy as np

from tracer import limits
from tracer.errors import ModelError
from tracer.interpreter.numeric import parallel
from tracer.interpreter.numeric.half_types import is_half
from tracer.interpreter.registry import operator
from tracer.support.types import Array

_Ints = Sequence[int] | None


@operator("ConvTranspose")
def conv_transpose(
    X: Array,
    W: Array,
    B: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: _Ints = None,
    group: int = 1,
    kernel_shape: _Ints = None,
    output_padding: _Ints = None,
    output_shape: _Ints = None,
    pads: _Ints = None,
    strides: _Ints = None,
) -> Array:
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
    size: Sequence[int],
    kernel: Sequence[int],
    steps: Sequence[int],
    spread: Sequence[int],
    pads: _Ints,
    output_padding: _Ints,
    output_shape: _Ints,
    auto_pad: str,
) -> tuple[list[int], list[int], list[int]]:
    """Returns per spatial axis the full size, the output's start in it, and the output's size.

    Raises ModelError for an empty output, as onnxruntime does.
    """
    more = output_padding or [0] * len(size)
    full = [
        (n - 1) * s + (k - 1) * d + 1 + extra
        for n, s, k, d, extra in zip(size, steps, kernel, spread, more, strict=True)
    ]
    before, cropped = _crop(size, full, steps, pads, output_shape, auto_pad)
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
            reached = tuple(
                slice(p * d, p * d + (n - 1) * s + 1, s)
                for p, d, n, s in zip(position, spread, size, steps, strict=True)
            )
            target[(slice(None), *reached)] += products[(slice(None), *position)]

    parallel.run_blocks(len(x) * group, block)


def _crop(
    size: Sequence[int],
    full: list[int],
    steps: Sequence[int],
    pads: _Ints,
    output_shape: _Ints,
    auto_pad: str,
) -> tuple[list[int], list[int]]:
    """Returns the output's start in the full size, and its size, by the specification."""
    rank = len(full)
    if output_shape is None and not auto_pad.startswith("SAME"):
        around = list(pads or [0] * (2 * rank)) if auto_pad == "NOTSET" else [0] * (2 * rank)
        return around[:rank], [f - around[i] - around[rank + i] for i, f in enumerate(full)]
    if output_shape is None:  # pads are never negative, so a small kernel makes a small output
        cropped = [min(n * s, f) for n, s, f in zip(size, steps, full, strict=True)]
    else:
        cropped = list(output_shape)[-rank:]
    total = [max(f - n, 0) for f, n in zip(full, cropped, strict=True)]
    upper = auto_pad == "SAME_UPPER"
    return [t // 2 if upper else t - t // 2 for t in total], cropped
