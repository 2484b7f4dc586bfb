"""What is tried: a function for each change says why it may help, and is marked `@change`.

Each module here is found.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from tracer.errors import UsageError
from tracer.support.suggestions import suggest
from tracer.tuning.findings import LATENCY, MEMORY, THROUGHPUT, Findings
from tracer.tuning.setup import Setup

Effect = Literal["exact", "rounding", "float16", "quantize"]
"""What a change does to results: nothing, another rounding of floats, floats of 16 bits, integers
of few bits. The last two are tried only where the user allows them."""

Applies: TypeAlias = Callable[[Findings], str | None]
ALLOWED = ("exact", "rounding")
EVERY_GOAL = (LATENCY, THROUGHPUT, MEMORY)


@dataclass(frozen=True, slots=True)
class Change:
    """A change that can be tried, by its `name`.

    `applies` returns why it may help, by the profile, or None. `values` lists the forms to try, and
    `apply` makes one of them; it raises TracerError for what cannot be made. `command` tells how to
    make the changed model of a setup; it is None for a change of settings. Changes are applied in
    the order of `rank`: those of the model come first.
    """

    name: str
    effect: Effect
    rank: int
    applies: Applies
    values: Callable[[Findings], Sequence[str]]
    apply: Callable[[Setup, str], Setup]
    command: Callable[[Setup, str, str], str] | None = None
    goals: tuple[str, ...] = EVERY_GOAL


_CHANGES: list[Change] = []


def change(
    name: str,
    effect: Effect,
    rank: int,
    values: Callable[[Findings], Sequence[str]],
    apply: Callable[[Setup, str], Setup],
    *,
    command: Callable[[Setup, str, str], str] | None = None,
    goals: tuple[str, ...] = EVERY_GOAL,
) -> Callable[[Applies], Applies]:
    """Makes a change of a function that says why it may help; the others are fields of Change."""

    def register(applies: Applies) -> Applies:
        _CHANGES.append(Change(name, effect, rank, applies, values, apply, command, goals))
        return applies

    return register


def one_form(value: str) -> Callable[[Findings], Sequence[str]]:
    """Returns the `values` of a change that has a single form."""
    return lambda findings: [value]


@dataclass(frozen=True, slots=True)
class Step:
    """One form of a change."""

    change: Change
    value: str

    def apply(self, setup: Setup) -> Setup:
        """Returns `setup` with this form of the change.

        Raises UsageError for a form that the change does not have, and the errors of the change.
        """
        try:
            return self.change.apply(setup, self.value)
        except (ValueError, KeyError) as error:
            raise UsageError(
                f"{self} is no form of this change", "tracer tune names the forms that it tries."
            ) from error

    def __str__(self) -> str:
        """Returns `threads=2`."""
        return f"{self.change.name}={self.value}"


Steps: TypeAlias = tuple[Step, ...]


@cache
def changes() -> tuple[Change, ...]:
    """Returns all changes, in the order in which they are applied."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return tuple(sorted(_CHANGES, key=lambda change: (change.rank, change.name)))


def find(name: str) -> Change:
    """Returns the change of this name. Raises UsageError for an unknown name."""
    for change in changes():
        if change.name == name:
            return change
    names = [change.name for change in changes()]
    hint = f"{suggest(name, names)}There are {', '.join(names)}."
    raise UsageError(f"there is no change '{name}'", hint)


def ordered(steps: Sequence[Step]) -> Steps:
    """Returns steps in the order in which they are applied."""
    return tuple(sorted(steps, key=lambda step: changes().index(step.change)))


def parsed(texts: Sequence[str]) -> Steps:
    """Returns the steps of texts such as `threads=2`, in the order in which they are applied.

    Raises UsageError for another text, and for an unknown change.
    """
    steps = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise UsageError(f"'{text}' is no change and its form", "Write one as folding=shapes.")
        steps.append(Step(find(name), value))
    return ordered(steps)
