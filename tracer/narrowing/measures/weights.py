"""Weights are rounded to fewer and smaller integers; activations stay as they are."""

from collections.abc import Callable

from tracer.narrowing.fitting import Fit, Grid, as_it_is
from tracer.narrowing.layers import Layer
from tracer.narrowing.measures import Measure


def _propose(layer: Layer, fit: Callable[[Grid], Fit]) -> Fit:
    return fit(as_it_is(layer))


MEASURE = Measure("weights", 0, _propose)
