"""Fixed-point formats, which turn the operands of a float graph into integers."""

import re
from dataclasses import dataclass

import numpy as np

from tracer.accumulators.spec.register import signed_range
from tracer.errors import InputError, UsageError
from tracer.interpreter.numeric.elementwise import apply
from tracer.support.types import Array

WIDEST = 32
"""Bits of an operand: a product of two must fit 64."""

_MOST_FRACTION_BITS = 64
_SHORT = 16
"""Bits of int16."""
_SPELLING = re.compile(r"(\d{1,4}):([+-]?\d{1,4})")


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """The numbers q / 2^`fraction`, where q is a signed integer of `bits` (two's complement).

    Raises UsageError for widths beyond 2 to 32 or fractions beyond -64 to 64.
    """

    bits: int
    fraction: int

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= WIDEST:
            raise UsageError(
                f"a fixed-point number of {self.bits} bits", f"It has from 2 to {WIDEST}."
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

    def __str__(self) -> str:
        """The spelling that `formats` reads."""
        return f"{self.bits}:{self.fraction}"


@dataclass(frozen=True, slots=True)
class Formats:
    """The fixed-point formats of a node's activations and weights."""

    activations: FixedPoint
    weights: FixedPoint

    def __str__(self) -> str:
        """The spelling that `formats` reads."""
        return f"{self.activations}/{self.weights}"


def formats(spelling: str) -> Formats:
    """Parses `8:5` (both operands) or `8:5/8:7` (activations/weights). Raises UsageError."""
    parts = [_SPELLING.fullmatch(part.strip()) for part in spelling.split("/")]
    numbers = [FixedPoint(int(part[1]), int(part[2])) for part in parts if part is not None]
    if len(numbers) < len(parts) or len(numbers) > 2:
        raise UsageError(
            f"'{spelling}' is not a fixed-point format",
            "It is bits:fraction bits as in 8:5, or activations/weights as in 8:5/8:7.",
        )
    return Formats(numbers[0], numbers[-1])
