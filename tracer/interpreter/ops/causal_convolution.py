"""CausalConvWithState of ONNX and of com.microsoft: a convolution of each channel with its past."""

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.numeric.half_types import widened
from tracer.interpreter.ops.activation import swish
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.registry import operator
from tracer.support.types import Array


@operator("CausalConvWithState", since=27)
def causal_conv_with_state(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    past_state: Array | None = None,
    *,
    activation: str = "none",
) -> tuple[Array, Array]:
    """Convolves [batch, channels, length] with [channels, 1, k] taps that end at each position.

    The state, [batch, channels, k - 1], holds the positions before; zeros without one. Also returns
    the state at the end. Raises ModelError for shapes that do not fit.
    """
    whole = _with_past(input, weight, past_state, 1)
    output = _convolved(whole, weight, bias, activation, 1)
    kept = weight.shape[2] - 1
    return output, whole[..., whole.shape[2] - kept :]


@operator("CausalConvWithState", domain=DOMAIN)
def contrib_causal_conv_with_state(
    input: Array,
    weight: Array,
    bias: Array | None = None,
    past_state: Array | None = None,
    *,
    activation: str = "none",
    channels_last: int = 0,
    dilation: int = 1,
    ndim: int = 1,
    state_window: int = 0,
) -> tuple[Array, Array]:
    """CausalConvWithState whose taps are `dilation` apart. Raises ModelError."""
    for name, value, plain in (
        ("ndim", ndim, 1), ("channels_last", channels_last, 0), ("state_window", state_window, 0),
    ):  # fmt: skip
        if value != plain:
            raise ModelError(f"{name} is {value}; the interpreter computes {plain} alone")
    if dilation < 1:
        raise ModelError(f"the dilation is {dilation}, and taps are at least 1 apart")
    whole = _with_past(input, weight, past_state, dilation)
    output = _convolved(whole, weight, bias, activation, dilation)
    kept = (weight.shape[2] - 1) * dilation
    return output, whole[..., whole.shape[2] - kept :]


def _with_past(input: Array, weight: Array, past_state: Array | None, dilation: int) -> Array:
    """Returns the state, or zeros, before the input. Raises ModelError."""
    if input.ndim != 3 or weight.ndim != 3 or weight.shape[:2] != (input.shape[1], 1):
        raise ModelError(
            f"taps {list(weight.shape)} for {list(input.shape)}",
            "They are [channels, 1, k] for [batch, channels, length].",
        )
    shape = (*input.shape[:2], (weight.shape[2] - 1) * dilation)
    if past_state is not None and past_state.shape != shape:
        raise ModelError(f"past_state is {list(past_state.shape)}, not {list(shape)}")
    past = np.zeros(shape, input.dtype) if past_state is None else past_state
    return np.concatenate([past, input], axis=2)


def _convolved(
    whole: Array, weight: Array, bias: Array | None, activation: str, dilation: int
) -> Array:
    """Returns the sums of taps, perhaps through x sigmoid(x); halves are summed in float32."""
    if activation not in ("none", "silu", "swish"):
        raise ModelError(f"activation is '{activation}'", "Known: none, silu, swish.")
    channels, _, taps = weight.shape
    if bias is not None and bias.shape != (channels,):
        raise ModelError(f"the bias is {list(bias.shape)}, and there are {channels} channels")
    length = whole.shape[2] - (taps - 1) * dilation
    wide, each = widened(whole), widened(weight)
    output = np.zeros((*whole.shape[:2], length), wide.dtype)
    for tap in range(taps):
        output += wide[..., tap * dilation : tap * dilation + length] * each[:, :, tap]
    if bias is not None:
        output += widened(bias)[:, None]
    sums = output.astype(whole.dtype, copy=False)
    return sums if activation == "none" else swish(sums)
