"""Kinds of accumulators in a policy, and how each is spelled.

A new kind is one entry of `KINDS`, and its class in `AnyAccumulator`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tracer.accumulators import hardware
from tracer.accumulators.spec import Overflow, Register, parts
from tracer.accumulators.spec import float_accumulator as floats
from tracer.accumulators.spec.accumulator import (
    CHANNEL_WIDTHS,
    Accumulator,
    AnyAccumulator,
    channel_widths,
)
from tracer.accumulators.spec.block_fma import block_fma
from tracer.accumulators.spec.orders import ALL, Level, Tiles
from tracer.errors import UsageError
from tracer.text import brief, suggest

PROPERTIES: Mapping[str, type] = {
    "overflow": str, "order": str, "bias": str, "product_bits": int, "convention": str,
    "zero_points": str, "product_shift": int, "product_rounding": str,
}  # fmt: skip
"""Properties of an integer accumulator besides its width, and their types in files."""

_ANY = 32
"""A width that every spelling replaces."""
_WIDTH = re.compile(rf"(u?)({CHANNEL_WIDTHS})(?:\((.*)\))?")
_TWO_LEVEL = re.compile(r"two-level\((.*)\)")
_NUMBERS = ("inner", "tile", "outer")
_HINT = (
    "It is two-level(inner bits, terms of a tile, outer bits), and may go on with an overflow as "
    "wrap or saturate/wrap, and with pairs."
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of accumulators; `example` is one of its spellings.

    `parse` takes a text, and an accumulator with the properties in `takes` that the text leaves
    out. It returns None for a spelling of another kind, and raises UsageError for one of this kind
    that is invalid. `names` returns the names that spellings begin with, for messages.
    """

    example: str
    names: Callable[[], Sequence[str]]
    parse: Callable[[str, Accumulator], AnyAccumulator | None]
    takes: frozenset[str] = frozenset()


class Parsed(NamedTuple):
    """An accumulator, and the properties that it takes from options beside its spelling.

    `instead` has the accumulators of operators that a preset adds otherwise.
    """

    accumulator: AnyAccumulator
    takes: frozenset[str]
    instead: Mapping[str, AnyAccumulator]


def parse(text: str, like: Accumulator) -> Parsed:
    """Returns the accumulator with a spelling of any kind, as `Kind.parse` does.

    Raises UsageError for a spelling of no kind; it lists similar names, or what is possible.
    """
    for kind in (WIDTH, *KINDS):  # most texts are widths
        accumulator = kind.parse(text, like)
        if accumulator is not None:
            preset = hardware.presets().get(text)
            return Parsed(accumulator, kind.takes, preset.instead if preset else {})
    names = [name for kind in KINDS for name in kind.names()]
    near = suggest(text.partition("(")[0], names) or f"It is one as {examples()}; "
    hint = f"{near}tracer interpret --list-accumulators has all names."
    raise UsageError(f"'{brief(text)}' is not an accumulator", hint)


def listed(text: str) -> tuple[str, ...] | None:
    """Returns the spellings in a list such as `fp32,tc:h100,18`.

    None for a list of widths alone, and for a policy with patterns.
    """
    spellings = tuple(part.strip() for part in parts(text, ","))
    for spelling in spellings:
        with suppress(UsageError):
            parse(spelling, Accumulator(_ANY))
            if not spelling.isdigit():
                return spellings
    return None


def examples() -> str:
    """Returns one spelling of each kind, as a list in a sentence."""
    *others, last = (kind.example for kind in KINDS)
    return f"{', '.join(others)} or {last}"


def _parse_width(text: str, like: Accumulator) -> Accumulator | None:
    """Parses `18`, `u18`, `16/18` by channel, or `18(overflow=wrap,order=chunked(32))`."""
    match = _WIDTH.fullmatch(text)
    if match is None:
        return None
    properties = dict(map(_property, parts(match[3], ","))) if match[3] else {}
    properties |= {"convention": "unsigned"} if match[1] else {}
    return with_widths(replace(like, **properties), channel_widths(match[2]))


def with_widths(accumulator: Accumulator, widths: Sequence[int]) -> Accumulator:
    """Returns an accumulator with one width for all channels, or one for each.

    Raises UsageError for a width that is not allowed, and for none.
    """
    if not widths:
        raise UsageError("no width", "Give one for all channels, or one for each.")
    return replace(accumulator, bits=max(widths), widths=tuple(widths) if len(widths) > 1 else ())


