"""What can be changed so that a layer fits: a module each, with a `MEASURE`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from tracer.narrowing.fitting import Fit, Grid
from tracer.narrowing.layers import Layer


@dataclass(frozen=True, slots=True)
class Measure:
    """A change by its `name`; a lower `rank` changes less, and is preferred where it suffices.

    `propose` returns the best fit of a layer that it finds; it is given a function that fits the
    weights of the layer to inputs on a grid.
    """

    name: str
    rank: int
    propose: Callable[[Layer, Callable[[Grid], Fit]], Fit]


@cache
def measures() -> tuple[Measure, ...]:
    """Returns all measures, those that change the least first."""
    modules = (
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
    )
    found: list[Measure] = [module.MEASURE for module in modules]
    return tuple(sorted(found, key=lambda measure: measure.rank))
