"""Formats that operands are brought into: fixed point, and floats with the scales they share."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from tracer.accumulators.spec import check_word, float_accumulator, signed_range
from tracer.errors import InputError, UsageError
from tracer.interpreter.numeric.tensors import apply
from tracer.support.types import Array
from tracer.text import plural

_WIDEST_OPERAND = 32
"""Bits of an operand: a product of two must fit 64."""

_MOST_FRACTION_BITS = 64
_SHORT = 16
"""Bits of int16."""
_FIXED_SPELLING = re.compile(r"(\d{1,4}):(?:([+-]?\d{1,4})|block\(([1-9]\d{0,5})\))")


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """The numbers q / 2^`fraction`, where q is a signed integer of `bits` (two's complement).

    Raises UsageError for widths beyond 2 to 32 or fractions beyond -64 to 64.
    """

    bits: int
    fraction: int

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= _WIDEST_OPERAND:
            raise UsageError(
                f"a fixed-point number of {plural(self.bits, 'bit')}",
                f"It has from 2 to {_WIDEST_OPERAND}.",
            )
        if abs(self.fraction) > _MOST_FRACTION_BITS:
            raise UsageError(
                f"a fixed-point number with {self.fraction} fraction bits",
                f"It has from {-_MOST_FRACTION_BITS} to {_MOST_FRACTION_BITS}.",
            )

    @property
    def range(self) -> tuple[int, int]:
        """The lowest and the highest q."""
        return signed_range(self.bits)

    def quantized(self, values: Array) -> Array:
        """Returns the nearest q to each of `values`; ties to even, clipped to the range.

        They are int16, or int64 for formats of more bits. Raises InputError for NaN.
        """

        def compute(block: Array, out: Array) -> None:
            if np.isnan(block).any():
                raise InputError("NaN has no fixed-point number", "Find the node that computes it.")
            scaled = np.rint(np.ldexp(block.astype(np.float64), self.fraction))
            out[...] = np.clip(scaled, *self.range)

        return apply(compute, values, dtype=np.int16 if self.bits <= _SHORT else np.int64)

    def shared(self, values: Array, size: int) -> tuple[Array, Array]:
        """Returns q of `values` (..., K) in blocks of `size` that have a fraction of their own.

        They are integers (..., blocks, size) as those of `quantized`, and steps (..., blocks),
        float64: the powers of 2 by which the largest magnitudes of blocks have all but the sign
        bit. Zeros fill the last block. Raises InputError for NaN and infinities.
        """
        size = max(min(size, values.shape[-1]), 1)
        blocks = -(-values.shape[-1] // size)
        whole = np.zeros((*values.shape[:-1], blocks * size))
        whole[..., : values.shape[-1]] = values
        whole = whole.reshape(*values.shape[:-1], blocks, size)
        if not np.isfinite(whole).all():
            raise InputError(
                "NaN and infinities share no exponent", "Find the node that computes them."
            )
        exponents = np.frexp(np.abs(whole).max(-1, initial=0))[1]
        steps = np.ldexp(1.0, exponents + 1 - self.bits)
        q = np.clip(np.rint(whole / steps[..., None]), *self.range)
        return q.astype(np.int16 if self.bits <= _SHORT else np.int64), steps

    def __str__(self) -> str:
        """The spelling that `formats` reads."""
        return f"{self.bits}:{self.fraction}"


@dataclass(frozen=True, slots=True)
class Formats:
    """The fixed-point formats of a node's activations and weights.

    With a `block`, each so many numbers along the axis of a sum share a fraction that fits them
    (block floating point), in place of those of the formats.
    """

    activations: FixedPoint
    weights: FixedPoint
    block: int = 0

    def __str__(self) -> str:
        """The spelling that `formats` reads."""
        if self.block:
            both = self.activations, self.weights
            return "/".join(f"{each.bits}:block({self.block})" for each in both)
        return f"{self.activations}/{self.weights}"


def formats(spelling: str) -> Formats:
    """Parses `8:5` (both operands), `8:5/8:7` (activations/weights), or `8:block(16)`.

    Raises UsageError for another spelling, and for blocks of different sizes.
    """
    parts = [_FIXED_SPELLING.fullmatch(part.strip()) for part in spelling.split("/")]
    numbers = [FixedPoint(int(part[1]), int(part[2] or 0)) for part in parts if part is not None]
    blocks = {int(part[3] or 0) for part in parts if part is not None}
    if len(numbers) < len(parts) or len(numbers) > 2 or len(blocks) > 1:
        raise UsageError(
            f"'{spelling}' is not a fixed-point format",
            "It is bits:fraction bits as in 8:5, or activations/weights as in 8:5/8:7; "
            "8:block(16)/4:block(16) has a fraction for each 16 numbers of both.",
        )
    return Formats(numbers[0], numbers[-1], blocks.pop())


Scaling = Literal["none", "tensor", "channel", "tiles", "mx", "nvfp4"]
"""Which numbers share a scale, by which they are divided.

- `none`: none is scaled.
- `tensor`, `channel`: all numbers, or those along the reduction axis, share a float32: the largest
  magnitude becomes the largest number.
- `tiles`: weights share a float32 by 128 x 128, other numbers by 128 along the reduction axis
  (DeepGEMM).
- `mx`: blocks of 32 along the reduction axis share a power of 2, whose exponent is that of the
  largest magnitude less that of the largest number (OCP Microscaling 1.0).
- `nvfp4`: blocks of 16 share an fp8-e4m3, and all blocks a float32.
"""
BLOCKS: Mapping[Scaling, int] = {"tiles": 128, "mx": 32, "nvfp4": 16}
"""Numbers of a block along the reduction axis."""


@dataclass(frozen=True, slots=True)
class OperandFormat:
    """Numbers of `element`, or signed integers of 8 bits where that is None, times a scale.

    `rounding` is to nearest; tf32 is truncated, as tensor cores read it. A number beyond the
    largest becomes what the format has there; the largest number if the cast `saturates`, as casts
    with a scale do. Raises UsageError for a combination that does not exist.
    """

    element: float_accumulator.FloatFormat | None
    scaling: Scaling = "none"
    saturates: bool = False

    def __post_init__(self) -> None:
        check_word("scaling", self.scaling, get_args(Scaling))
        if self.element is None and self.scaling in ("none", "nvfp4"):
            raise UsageError(
                "int8 without a scale", "Its scale is of a tensor, a channel, tiles or mx."
            )
        if self.scaling != "none":
            object.__setattr__(self, "saturates", True)

    @property
    def rounding(self) -> float_accumulator.FloatRounding:
        """How a number is rounded."""
        return float_accumulator.FloatRounding("rz" if self.element == _TF32 else "rne")

    @property
    def format_name(self) -> str:
        """The name that tensor cores know the elements by: `fp8-e4m3`, `int8`."""
        return "int8" if self.element is None else str(self.element)

    def __str__(self) -> str:
        """The spelling that `operand_format` reads."""
        for name, value in BLOCK_FORMATS.items():
            if value == self:
                return name
        usual = "tensor" if self.element is None else "none"
        options: list[str] = [] if self.scaling == usual else [self.scaling]
        options += ["saturate"] * (self.saturates and self.scaling == "none")
        return f"{self.format_name}({','.join(options)})" if options else self.format_name


_TF32 = float_accumulator.FloatFormat(8, 10)
BLOCK_FORMATS: Mapping[str, OperandFormat] = {
    "mxfp8-e4m3": OperandFormat(float_accumulator.float_format("fp8-e4m3"), "mx"),
    "mxfp8-e5m2": OperandFormat(float_accumulator.float_format("fp8-e5m2"), "mx"),
    "mxfp6-e2m3": OperandFormat(float_accumulator.float_format("fp6-e2m3"), "mx"),
    "mxfp6-e3m2": OperandFormat(float_accumulator.float_format("fp6-e3m2"), "mx"),
    "mxfp4": OperandFormat(float_accumulator.float_format("fp4-e2m1"), "mx"),
    "mxint8": OperandFormat(None, "mx"),
    "nvfp4": OperandFormat(float_accumulator.float_format("fp4-e2m1"), "nvfp4"),
}
"""Formats whose blocks share a scale."""
OPERAND_NAMES = (*float_accumulator.FORMAT_NAMES, "int8", *BLOCK_FORMATS)
_HINT = (
    f"It is one of {', '.join(OPERAND_NAMES)}, or eXmY; options are saturate, tensor, channel and "
    "tiles, as in fp8-e4m3(saturate) or int8(channel)."
)


def operand_format(spelling: str) -> OperandFormat:
    """Parses `fp16`, `fp8-e4m3(channel)`, `int8`, `mxfp4`, `nvfp4` and so on. Raises UsageError."""
    text = spelling.strip()
    if text in BLOCK_FORMATS:
        return BLOCK_FORMATS[text]
    name, _, options = text.removesuffix(")").partition("(")
    if not (name == "int8" or float_accumulator.is_float_format(name)) or (
        "(" in text
    ) != text.endswith(")"):
        raise UsageError(f"'{spelling}' is not a format of operands", _HINT)
    element = None if name == "int8" else float_accumulator.float_format(name)
    if options == "saturate" and element is not None:
        return OperandFormat(element, saturates=True)
    if options in ("tensor", "channel", "tiles"):
        return OperandFormat(element, options)  # type: ignore[arg-type]  # one of these words
    if options:
        raise UsageError(f"'{spelling}': '{options}' is not an option", _HINT)
    return OperandFormat(element, "tensor" if element is None else "none")
