"""QONNX's operators as ONNX's operators on float32: the formulas of `interpreter.ops.qonnx`.

Each function writes one node, operator by operator, with equal results. A parameter is the name of
a tensor where the graph computes it, else its values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx

from tracer.interpreter.ops.qonnx import integer_ends, rounding
from tracer.quantization.graph_editor import GraphEditor
from tracer.support.types import Array

Parameter: TypeAlias = "str | Array | np.floating[Any] | float"
"""A tensor of the graph by its name, or stored numbers."""

_ROUNDING = {"ROUND": "Round", "HALF_EVEN": "Round", "FLOOR": "Floor", "CEIL": "Ceil"}
"""Rounding modes that are operators of ONNX."""
_ROUNDING_MAGNITUDES = {
    "UP": ("Ceil", 0.0),
    "DOWN": ("Floor", 0.0),
    "ROUND_TO_ZERO": ("Floor", 0.0),
    "HALF_UP": ("Floor", 0.5),
    "HALF_DOWN": ("Ceil", -0.5),
}
"""Rounding modes of magnitudes: what is added before, and what rounds then."""
_LAST = np.array([-1], np.int64)
_HALVINGS = 7
"""2^(2^6) is the last such power in float32."""


class NoFormError(Exception):
    """A node that ONNX's operators do not express; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Puts operators before `node`, which becomes the last of them."""

    graph: GraphEditor
    node: onnx.NodeProto

    def add(self, op_type: str, *inputs: Parameter) -> str:
        """Adds a node before; returns the name of its output."""
        return self.graph.inserted(self.node, op_type, [self._named(each) for each in inputs])

    def become(self, op_type: str, *inputs: Parameter) -> None:
        """Makes the node itself one of ONNX's."""
        names = [self._named(each) for each in inputs]
        self.node.op_type, self.node.domain = op_type, ""
        del self.node.input[:], self.node.attribute[:]
        self.node.input.extend(names)

    def _named(self, value: Parameter) -> str:
        if isinstance(value, str):
            return value
        array = np.asarray(value)
        kept = array if array.dtype.kind in "bi" else array.astype(np.float32)
        return self.graph.constant(self.node, "constant", kept)


def quant(
    write: Writer, scale: Parameter, zero: Parameter, bits: Array, *, signed: bool, narrow: bool,
    mode: str,
) -> None:  # fmt: skip
    """Writes (round(clip(x / scale + zero point)) - zero point) * scale."""
    y = _shifted(write, "Add", write.add("Div", write.node.input[0], scale), zero)
    low, high = integer_ends(bits, signed, narrow)
    is_bipolar = (bits == 1) & signed
    integers = y
    if not is_bipolar.all():
        integers = _rounded(write, mode, write.add("Max", write.add("Min", y, high), low))
    if is_bipolar.any():
        signs = write.add("Where", write.add("GreaterOrEqual", y, 0.0), 1.0, -1.0)
        integers = signs if is_bipolar.all() else write.add("Where", is_bipolar, signs, integers)
    write.become("Mul", _shifted(write, "Sub", integers, zero), scale)


def bipolar(write: Writer, scale: Parameter) -> None:
    """Writes the scale where x is at least 0, else minus the scale."""
    minus = write.add("Neg", scale) if isinstance(scale, str) else -np.asarray(scale)
    reaches = write.add("GreaterOrEqual", write.node.input[0], 0.0)
    write.become("Where", reaches, scale, minus)


def trunc(
    write: Writer, scale: Array, zero: Array, bits: Array, output: Array,
    ends: tuple[Array, Array] | None, *, mode: str,
) -> None:  # fmt: skip
    """Writes the integers of x divided by a power of two, rounded, times the scale of the result.

    `ends` are the least and the greatest integer of the result; Trunc of version 1 has None, clips
    nothing and keeps the scale.
    """
    y = write.add("Div", write.node.input[0], scale)
    y = write.add("Round", _shifted(write, "Add", y, zero))
    if ends is None:
        y = _rounded(write, mode, write.add("Div", y, np.exp2(bits - output)))
        write.become("Mul", _shifted(write, "Sub", y, zero), scale)
        return
    divisor = np.exp2(np.rint(np.log2(output / scale)))
    low, high = ends
    y = write.add("Max", write.add("Min", write.add("Div", y, divisor), high), low)
    y = _shifted(write, "Sub", _rounded(write, mode, y), zero / divisor)
    write.become("Mul", y, output)


