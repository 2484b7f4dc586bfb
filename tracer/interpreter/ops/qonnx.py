"""QONNX's operators: floats are rounded to integers of any number of bits, and stay floats.

The formulas are those of qonnx 1.0.0 (github.com/fastmachinelearning/qonnx, docs/qonnx-custom-ops),
where a scale, a zero point or a number of bits may be one number or an array that fits the tensor.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tracer.errors import ModelError
from tracer.graph.operators import QONNX_DOMAIN
from tracer.interpreter.numeric.tensors import apply
from tracer.interpreter.operators import operator, parameters_of
from tracer.support.types import Array

_LAYOUTS = {2: "NC", 3: "NWC", 4: "NCHW"}
"""The axes of the input of MultiThreshold by rank, where no attribute names them."""


def quant_integers(
    X: Array, scale: Array, zeropt: Array, bitwidth: Array, *, signed: int = 1, narrow: int = 0,
    rounding_mode: str = "ROUND",
) -> Array:  # fmt: skip
    """round(clip(x / scale + zero point)) - zero point, in the type of x.

    A signed number of one bit is 1 or -1. Ends of a number of bits that is no integer are rounded.
    """
    kind, round_ = X.dtype, rounding(rounding_mode)
    bits = bitwidth.astype(kind)
    low, high = integer_ends(bits, bool(signed), bool(narrow))
    bipolar = (bits == 1) & bool(signed)

    def compute(
        x: Array, scale: Array, zero: Array, low: Array, high: Array, bipolar: Array, out: Array
    ) -> None:
        y = x / scale + zero
        two_levels = _signs(y) if bipolar.any() else y
        y = round_(np.maximum(np.minimum(y, high), low))
        np.subtract(np.where(bipolar, two_levels, y), zero, out=out)

    parameters = scale.astype(kind, copy=False), zeropt.astype(kind, copy=False)
    with np.errstate(all="ignore"):
        return apply(compute, X, *parameters, low, high, bipolar, dtype=kind)


@operator("Quant", "IntQuant", domain=QONNX_DOMAIN)
@parameters_of(quant_integers)
def quant(X: Array, scale: Array, *inputs: Array, **attributes: Any) -> Array:
    """(round(clip(x / scale + zero point)) - zero point) * scale, in the type of x."""
    integers = quant_integers(X, scale, *inputs, **attributes)
    return apply(np.multiply, integers, scale.astype(X.dtype, copy=False))


@operator("BipolarQuant", domain=QONNX_DOMAIN)
def bipolar_quant(X: Array, scale: Array) -> Array:
    """The scale where x is at least 0, else minus the scale."""

    def compute(x: Array, scale: Array, out: Array) -> None:
        np.multiply(_signs(x), scale, out=out)

    return apply(compute, X, scale.astype(X.dtype, copy=False))


def trunc_integers(
    X: Array, scale: Array, zeropt: Array, in_bitwidth: Array, output: Array,
    out_bitwidth: Array | None = None, *, rounding_mode: str = "FLOOR", signed: int = 1,
    narrow: int = 0,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The integers of Trunc minus their zero point, in the type of x; their scale; that point."""
    kind, round_ = X.dtype, rounding(rounding_mode)
    parameters = [each.astype(kind, copy=False) for each in (scale, zeropt, in_bitwidth, output)]
    scale, zero, bits, output = parameters
    y = np.rint(X / scale + zero)
    if out_bitwidth is None:
        return round_(y / np.exp2(bits - output)) - zero, scale, zero
    divisor = np.exp2(np.rint(np.log2(output / scale)))
    low, high = integer_ends(out_bitwidth.astype(kind), bool(signed), bool(narrow))
    y = round_(np.maximum(np.minimum(y / divisor, high), low))
    return y - zero / divisor, output, zero / divisor


@operator("Trunc", domain=QONNX_DOMAIN)
@parameters_of(trunc_integers)
def trunc(X: Array, *inputs: Any, **attributes: Any) -> Array:
    """Divides integers by a power of two, and rounds.

    Version 2 has an output scale and the number of bits that the result is clipped to. Version 1
    has five inputs: `output` is the number of bits that remain, and nothing is clipped.
    """
    integers, step, _ = trunc_integers(X, *inputs, **attributes)
    return apply(np.multiply, integers, step.astype(X.dtype, copy=False))


