"""Changes the layers of a quantised graph until their sums fit, each on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from tracer.narrowing.editing import written
from tracer.narrowing.fitting import Fit, Grid, fits_already, fitted
from tracer.narrowing.layers import Layer
from tracer.narrowing.measures import Measure, measures
from tracer.support.progress import Progress, silent
from tracer.support.types import FloatArray

_ENOUGH_DB = 0.5
"""A measure that changes less is kept where a better one gains no more than this."""


@dataclass(frozen=True, slots=True)
class Change:
    """A layer that sums in `bits` bits, by which measure; without `fit` it did so already."""

    layer: Layer = field(repr=False)
    bits: int
    measure: str
    fit: Fit | None = field(repr=False)


def narrowed(
    proto: onnx.ModelProto,
    layers: Sequence[tuple[Layer, int]],
    columns: Mapping[str, FloatArray],
    progress: Progress | None = None,
) -> tuple[onnx.ModelProto, tuple[Change, ...]]:
    """Returns the graph with each layer fitted to its bits, and what was changed.

    `columns` are what the layers read, by key, as `samples.sampled` returns them.
    """
    report, changes = progress or silent, list[Change]()
    for done, (layer, bits) in enumerate(layers, 1):
        changes.append(_change(layer, bits, columns[layer.key]))
        report(done, len(layers), "fitting layers")
    fits = [(each.layer, each.fit) for each in changes if each.fit is not None]
    return written(proto, fits), tuple(changes)


def _change(layer: Layer, bits: int, columns: FloatArray) -> Change:
    if fits_already(layer, bits):
        return Change(layer, bits, "", None)

    def fit(grid: Grid) -> Fit:
        return fitted(layer, columns, grid, bits)

    proposals = [(each, each.propose(layer, fit)) for each in measures()]
    best = max(found.sqnr_db for _, found in proposals)
    measure, found = _cheapest(proposals, best - _ENOUGH_DB)
    return Change(layer, bits, measure.name, found)


def _cheapest(proposals: list[tuple[Measure, Fit]], least_db: float) -> tuple[Measure, Fit]:
    return next(each for each in proposals if each[1].sqnr_db >= least_db)
