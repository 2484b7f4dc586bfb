"""Kinds of accumulators in a policy; each module of this package parses the spellings of one kind.

A new kind is one module with the names of `Kind`, and its class in `spec.any_accumulator`.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, Protocol

from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.any_accumulator import AnyAccumulator
from tracer.accumulators.spec.spelling import parts
from tracer.errors import UsageError

_NAMES_LISTED = 6
_ANY = 32
"""A width that every spelling replaces."""


class Kind(Protocol):
    """A module that parses one kind of accumulators; `EXAMPLE` is one of its spellings."""

    EXAMPLE: str
    TAKES: frozenset[str]
    """Properties of an integer accumulator that a spelling may leave out."""

    def names(self) -> Sequence[str]:
        """Returns the names that spellings begin with, for messages."""

    def parse(self, text: str, like: Accumulator) -> AnyAccumulator | None:
        """Returns the accumulator with a spelling; None if the spelling is of another kind.

        `like` has the properties in `TAKES` that the spelling leaves out. Raises UsageError for a
        spelling of this kind that is invalid.
        """


class Parsed(NamedTuple):
    """An accumulator, and the properties that it takes from options beside its spelling."""

    accumulator: AnyAccumulator
    takes: frozenset[str]


@cache
def kinds() -> tuple[Kind, ...]:
    """Returns the modules of this package, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}") for name in names)


def parse(text: str, like: Accumulator) -> Parsed:
    """Returns the accumulator with a spelling of any kind, as `Kind.parse` does.

    Raises UsageError for a spelling of no kind; it lists similar names, or what is possible.
    """
    for kind in kinds():
        accumulator = kind.parse(text, like)
        if accumulator is not None:
            return Parsed(accumulator, kind.TAKES)
    raise UsageError(f"'{text}' is not an accumulator", _possible(text))


def listed(text: str) -> tuple[str, ...] | None:
    """Returns the spellings in a list such as `fp32,tc:h100,18`.

    None for a list of widths alone, and for a policy with patterns.
    """
    spellings = tuple(part.strip() for part in parts(text, ","))
    return spellings if any(map(_is_more_than_a_width, spellings)) else None


def _is_more_than_a_width(spelling: str) -> bool:
    try:
        parse(spelling, Accumulator(_ANY))
    except UsageError:
        return False
    return not spelling.isdigit()


def examples() -> str:
    """Returns one spelling of each kind, as a list in a sentence."""
    *others, last = (kind.EXAMPLE for kind in kinds())
    return f"{', '.join(others)} or {last}"


def _possible(text: str) -> str:
    names = [name for kind in kinds() for name in kind.names()]
    near = difflib.get_close_matches(text.partition("(")[0], names, _NAMES_LISTED, cutoff=0.5)
    if near:
        return f"Similar names are {', '.join(near)}; tracer interpret --list-accumulators has all."
    return f"It is one as {examples()}; tracer interpret --list-accumulators has all names."
