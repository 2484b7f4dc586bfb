"""Accumulators, orders and policies: what they are, and how they are spelled.

This module has registers: their range, their overflow, and the other choices that an accumulator
offers, which `Accumulator` explains. It is light enough for the options of commands. A name that is
added here fails type checking in every file that has to handle it. `parts` and `halves` split
spellings; what is in parentheses stays together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, assert_never, get_args

from tracer.errors import UsageError
from tracer.text import plural

Overflow = Literal["saturate", "symmetric", "wrap", "zero", "error"]
Convention = Literal["twos-complement", "magnitude", "unsigned"]
Bias = Literal["first", "last"]
ZeroPoints = Literal["before", "after"]
RoundingName = Literal["half-even", "half-away", "half-up", "floor", "truncate", "stochastic"]

NARROWEST, WIDEST = 2, 64
"""Bits of a register, its sign among them."""
MOST_SHIFT = 32
"""Low bits that may be dropped: rounding then leaves sums below 2^62 within 64 bits."""
_OVERFLOWS = tuple(name for name in get_args(Overflow) if name != "error")


@dataclass(frozen=True, slots=True)
class Effect:
    """What an overflow mode does: all that bounds and the choice of a kernel need to know of it.

    `clips` is whether a value outside the range becomes the nearer end; errors are raised
    afterwards. `outside` is what a value outside can become: the nearer end, any number in the
    range, or 0. `is_symmetric` is whether the range leaves out the lowest number.
    """

    clips: bool = False
    outside: Literal["end", "any", "zero"] = "any"
    is_symmetric: bool = False


def effect_of(overflow: Overflow) -> Effect:
    """Returns what `overflow` does; `engine.oracle.into_range` defines it."""
    match overflow:
        case "saturate" | "error":
            return Effect(clips=True, outside="end")
        case "symmetric":
            return Effect(clips=True, outside="end", is_symmetric=True)
        case "wrap":
            return Effect()
        case "zero":
            return Effect(outside="zero")
        case _:
            assert_never(overflow)


@dataclass(frozen=True, slots=True)
class Register:
    """A register of `bits` that adds groups of terms within a sum.

    It is in two's complement, or `unsigned`, from 0 to 2^bits - 1. `overflow` is applied after
    every addition; a register cannot end the run. Raises UsageError for other widths than 2 to 64,
    or 63 unsigned, for another overflow, and for a symmetric range that is unsigned.
    """

    bits: int
    overflow: Overflow = "saturate"
    unsigned: bool = False

    def __post_init__(self) -> None:
        if not NARROWEST <= self.bits <= WIDEST - self.unsigned:
            raise UsageError(
                f"an inner register of {plural(self.bits, 'bit')}",
                f"Widths from {NARROWEST} to {WIDEST - self.unsigned} are possible.",
            )
        if self.unsigned and effect_of(self.overflow).is_symmetric:
            raise UsageError(
                f"a register {self} in a symmetric range", "An unsigned one saturates at 0."
            )
        if self.overflow not in _OVERFLOWS:
            raise UsageError(
                f"overflow '{self.overflow}' of an inner register",
                f"It is one of {', '.join(_OVERFLOWS)}.",
            )

    @property
    def range(self) -> tuple[int, int]:
        """The lowest and the highest number that the register holds."""
        if self.unsigned:
            return 0, 2**self.bits - 1
        return signed_range(self.bits, effect_of(self.overflow).is_symmetric)

    def __str__(self) -> str:
        """The spelling in an order: `16`, `16:wrap`, or `u16` for an unsigned one."""
        bits = f"u{self.bits}" if self.unsigned else f"{self.bits}"
        return bits if self.overflow == "saturate" else f"{bits}:{self.overflow}"


@dataclass(frozen=True, slots=True)
class FloatRegister:
    """A register in a float format, by its spelling, that adds groups of terms within a sum.

    A number beyond the largest becomes what the format has there, or the largest if it `saturates`.
    """

    format: str
    saturates: bool = False

    def __str__(self) -> str:
        """The spelling in an order: `fp16`, or `fp16:saturate`."""
        return f"{self.format}:saturate" if self.saturates else self.format


@dataclass(frozen=True, slots=True)
class Shift:
    """The low `bits` that a sum loses, by a `rounding`, on its way to the next register.

    `seed` is for `stochastic` alone: a draw depends on it, on the sum, and on how many products the
    dot product has taken so far. Raises UsageError for other numbers than 1 to 32, and for a word
    that is no rounding.
    """

    bits: int
    rounding: RoundingName = "floor"
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MOST_SHIFT:
            raise UsageError(f"a shift by {self.bits} bits", f"It is by 1 to {MOST_SHIFT}.")
        if self.rounding not in get_args(RoundingName):
            raise UsageError(
                f"rounding '{self.rounding}' of a shift",
                f"It is one of {', '.join(get_args(RoundingName))}; a seed is set as in "
                "stochastic(7).",
            )

    def __str__(self) -> str:
        """The spelling in a level: `>>4`, `>>4:half-up`, or `>>4:stochastic(7)`."""
        seed = f"({self.seed})" if self.rounding == "stochastic" else ""
        return f">>{self.bits}" + ("" if self.rounding == "floor" else f":{self.rounding}{seed}")


def signed_range(bits: int, symmetric: bool = False) -> tuple[int, int]:
    """Returns the range of two's complement; `symmetric` leaves out the lowest number."""
    high = 2 ** (bits - 1) - 1
    return (-high if symmetric else -high - 1), high


def check_word(name: str, word: object, choices: Sequence[str]) -> None:
    """Raises UsageError for a word that is none of the choices; `name` is what it is."""
    if word not in choices:
        raise UsageError(f"{name} {word!r}", f"It is one of {', '.join(choices)}.")


def parts(text: str, separator: str) -> list[str]:
    """Splits at each `separator` outside parentheses; everywhere if parentheses do not match."""
    depths = list(accumulate((letter == "(") - (letter == ")") for letter in text))
    matches = min(depths, default=0) >= 0 and text.count("(") == text.count(")")
    cuts = (
        place
        for place, letter in enumerate(text)
        if letter == separator and not (matches and depths[place])
    )
    return [text[a + 1 : b] for a, b in pairwise([-1, *cuts, len(text)])]


def halves(text: str, separator: str) -> tuple[str, str]:
    """Returns what is before and after the last `separator` outside parentheses.

    The first half is empty if there is none.
    """
    *before, last = parts(text, separator)
    return separator.join(before), last
