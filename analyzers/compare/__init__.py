"""Compare traces in time and work, by layer and in total, and judge them by gates for CI.

A gate is a condition on the time of a side, judged by its confidence interval. A gate that looked
at the ratio alone would fail and pass by chance. These fail or pass for what the interval shows,
and where there is no interval they do not pass.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd

from tracer.analyzers.compare import contrast
from tracer.analyzers.compare.alignment import Layer, align, is_convolution, layer_rows
from tracer.analyzers.compare.layers import (
    LayerSum,
    layer_sums,
    layer_table,
    slower_quantized_notes,
)
from tracer.analyzers.compare.numbers import Numbers, Scores
from tracer.analyzers.compare.sides import Side, with_lent_work
from tracer.analyzers.grouping import by_node
from tracer.analyzers.options import refuse_depth
from tracer.analyzers.table import backward_share
from tracer.errors import InputError, UsageError
from tracer.records.result import Result

Outcome = Literal["pass", "FAIL", "undecided"]


def total_table(sides: Sequence[Side]) -> pd.DataFrame:
    """Returns a row for each side.

    Columns: `side`, `model`, `executor`, `batch`, `time_us` (of a run without profiler), its
    standard error `error_us`, `ratio` to the first, `ratio_low`, `ratio_high`, `p`, `significant`,
    `convolution_share` (of node time, fused convolutions included), `backward_share` (if
    backward passes were traced), `macs`, `flops`, `params`, `bytes`, `flops_per_s`.
    """
    rows = [_row(sides[0], side) for side in sides]
    integers = ("batch", "macs", "flops", "params", "bytes")
    return pd.DataFrame(rows).astype(dict.fromkeys(integers, "Int64"))


def _row(first: Side, side: Side) -> dict[str, object]:
    result = contrast.Contrast(1.0) if side is first else contrast.contrast(first.wall, side.wall)
    nodes = by_node(side.nodes.assign(time_us=side.time_us))
    backward = backward_share(nodes)
    trains = side.lender is not None and backward is not None
    work = {name: None if trains else side.total_of(name) for name in ("macs", "flops")}
    moved = [side.total_of(name) for name in ("bytes_read", "bytes_written")]
    matching = [is_convolution(str(ops)) for ops in nodes["op_type"].tolist()]
    total, convolutions = float(nodes["time_us"].sum()), float(nodes["time_us"][matching].sum())
    flops, params = work["flops"], side.trace.model.params
    return {
        "side": side.label,
        "model": side.trace.model.name,
        "executor": side.run.executor,
        "batch": side.run.batch,
        "time_us": side.wall.mean,
        "error_us": side.wall.error,
        "ratio": result.ratio,
        "ratio_low": result.low,
        "ratio_high": result.high,
        "p": result.p,
        "significant": result.p < contrast.LEVEL,
        "convolution_share": convolutions / total if total else math.nan,
        "backward_share": math.nan if backward is None else backward,
        **work,
        "params": params if params is not None else side.total_of("params"),
        "bytes": None if None in moved else sum(value for value in moved if value is not None),
        "flops_per_s": 1e6 * flops / side.wall.mean if flops and side.wall.mean else math.nan,
    }


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition on the time of a side, as a share of the first side's.

    `option` is that of the command line with its value, `allowed` the changes of time that it
    allows, and `holds` tells whether an interval of changes, by its ends, meets it.
    """

    option: str
    allowed: str
    holds: Callable[[float, float], bool]


def not_slower(share: float) -> Gate:
    """Returns a gate that fails a side that is shown to be slower by more than `share`."""
    option, allowed = f"--fail-above {100 * share:g}%", f"{share:+.1%}"
    return Gate(option, allowed, lambda low, high: low <= share)


def equivalent(share: float) -> Gate:
    """Returns a gate that fails a side not shown to be as fast, within `share` either way.

    Both ends of the interval lie within: two one-sided tests (Schuirmann, 1987).
    """
    option, allowed = f"--fail-unless-within {100 * share:g}%", f"±{share:.1%}"
    return Gate(option, allowed, lambda low, high: -share <= low and high <= share)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a gate says of a side: its outcome, and a line that explains it."""

    side: str
    gate: str
    outcome: Outcome
    line: str

    @property
    def passed(self) -> bool:
        """Whether the side is shown to meet the condition."""
        return self.outcome == "pass"


def verdicts_of(totals: pd.DataFrame, gates: Sequence[Gate]) -> tuple[Verdict, ...]:
    """Returns the verdict of each gate on every side but the first, which has the first row."""
    first, *others = totals.to_dict("records")
    return tuple(_verdict(gate, side, str(first["side"])) for gate in gates for side in others)


def _verdict(gate: Gate, side: Mapping[Hashable, Any], first: str) -> Verdict:
    name = str(side["side"])
    change, low, high = (side[end] - 1 for end in ("ratio", "ratio_low", "ratio_high"))
    if math.isnan(low):
        line = (
            f"undecided: {name} has too few runs, or too uneven ones, for a confidence interval; "
            "give them more time, or a quieter machine"
        )
        return Verdict(name, gate.option, "undecided", line)
    outcome: Outcome = "pass" if gate.holds(low, high) else "FAIL"
    share = f"{abs(change):.1%}"
    relation = f"{share} {'slower' if change > 0 else 'faster'} than"
    line = (
        f"{outcome}: {name} is {'as fast as' if share == '0.0%' else relation} {first} "
        f"(between {low:+.1%} and {high:+.1%}, allowed {gate.allowed})"
    )
    return Verdict(name, gate.option, outcome, line)


MODEL = "model"
_LEAST_COMMON = 0.25
_MOST_SIDES = 26


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Comparison(Result):
    """Several sides, each compared with the first.

    `totals` has a row for each side, `layers` a row for each layer (see `total_table`
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
                "tracer compare --by model compares the totals alone.",
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
