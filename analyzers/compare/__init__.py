"""Comparison of traces: what differs in time and in work, layer by layer and in total."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pandas as pd

from analyzers.compare import layers, totals
from analyzers.compare.alignment import Layer, align
from analyzers.compare.numbers import Numbers
from analyzers.compare.rows import rows_of
from analyzers.compare.sides import Side
from analyzers.options import refuse_depth
from tracer.errors import InputError, UsageError
from tracer.records.result import Result

MODEL = "model"
_LEAST_COMMON = 0.25
_MOST_SIDES = 26


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Result):
    """Several sides, each of the others against the first.

    `totals` has a row for each side, `layers` one for each layer (see `analyzers.compare.totals`
    and `layers` for the columns); `layers` is None where only totals were asked for. `common` is,
    for each of the others, how many of its rows and of the first's lie in layers of both.
    """

    view: ClassVar[str] = "analyzers.compare.views.comparison"

    sides: tuple[Side, ...]
    by: str
    totals: pd.DataFrame = field(repr=False)
    layers: pd.DataFrame | None = field(repr=False)
    notes: tuple[str, ...]
    numbers: tuple[Numbers, ...] = ()

    def headline(self) -> str:
        """The sides, each with its time relative to the first."""
        rows = self.totals.to_dict("records")
        others = [f"{row['side']} {row['ratio']:.3g} x" for row in rows[1:]]
        return f"{rows[0]['side']}; {', '.join(others)}"


def compare(sides: Sequence[Side], by: str = "layer", depth: int | None = None) -> Comparison:
    """Compare `sides` with the first of them, by `layer`, `module`, `op`, or `model` as a whole.

    `depth` is how many levels of modules are kept apart. Raises UsageError for fewer than two
    sides, and for a depth of anything but modules; InputError where layers are asked for and less
    than a quarter of them line up.
    """
    if not 2 <= len(sides) <= _MOST_SIDES:
        raise UsageError(f"{len(sides)} sides cannot be compared", f"Give from 2 to {_MOST_SIDES}.")
    refuse_depth(by, depth)
    table, notes = None, _notes(sides)
    if by != MODEL:
        rows = [rows_of(side.nodes, side.run.kernels) for side in sides]
        found = align(rows)
        notes += _alignment_notes(sides, found)
        table = layers.table(sides, found, by, depth)
    return Comparison(tuple(sides), by, totals.table(sides), table, notes)


def _alignment_notes(sides: Sequence[Side], found: Sequence[Layer]) -> tuple[str, ...]:
    """Raise InputError where a side has too little in common with the first."""
    notes = []
    for other in range(1, len(sides)):
        counts = [_own(side.nodes) for side in (sides[0], sides[other])]
        both = [layer for layer in found if layer.places[0] and layer.places[other]]
        lined = [
            sum(_own(sides[s].nodes.iloc[list(layer.places[s])]) for layer in both)
            for s in (0, other)
        ]
        what = (
            f"{lined[0]} of {counts[0]} nodes of {sides[0].label} and {lined[1]} of {counts[1]} of "
            f"{sides[other].label}"
        )
        if any(n < _LEAST_COMMON * count for n, count in zip(lined, counts, strict=True)):
            raise InputError(
                f"too little in common to compare by layer: {what} line up, by name, by module, by "
                "operator and shapes in the order of the graph",
                "--by model compares the totals alone.",
            )
        if lined != counts:
            notes.append(f"{what} line up; the others are listed")
    return tuple(notes)


def _own(nodes: pd.DataFrame) -> int:
    """Nodes of the model, without the runtime's own kernels."""
    return int(nodes["index"].notna().sum())


def _notes(sides: Sequence[Side]) -> tuple[str, ...]:
    """What makes a comparison less than fair."""
    notes = []
    apart = [side.label for side in sides if side.rounds_us is None]
    if apart and any(side.trace is not sides[0].trace for side in sides[1:]):
        notes.append(
            f"recorded before, not in turn: {', '.join(apart)}; what the machine did differently "
            "between recordings is in the ratio and in no interval"
        )
    first = sides[0].trace.environment
    for side in sides[1:]:
        here = side.trace.environment
        for what in ("cpu", "cpu_count", "os", "python"):
            old, new = getattr(first, what), getattr(here, what)
            if old != new:
                notes.append(f"{what} differs: {sides[0].label} {old}, {side.label} {new}")
        executor = side.run.executor
        versions = first.packages.get(executor), here.packages.get(executor)
        if executor == sides[0].run.executor and versions[0] != versions[1]:
            notes.append(f"{executor} differs: {versions[0]} and {versions[1]}")
    batches = {side.label: side.run.batch for side in sides}
    if len(set(batches.values())) > 1:
        told = ", ".join(f"{label} {batch}" for label, batch in batches.items())
        notes.append(f"batch sizes differ: {told}; times are per run")
    return tuple(notes)
