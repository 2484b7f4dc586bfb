"""Gates for CI: conditions on the time of each side, judged by its confidence interval.

A gate that looked at the ratio alone would fail and pass by chance. These fail or pass for what the
interval shows, and where there is no interval they do not pass.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import pandas as pd

Outcome = Literal["pass", "FAIL", "undecided"]


class Gate(Protocol):
    """A condition on the time of a side, as a share of the first side's."""

    @property
    def option(self) -> str:
        """The option of the command line that sets it, with its value."""

    @property
    def allowed(self) -> str:
        """The changes of time that it allows."""

    def holds(self, low: float, high: float) -> bool:
        """Whether a side passes whose time changed by `low` to `high`, as shares."""


@dataclass(frozen=True, slots=True)
class NotSlower:
    """Fails a side that is shown to be slower by more than `share`."""

    share: float

    @property
    def option(self) -> str:
        """As on the command line."""
        return f"--fail-above {100 * self.share:g}%"

    @property
    def allowed(self) -> str:
        """The largest change."""
        return f"{self.share:+.1%}"

    def holds(self, low: float, high: float) -> bool:
        """Whether the interval reaches down to `share`."""
        return low <= self.share


@dataclass(frozen=True, slots=True)
class Equivalent:
    """Fails a side that is not shown to be as fast, within `share` either way.

    Both ends of the interval lie within: two one-sided tests (Schuirmann, 1987).
    """

    share: float

    @property
    def option(self) -> str:
        """As on the command line."""
        return f"--fail-unless-within {100 * self.share:g}%"

    @property
    def allowed(self) -> str:
        """The largest change either way."""
        return f"±{self.share:.1%}"

    def holds(self, low: float, high: float) -> bool:
        """Whether all of the interval lies within."""
        return -self.share <= low and high <= self.share


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


def judged(totals: pd.DataFrame, gates: Sequence[Gate]) -> tuple[Verdict, ...]:
    """Returns the verdict of each gate on every side but the first.

    `totals` are those of `tracer.analyzers.compare.totals`, the first side in the first row.
    """
    first, *others = totals.to_dict("records")
    return tuple(
        _verdict(
            gate,
            str(side["side"]),
            str(first["side"]),
            (side["ratio"] - 1, side["ratio_low"] - 1, side["ratio_high"] - 1),
        )
        for gate in gates
        for side in others
    )


def _verdict(gate: Gate, side: str, first: str, changes: tuple[float, float, float]) -> Verdict:
    change, low, high = changes
    if math.isnan(low):
        line = (
            f"undecided: {side} has too few runs, or too uneven ones, for a confidence interval; "
            "give them more time, or a quieter machine"
        )
        return Verdict(side, gate.option, "undecided", line)
    outcome: Outcome = "pass" if gate.holds(low, high) else "FAIL"
    line = (
        f"{outcome}: {side} is {_relation(change)} {first} "
        f"(between {low:+.1%} and {high:+.1%}, allowed {gate.allowed})"
    )
    return Verdict(side, gate.option, outcome, line)


def _relation(change: float) -> str:
    """Returns text such as `1.5% slower than`, or `as fast as` where that would be 0.0%."""
    share = f"{abs(change):.1%}"
    if share == "0.0%":
        return "as fast as"
    return f"{share} {'slower' if change > 0 else 'faster'} than"