def multi_threshold(
    write: Writer, thresholds: Array, behind: int, *, out_scale: float, out_bias: float
) -> None:
    """Writes out_scale * n + out_bias for n thresholds that x is not below.

    `thresholds` (C, T) are those of the channels, which have `behind` axes behind them.
    """
    rows = thresholds.reshape(len(thresholds), *[1] * behind, -1)
    x = write.add("Unsqueeze", write.node.input[0], _LAST)
    reached = write.add("Where", write.add("GreaterOrEqual", x, rows), 1.0, 0.0)
    count = write.add("ReduceSum", reached, _LAST)
    if (out_scale, out_bias) == (1.0, 0.0):
        write.become("Squeeze", count, _LAST)
        return
    scaled = write.add("Mul", write.add("Squeeze", count, _LAST), out_scale)
    write.become("Add", scaled, out_bias)


def float_quant(
    write: Writer, scale: Parameter, exponent_bits: Array, mantissa_bits: Array, bias: Array,
    most: Array | None, *, mode: str, attributes: Mapping[str, Any],
) -> None:  # fmt: skip
    """Writes x / scale, rounded to a float of so many bits, times the scale.

    The step of a number is a power of two, which no operator of ONNX tells exactly. It is found by
    halving: numbers that reach 2^(2^k) are divided by it, and their step grows by it. Beyond the
    greatest number the step does not matter: a power of two is rounded to itself.
    Raises NoFormError for a format without anything beyond its greatest number.
    """
    one = np.float32(1)
    least = one - bias  # exponent of the least normal number
    greatest = np.exp2(exponent_bits) - one - bias
    with np.errstate(over="ignore"):
        end = (2 - np.exp2(-mantissa_bits)) * np.exp2(greatest)
    end = end if most is None else np.minimum(end, most)
    x = write.add("Div", write.node.input[0], scale)
    step = _step(write, x, float(least), float(greatest), float(mantissa_bits))
    y = write.add("Mul", step, _rounded(write, mode, write.add("Div", x, step)))
    y = write.add("Where", write.add("IsInf", x), np.float32(np.nan), y)
    clipped = write.add("Min", write.add("Max", y, -end), end)
    if not attributes.get("saturation", 1):  # the format has something beyond its end
        if not (attributes.get("has_inf") or attributes.get("has_nan")):
            raise NoFormError("its format does not saturate, and has neither infinities nor NaN")
        signs = (np.inf, -np.inf) if attributes.get("has_inf") else (np.nan, np.nan)
        above, below = map(np.float32, signs)
        clipped = write.add("Where", write.add("Greater", y, end), above, clipped)
        clipped = write.add("Where", write.add("Less", y, -end), below, clipped)
    write.become("Mul", clipped, scale)


def _step(write: Writer, x: str, least: float, greatest: float, mantissa_bits: float) -> str:
    """Returns 2^(exponent of x - mantissa bits), and at least that of the least normal number."""
    size, step = write.add("Abs", x), _power(least - mantissa_bits)
    halvings = int(greatest - least).bit_length() or 1
    if halvings > _HALVINGS:  # 2^128 is no float32, so this one comes before x is scaled
        reaches = write.add("GreaterOrEqual", size, _power(least + 128))
        scaled = [write.add("Mul", size, _power(-low)) for low in (least + 128, least)]
        size = write.add("Where", reaches, *scaled)
        step = write.add("Where", reaches, step * _power(128), step)
    else:
        size = write.add("Mul", size, _power(-least))
    for k in reversed(range(min(halvings, _HALVINGS))):
        power = _power(2**k)
        reaches = write.add("GreaterOrEqual", size, power)
        size = write.add("Where", reaches, write.add("Div", size, power), size)
        larger = write.add("Mul", step, power) if isinstance(step, str) else step * power
        step = write.add("Where", reaches, larger, step)
    return str(step)


def _power(exponent: float) -> Any:
    """Returns a power of two, float64: a step may be multiplied by what no float32 holds."""
    return np.exp2(np.float64(exponent))


def _rounded(write: Writer, mode: str, x: str) -> str:
    """Returns x rounded by a mode of QONNX. Raises ModelError for a mode that is not known."""
    rounding(mode)
    mode = mode.upper()
    if mode in _ROUNDING:
        return write.add(_ROUNDING[mode], x)
    op_type, shift = _ROUNDING_MAGNITUDES[mode]
    magnitude = _shifted(write, "Add", write.add("Abs", x), np.float32(shift))
    return write.add("Mul", write.add("Sign", x), write.add(op_type, magnitude))


def _shifted(write: Writer, op_type: str, x: str, by: Parameter) -> str:
    """Returns x with `by` added or subtracted; x itself where that is 0."""
    if not isinstance(by, str) and not np.any(by):
        return x
    return write.add(op_type, x, by)
