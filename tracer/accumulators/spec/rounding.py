"""How a product is rounded where its low bits are dropped before it is added."""

import re
from dataclasses import dataclass
from typing import assert_never, get_args

import numpy as np

from tracer.accumulators.spec.modes import RoundingName
from tracer.errors import UsageError
from tracer.support.types import Array

NAMES = get_args(RoundingName)
MOST_SHIFT = 32
"""Low bits that may be dropped: rounding then leaves sums below 2^62 within 64 bits."""

_SPELLING = re.compile(r"([a-z-]+)(?:\((\d{1,9})\))?")
_STEP, _SEED_STEP = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95
"""Odd numbers that spread positions and seeds over 64 bits."""
_MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""Shifts and factors of the finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """A rule of rounding; `seed` is for `stochastic` alone.

    `half-even` and `half-away` round to nearest, and ties to even or away from 0. `floor` rounds
    down, `truncate` towards 0. `stochastic` rounds up with the probability of the dropped part: a
    draw depends on the seed, the position of the product in its sum and the product alone.
    """

    name: RoundingName = "half-even"
    seed: int = 0

    def __str__(self) -> str:
        """The spelling that `rounding` reads."""
        return f"{self.name}({self.seed})" if self.name == "stochastic" else self.name

    def salts(self, positions: Array) -> Array:
        """Returns what the draws at `positions` depend on besides the product, int64."""
        spread = (positions.astype(np.uint64) + np.uint64(1)) * np.uint64(_STEP)
        return (spread + np.uint64(self.seed * _SEED_STEP % (1 << 64))).view(np.int64)


def rounding(spelling: str) -> Rounding:
    """Parses `half-even`, `stochastic(7)` and so on. Raises UsageError."""
    match = _SPELLING.fullmatch(spelling.strip())
    if match is None or match[1] not in NAMES or (match[2] and match[1] != "stochastic"):
        raise UsageError(
            f"'{spelling}' is not a rounding",
            f"It is one of {', '.join(NAMES)}; a seed is set as in stochastic(7).",
        )
    return Rounding(match[1], int(match[2] or 0))  # type: ignore[arg-type]  # checked above


def rounded(values: Array, shift: int, rule: Rounding) -> Array:
    """Returns `values` / 2^`shift` rounded to integers; `shift` is 1 or more.

    Integers (..., K), where K are the positions of products; int64 for `stochastic`, else also
    Python integers.
    """
    floor = values >> shift
    rest, half = values - (floor << shift), 1 << (shift - 1)
    match rule.name:
        case "floor":
            return floor
        case "truncate":
            up = (values < 0) & (rest > 0)
        case "half-even":
            up = (rest > half) | ((rest == half) & (floor % 2 == 1))
        case "half-away":
            up = (rest > half) | ((rest == half) & (values > 0))
        case "stochastic":
            up = _draws(values, shift, rule) < rest
        case _:
            assert_never(rule.name)
    return np.asarray(floor + np.asarray(up, np.int64))


def _draws(values: Array, shift: int, rule: Rounding) -> Array:
    """Returns integers from 0 to 2^`shift` - 1, one for each value and position."""
    mixed = (values + rule.salts(np.arange(values.shape[-1]))).astype(np.uint64)
    for bits, factor in _MIXERS:
        mixed = (mixed ^ (mixed >> np.uint64(bits))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(64 - shift)).astype(np.int64)
