"""What can be changed so that the sums of a node fit: a function each, marked `@measure`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from tracer.narrowing.fitting import sqnr_db
from tracer.narrowing.fragment import Fragment
from tracer.narrowing.requirement import Need


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change after which the sums of a node fit.

    `write` adds the nodes that take the place of the node. `error` and `power` are the mean squares
    of what the outputs lose and are on the samples; `input_bits` number the integers of the inputs.
    `again` makes the same change for other samples, such as more outputs of a layer. It is None
    for a change that was chosen with all of them.
    """

    write: Callable[[Fragment], None] = field(repr=False)
    error: float
    power: float
    input_bits: int
    again: Callable[[Any], Proposal] | None = field(default=None, repr=False)

    @property
    def sqnr_db(self) -> float:
        """10 log10(power / error); infinite without an error."""
        return sqnr_db(self.error, self.power)


@dataclass(frozen=True, slots=True)
class Measure:
    """A change by its `name`; a lower `rank` changes less, and is preferred where it suffices.

    `propose` returns the best change that makes samples of the type `changes` fit, or None where
    the measure does not apply. A measure that `keeps_values` returns the same numbers: where it
    applies, no other is tried. A `dear` measure adds sums or moves to the graph: it is tried only
    where the others lose too much.
    """

    name: str
    rank: int
    changes: type
    propose: Callable[[Any, Need], Proposal | None]
    keeps_values: bool = False
    dear: bool = False


_MEASURES: list[Measure] = []
Propose = TypeVar("Propose", bound=Callable[..., Proposal | None])


def measure(
    name: str, rank: int, changes: type, *, keeps_values: bool = False, dear: bool = False
) -> Callable[[Propose], Propose]:
    """Makes a measure of a function that proposes a change; the others are fields of Measure."""

    def register(propose: Propose) -> Propose:
        _MEASURES.append(Measure(name, rank, changes, propose, keeps_values, dear))
        return propose

    return register


@cache
def measures() -> tuple[Measure, ...]:
    """Returns all measures, those that change the least first."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return tuple(sorted(_MEASURES, key=lambda measure: (measure.rank, measure.name)))


def best(proposals: Sequence[Proposal | None]) -> Proposal | None:
    """Returns the proposal with the least error; the first of several."""
    found = [each for each in proposals if each is not None]
    return min(found, key=lambda each: each.error, default=None)


def falling(attempts: Sequence[Callable[[], Proposal | None]]) -> Proposal | None:
    """Makes one attempt after the other until the error grows; returns the best."""
    least: Proposal | None = None
    for attempt in attempts:
        found = attempt()
        if found is not None and least is not None and found.error > least.error:
            break
        least = found or least
    return least
