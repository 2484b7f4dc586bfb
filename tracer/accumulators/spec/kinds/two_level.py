"""Two levels of integers, as `two-level(16,256,32)`: tiles in an inner register, then an outer one.

`two-level(inner, tile, outer)` sums `tile` terms in `inner` bits, and the sums in `outer` bits; a
tile of `all` has all terms. After them may follow the overflow of both registers, as `wrap`, or of
each, as `saturate/wrap`; and `pairs`, where products are added in pairs first, in the inner width.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.kinds import width
from tracer.accumulators.spec.modes import Overflow
from tracer.accumulators.spec.orders.tiles import ALL, Level, Tiles
from tracer.accumulators.spec.register import Register
from tracer.accumulators.spec.spelling import parts
from tracer.errors import UsageError

EXAMPLE = "two-level(16,256,32)"
TAKES = width.TAKES - {"order"}
_NAME = "two-level"
_NUMBERS = ("inner", "tile", "outer")
_NAMES = (*_NUMBERS, "overflow")
_PAIRS = "pairs"
_SPELLING = re.compile(rf"{_NAME}\((.*)\)")
_HINT = (
    "It is two-level(inner bits, terms of a tile, outer bits), and may go on with an overflow as "
    "wrap or saturate/wrap, and with pairs."
)


def names() -> Sequence[str]:
    """Returns the name of the kind."""
    return (_NAME,)


def parse(text: str, like: Accumulator) -> Accumulator | None:
    """Returns the accumulator of the outer level; the inner level is its order."""
    if text.partition("(")[0] != _NAME:
        return None
    match = _SPELLING.fullmatch(text)
    values = _values([part.strip() for part in parts(match[1], ",")] if match else [])
    if any(name not in values for name in _NUMBERS):
        raise UsageError(f"'{text}' lacks a number", _HINT)
    inner, outer = _overflows(values.get("overflow", ""), like)
    bits = _number(values, "inner") + like.uncounted_bits
    tile = None if values["tile"] == ALL else _number(values, "tile")
    levels = _levels(tile, Register(bits, inner), _PAIRS in values)
    return replace(like, bits=_number(values, "outer"), overflow=outer, order=Tiles(levels))


def _values(words: Sequence[str]) -> dict[str, str]:
    """Returns the texts in parentheses by name; names are left out in the order of `_NAMES`."""
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = (part.strip() for part in word.rpartition("="))
        if value == _PAIRS and not equals:
            name = _PAIRS
        elif not equals:
            name = next((each for each in _NAMES if each not in values), "")
        if name not in (*_NAMES, _PAIRS) or name in values:
            raise UsageError(f"'{word}' in {_NAME}", _HINT)
        values[name] = value
    return values


def _number(values: dict[str, str], name: str) -> int:
    text = values[name]
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"{name} = '{text}' in {_NAME}", _HINT)
    return int(text)


def _overflows(text: str, like: Accumulator) -> tuple[Overflow, Overflow]:
    """Returns the overflow of the inner and of the outer register."""
    inner, _, outer = text.partition("/")
    own: Overflow = "saturate" if like.overflow == "error" else like.overflow
    # Register and Accumulator check the words
    return inner or own, outer or inner or like.overflow  # type: ignore[return-value]


def _levels(tile: int | None, register: Register, in_pairs: bool) -> tuple[Level, ...]:
    if not in_pairs:
        return (Level(tile, register),)
    if tile is not None and tile % 2:
        raise UsageError(f"a tile of {tile} terms in pairs", "Its size is even.")
    return Level(2, register), Level(None if tile is None else tile // 2, register)
