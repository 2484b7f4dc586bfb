"""The range of a register, and registers within a sum that have a width of their own."""

from dataclasses import dataclass
from typing import get_args

from tracer.accumulators.spec.modes import Overflow, effect_of
from tracer.errors import UsageError

NARROWEST, WIDEST = 2, 64
"""Bits of a register, its sign among them."""

_OVERFLOWS = tuple(name for name in get_args(Overflow) if name != "error")


@dataclass(frozen=True, slots=True)
class Register:
    """A register of `bits`, in two's complement, that adds groups of terms within a sum.

    `overflow` is applied after every addition; a register cannot end the run. Raises UsageError for
    other widths than 2 to 64, and for another overflow.
    """

    bits: int
    overflow: Overflow = "saturate"

    def __post_init__(self) -> None:
        if not NARROWEST <= self.bits <= WIDEST:
            raise UsageError(
                f"an inner register of {self.bits} bits",
                f"Widths from {NARROWEST} to {WIDEST} are possible.",
            )
        if self.overflow not in _OVERFLOWS:
            raise UsageError(
                f"overflow '{self.overflow}' of an inner register",
                f"It is one of {', '.join(_OVERFLOWS)}.",
            )

    @property
    def range(self) -> tuple[int, int]:
        """The lowest and the highest number that the register holds."""
        return signed_range(self.bits, effect_of(self.overflow).is_symmetric)

    def __str__(self) -> str:
        """The spelling in an order: `16`, or `16:wrap`."""
        return f"{self.bits}" if self.overflow == "saturate" else f"{self.bits}:{self.overflow}"


def signed_range(bits: int, symmetric: bool = False) -> tuple[int, int]:
    """Returns the range of two's complement; `symmetric` leaves out the lowest number."""
    high = 2 ** (bits - 1) - 1
    return (-high if symmetric else -high - 1), high