def _property(text: str) -> tuple[str, Any]:
    name, _, value = (part.strip() for part in text.partition("="))
    if name not in PROPERTIES:
        names = ", ".join(f"{each}=…" for each in PROPERTIES)
        hint = f"{suggest(name, PROPERTIES)}It is one of {names}."
        raise UsageError(f"'{text.strip()}' is not a property", hint)
    if PROPERTIES[name] is str:
        return name, value
    if not (value.isascii() and value.isdigit()):
        raise UsageError(f"{name} = '{value}'", "It is a whole number.")
    return name, int(value)


def _parse_two_level(text: str, like: Accumulator) -> Accumulator | None:
    """Parses `two-level(16,256,32)`: tiles in an inner register, which an outer one adds up.

    `two-level(inner, tile, outer)` sums `tile` terms in `inner` bits, and the sums in `outer` bits;
    a tile of `all` has all terms. After them may follow the overflow of both registers, as `wrap`,
    or of each, as `saturate/wrap`; and `pairs`, where products are added in pairs first, in the
    inner width. The inner level is the order of the accumulator.
    """
    if text.partition("(")[0] != "two-level":
        return None
    match = _TWO_LEVEL.fullmatch(text)
    values = _values([part.strip() for part in parts(match[1], ",")] if match else [])
    if any(name not in values for name in _NUMBERS):
        raise UsageError(f"'{text}' lacks a number", _HINT)
    inner, _, outer = values.get("overflow", "").partition("/")
    bits = _number(values, "inner") + (like.convention == "magnitude")
    tile = None if values["tile"] == ALL else _number(values, "tile")
    usual: Overflow = "saturate" if like.overflow == "error" else like.overflow
    register = Register(bits, inner or usual, like.is_unsigned)  # type: ignore[arg-type]  # it checks the word
    levels: tuple[Level, ...] = (Level(tile, register),)
    if "pairs" in values:
        if tile is not None and tile % 2:
            raise UsageError(f"a tile of {tile} terms in pairs", "Its size is even.")
        levels = (Level(2, register), Level(None if tile is None else tile // 2, register))
    return replace(
        like,
        bits=_number(values, "outer"),
        overflow=outer or inner or like.overflow,  # type: ignore[arg-type]  # as above
        order=Tiles(levels),
    )


def _parse_float_levels(text: str, like: Accumulator) -> floats.FloatAccumulator | None:
    """Parses `two-level(fp16,128,fp32)`, which is `fp32(order=tiles(128:fp16))`."""
    match = _TWO_LEVEL.fullmatch(text)
    words = [part.strip() for part in (match[1] if match else "").split(",")]
    if len(words) != len(_NUMBERS) or not floats.is_float_format(words[0]):
        return None
    inner, tile, outer = words
    return replace(
        floats.float_accumulator(f"{outer}(order=tiles({tile}:{inner}))"), bias=like.bias
    )


def _parse_float(text: str, like: Accumulator) -> floats.FloatAccumulator:
    """Parses `fp16` and so on; it takes the order where it has neither an order nor chunks."""
    own = floats.float_accumulator(text)
    if own.chunk is not None or not own.is_plain:
        return own
    return replace(own, order=like.order, bias=like.bias)


def _values(words: Sequence[str]) -> dict[str, str]:
    """Returns the texts in parentheses by name; without `name=`, names follow each other."""
    names, values = (*_NUMBERS, "overflow"), dict[str, str]()
    for word in words:
        name, equals, value = (part.strip() for part in word.rpartition("="))
        if value == "pairs" and not equals:
            name = "pairs"
        elif not equals:
            name = next((each for each in names if each not in values), "")
        if name not in (*names, "pairs") or name in values:
            raise UsageError(f"'{word}' in two-level", _HINT)
        values[name] = value
    return values


def _number(values: Mapping[str, str], name: str) -> int:
    text = values[name]
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"{name} = '{text}' in two-level", _HINT)
    return int(text)


WIDTH = Kind("18", tuple, _parse_width, frozenset(PROPERTIES))
KINDS = (
    Kind(
        "bfma(16,25,fp32)",
        lambda: ("bfma",),
        lambda text, _: block_fma(text) if text.startswith("bfma(") else None,
    ),
    Kind(
        "fp16(rz)",
        lambda: tuple(floats.FORMAT_NAMES),
        lambda text, like: _parse_float(text, like) if floats.is_float_accumulator(text) else None,
        frozenset(("order", "bias")),
    ),
    Kind(
        "x86-maddubs",
        lambda: tuple(hardware.presets()),
        lambda text, _: preset.accumulator if (preset := hardware.presets().get(text)) else None,
    ),
    Kind("two-level(fp16,128,fp32)", tuple, _parse_float_levels, frozenset(("bias",))),
    Kind("two-level(16,256,32)", lambda: ("two-level",), _parse_two_level, WIDTH.takes - {"order"}),
    WIDTH,
)
"""Kinds in the order of messages."""
