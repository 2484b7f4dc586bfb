"""A width in bits: an integer accumulator, as `18` or `18(overflow=wrap,order=chunked(32))`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.spelling import parts
from tracer.errors import UsageError

EXAMPLE = "18"
PROPERTIES: Mapping[str, type] = {
    "overflow": str, "order": str, "bias": str, "product_bits": int, "convention": str,
    "zero_points": str, "product_shift": int, "product_rounding": str,
}  # fmt: skip
"""Properties of an integer accumulator besides its width, and their types in files."""

TAKES = frozenset(PROPERTIES)
_SPELLING = re.compile(r"([0-9]{1,4})(?:\((.*)\))?")


def names() -> Sequence[str]:
    """Returns no names: a width is a number."""
    return ()


def parse(text: str, like: Accumulator) -> Accumulator | None:
    """Returns an accumulator of the width, with the properties in parentheses."""
    match = _SPELLING.fullmatch(text)
    if match is None:
        return None
    properties = dict(map(_property, parts(match[2], ","))) if match[2] else {}
    return replace(like, bits=int(match[1]), **properties)


def _property(text: str) -> tuple[str, Any]:
    name, _, value = (part.strip() for part in text.partition("="))
    if name not in PROPERTIES:
        raise UsageError(f"'{text.strip()}' is not a property", f"It is one of {_names()}.")
    if PROPERTIES[name] is str:
        return name, value
    if not (value.isascii() and value.isdigit()):
        raise UsageError(f"{name} = '{value}'", "It is a whole number.")
    return name, int(value)


def _names() -> str:
    return ", ".join(f"{name}=…" for name in PROPERTIES)
