"""Compare traces in time and work, by layer and in total."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pandas as pd

from tracer.analyzers.compare.alignment import Layer, align, layer_rows
from tracer.analyzers.compare.layers import (
    LayerSum,
    layer_sums,
    layer_table,
    slower_quantized_notes,
)
from tracer.analyzers.compare.numbers import Numbers, Scores
from tracer.analyzers.compare.sides import Side, with_lent_work
from tracer.analyzers.compare.totals import Verdict, total_table
from tracer.analyzers.options import refuse_depth
from tracer.errors import InputError, UsageError
from tracer.records.result import Result

MODEL = "model"
_LEAST_COMMON = 0.25
_MOST_SIDES = 26


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Result):
    """Several sides, each compared with the first.

    `totals` has a row for each side, `layers` a row for each layer (see `analyzers.compare.totals`
    and `layers` for the columns), and `groups` the rows of the sides' tables that make a layer.
    `layers` is None for a comparison by model. `scores` are those of a data set. `sums` hold the
    layers against whole runs, for sides that took turns. `verdicts` are those of the gates, if
    there are any.
    """

    view: ClassVar[str] = "tracer.analyzers.compare.views"

    sides: tuple[Side, ...]
    by: str
    totals: pd.DataFrame = field(repr=False)
    layers: pd.DataFrame | None = field(repr=False)
    notes: tuple[str, ...]
    numbers: tuple[Numbers, ...] = ()
    groups: tuple[Layer, ...] = field(default=(), repr=False)
    sums: tuple[LayerSum, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    scores: tuple[Scores, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all gates let it pass, and no compared values differ."""
        return not self.differ and all(verdict.passed for verdict in self.verdicts)

    @property
    def differ(self) -> bool:
        """Whether compared values of any side differ from the first side's."""
        return any(numbers.differ for numbers in self.numbers)

    @property
    def is_incomplete(self) -> bool:
        """Whether the runs of any side were broken off."""
        return any(side.is_incomplete for side in self.sides)

    def headline(self) -> str:
        """The sides, each with its time relative to the first."""
        rows = self.totals.to_dict("records")
        others = [f"{row['side']} {row['ratio']:.3g} x" for row in rows[1:]]
        return f"{rows[0]['side']}; {', '.join(others)}"


def compare(sides: Sequence[Side], by: str = "layer", depth: int | None = None) -> Comparison:
    """Compares `sides` with the first of them, by `layer`, `module`, `op`, or in total (`model`).

    `depth` is the number of module levels that stay separate. Raises UsageError for fewer than two
    sides and for a depth without `module`; InputError if less than a quarter of the nodes of a side
    match.
    """
    if not 2 <= len(sides) <= _MOST_SIDES:
        raise UsageError(f"{len(sides)} sides cannot be compared", f"Give from 2 to {_MOST_SIDES}.")
    refuse_depth(by, depth)
    notes = _notes(sides)
    table: pd.DataFrame | None = None
    groups: tuple[Layer, ...] = ()
    if by != MODEL:
        rows = [layer_rows(side.nodes, side.run.kernels) for side in sides]
        aligned = align(rows)
        notes += _alignment_notes(sides, aligned)
        sides = with_lent_work(sides, aligned)
        table, groups = layer_table(sides, aligned, by, depth)
        notes += tuple(slower_quantized_notes(sides, table, groups))
    whole = total_table(sides)
    sums = layer_sums(sides, groups, whole) if groups else ()
    return Comparison(tuple(sides), by, whole, table, notes, groups=groups, sums=sums)


def _alignment_notes(sides: Sequence[Side], aligned: Sequence[Layer]) -> tuple[str, ...]:
    """Returns notes on unmatched nodes. Raises InputError if too few match."""
    notes = []
    for other in range(1, len(sides)):
        counts = [_node_count(side.nodes) for side in (sides[0], sides[other])]
        both = [layer for layer in aligned if layer.rows[0] and layer.rows[other]]
        matched = [
            _node_count(sides[s].nodes.iloc[[row for layer in both for row in layer.rows[s]]])
            for s in (0, other)
        ]
        match = (
            f"{matched[0]} of {counts[0]} nodes of {sides[0].label} "
            f"and {matched[1]} of {counts[1]} of {sides[other].label}"
        )
        if any(n < _LEAST_COMMON * count for n, count in zip(matched, counts, strict=True)):
            raise InputError(
                f"too little in common to compare by layer: {match} line up, by name, by module, "
                "by operator and shapes in the order of the graph",
                "--by model compares the totals alone.",
            )
        if matched != counts:
            notes.append(f"{match} line up; the rest are listed separately")
    return tuple(notes)


def _device_note(side: Side) -> str:
    """Returns what share of a whole run a framework's kernels took on a card; '' on the CPU."""
    if not side.run.is_on_device:
        return ""
    device_us = float(np.median(side.run.samples.sum(axis=1)))
    wall_us = float(np.median(side.run.wall_us))
    return (
        f"layers of {side.label} have the time of their kernels on the card: "
        f"{device_us:,.0f} of {wall_us:,.0f} µs of a whole run, in which the host also launches "
        "them and the card may wait"
    )


def _node_count(nodes: pd.DataFrame) -> int:
    """Returns the number of nodes of the model, without the runtime's own kernels."""
    return int(nodes["index"].notna().sum())


def _notes(sides: Sequence[Side]) -> tuple[str, ...]:
    """Returns notes on differences of machine, version and batch that limit the comparison."""
    notes = []
    recorded = [side.label for side in sides if side.turns_us is None]
    if recorded and any(side.trace is not sides[0].trace for side in sides[1:]):
        notes.append(
            f"recorded earlier, not alternating: {', '.join(recorded)}; the ratio includes changes "
            "of the machine between recordings, and the interval does not cover them"
        )
    first = sides[0].trace.environment
    for side in sides[1:]:
        second = side.trace.environment
        for name in ("cpu", "cpu_count", "os", "python"):
            old, new = getattr(first, name), getattr(second, name)
            if old != new:
                notes.append(f"{name} differs: {sides[0].label} {old}, {side.label} {new}")
        executor = side.run.executor
        versions = first.version(executor), second.version(executor)
        if executor == sides[0].run.executor and versions[0] != versions[1]:
            notes.append(f"{executor} differs: {versions[0]} and {versions[1]}")
    notes += [note for side in sides if (note := _device_note(side))]
    batches = {side.label: side.run.batch for side in sides}
    if len(set(batches.values())) > 1:
        listed = ", ".join(f"{label} {batch}" for label, batch in batches.items())
        notes.append(f"batch sizes differ: {listed}; times are per run")
    return tuple(notes)
