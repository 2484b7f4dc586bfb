"""CausalConvWithState of ONNX and of com.microsoft: a convolution of each channel with its past."""

import numpy as np

from tracer.errors import ModelError
from tracer.interpreter.node_inputs import Input
from tracer.interpreter.numeric.half_types import widened
from tracer.interpreter.ops.activation import swish
from tracer.interpreter.ops.contrib import DOMAIN
from tracer.interpreter.registry import operator
from tracer.support.types import Array


def check_inputs(
    input: Input,
    weight: Input,
    bias: Input | None = None,
    past_state: Input | None = None,
    *,
    activation: str = "none",
    dilation: int = 1,
) -> None:
    """Raises ModelError for inputs that do not fit each other or the attributes."""
    if activation not in ("none", "silu", "swish"):
        raise ModelError(f"activation is '{activation}'", "Known: none, silu, swish.")
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


@operator("CausalConvWithState", since=27, check=check_inputs)
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
    the state at the end.
    """
    return _convolved(input, weight, bias, past_state, activation, 1)


@operator("CausalConvWithState", domain=DOMAIN, check=check_inputs)
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
    """CausalConvWithState whose taps are `dilation` apart. Raises ModelError for other layouts."""
    for name, value, plain in (
        ("ndim", ndim, 1), ("channels_last", channels_last, 0), ("state_window", state_window, 0),
    ):  # fmt: skip
        if value != plain:
            raise ModelError(f"{name} is {value}; the interpreter computes {plain} alone")
    return _convolved(input, weight, bias, past_state, activation, dilation)


def _convolved(
    input: Array,
    weight: Array,
    bias: Array | None,
    past_state: Array | None,
    activation: str,
    dilation: int,
) -> tuple[Array, Array]:
    """Returns the sums of taps, perhaps through x sigmoid(x), and the state at the end.

    Halves are summed in float32.
    """
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
