"""The choices that an accumulator offers, by name: light enough for the options of commands.

`Accumulator` explains each of them. A name that is added here fails type checking in every file
that has to handle it.
"""

from dataclasses import dataclass
from typing import Literal, assert_never

Overflow = Literal["saturate", "symmetric", "wrap", "zero", "error"]
Convention = Literal["twos-complement", "magnitude"]
Bias = Literal["first", "last"]
ZeroPoints = Literal["before", "after"]
RoundingName = Literal["half-even", "half-away", "floor", "truncate", "stochastic"]


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
