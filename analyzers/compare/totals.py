"""The table of totals of a comparison, and the gates for CI that judge them.

A gate is a condition on the time of a side, judged by its confidence interval. A gate that looked
at the ratio alone would fail and pass by chance. These fail or pass for what the interval shows,
and where there is no interval they do not pass.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from tracer.analyzers.compare.alignment import is_convolution
from tracer.analyzers.compare.contrast import LEVEL, Contrast, contrast
from tracer.analyzers.compare.sides import Side
from tracer.analyzers.grouping import by_node
from tracer.analyzers.operations import backward_share

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
    result = Contrast(1.0) if side is first else contrast(first.wall, side.wall)
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
        "significant": result.p < LEVEL,
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