@operator("FloatQuant", domain=QONNX_DOMAIN)
def float_quant(
    X: Array, scale: Array, exponent_bitwidth: Array, mantissa_bitwidth: Array,
    exponent_bias: Array, max_val: Array | None = None, *, rounding_mode: str = "ROUND",
    has_inf: int = 0, has_nan: int = 0, has_subnormal: int = 0, saturation: int = 1,
) -> Array:  # fmt: skip
    """x / scale, rounded to a float of so many bits, times the scale.

    A format without `saturation` has infinities or NaN beyond its greatest number. An infinity
    becomes NaN. Raises ModelError for a format that has neither.
    """
    kind, round_ = X.dtype, rounding(rounding_mode)
    exponent_bits, mantissa_bits, bias = (
        each.astype(kind) for each in (exponent_bitwidth, mantissa_bitwidth, exponent_bias)
    )
    with np.errstate(all="ignore"):
        x = X / scale.astype(kind, copy=False)
        least = 1 - bias - mantissa_bits  # exponent of the step of numbers next to 0
        step = np.exp2(np.maximum(np.frexp(x)[1] - 1 - mantissa_bits, least)).astype(kind)
        rounded = np.where(np.isinf(x), kind.type(np.nan), step * round_(x / step))
        most = (2 - np.exp2(-mantissa_bits)) * np.exp2(np.exp2(exponent_bits) - 1 - bias)
        most = most if max_val is None else np.minimum(most, max_val.astype(kind))
        clipped = np.clip(rounded, -most, most)
        if not saturation:
            if has_inf:
                beyond = np.copysign(np.inf, rounded).astype(rounded.dtype)
            elif has_nan:
                beyond = np.full_like(rounded, np.nan)
            else:
                raise ModelError("the format does not saturate, and has neither infinities nor NaN")
            clipped = np.where(np.abs(rounded) > most, beyond, clipped)
        return (clipped * scale).astype(kind)


@operator("MultiThreshold", domain=QONNX_DOMAIN)
def multi_threshold(
    X: Array, thresholds: Array, *, out_dtype: str = "", out_scale: float = 1.0,
    out_bias: float = 0.0, data_layout: str = "",
) -> Array:  # fmt: skip
    """out_scale * n + out_bias for n thresholds (C, T) of the channel that x is not below.

    One row of thresholds is for all channels. NaN is below all. Raises ModelError for thresholds
    of another number of channels.
    """
    axis = channel_axis(data_layout, X.ndim)
    if axis >= X.ndim or len(thresholds) not in (1, X.shape[axis]):
        raise ModelError(
            f"thresholds of {len(thresholds)} channels, and an input of the shape {list(X.shape)}"
        )
    rows = np.sort(thresholds, axis=1)
    channels = np.moveaxis(X, axis, 0)
    counts = np.empty(channels.shape, X.dtype)
    for index, channel in enumerate(channels):
        row = rows[index if len(rows) > 1 else 0]
        below_all = np.isnan(channel)
        counts[index] = np.where(below_all, 0, np.searchsorted(row, channel, side="right"))
    scaled = X.dtype.type(out_scale) * counts + X.dtype.type(out_bias)
    return np.moveaxis(scaled, 0, axis)


def channel_axis(layout: str, rank: int) -> int:
    """Returns the axis of the channels of MultiThreshold; '' is the usual layout of the rank."""
    axes = layout or _LAYOUTS.get(rank, "NC")
    return axes.index("C") if "C" in axes else 1


def _signs(x: Array) -> Array:
    """1 where x is at least 0, else -1."""
    return np.where(x >= 0, x.dtype.type(1), x.dtype.type(-1))


Round = Callable[[Array], Array]
"""Rounds floats to integers, which stay floats."""


_MODES: dict[str, Round] = {
    "ROUND": np.rint,
    "HALF_EVEN": np.rint,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": np.trunc,
    "ROUND_TO_ZERO": np.trunc,
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - 0.5),
}
"""UP and DOWN are away from zero and towards it; so are halves in HALF_UP and HALF_DOWN."""


def rounding(mode: str) -> Round:
    """Returns the function of a rounding mode, in capitals or not. Raises ModelError for others."""
    function = _MODES.get(mode.upper())
    if function is None:
        raise ModelError(f"rounding_mode '{mode}' is not known", f"It may be {', '.join(_MODES)}.")
    return function


def integer_ends(bits: Array, signed: bool, narrow: bool) -> tuple[Array, Array]:
    """Returns the least and the greatest integer of `bits`, of its shape and float type.

    `bits` need be no integer: then the ends are none either, and rounding follows. A narrow range
    lacks the least number if it is signed, else the greatest.
    """
    if signed:
        half = np.exp2(bits - 1)
        return (-half + narrow).astype(bits.dtype), (half - 1).astype(bits.dtype)
    return np.zeros_like(bits), (np.exp2(bits) - 1 - narrow).astype(bits.dtype)
