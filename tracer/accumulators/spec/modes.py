"""The choices that an accumulator offers, by name; it imports nothing, for the options of commands.

`Accumulator` explains each of them. A name that is added here fails type checking in every file
that has to handle it.
"""

from typing import Literal

Overflow = Literal["saturate", "symmetric", "wrap", "zero", "error"]
Convention = Literal["twos-complement", "magnitude"]
Bias = Literal["first", "last"]
ZeroPoints = Literal["before", "after"]
