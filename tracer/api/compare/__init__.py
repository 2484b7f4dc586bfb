"""Run sides in turn, or read them, and compare them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from analyzers.compare import Comparison
from analyzers.compare import compare as compared
from analyzers.compare.sides import Side, measured, recorded
from analyzers.compare.sweep import Sweeps
from analyzers.compare.sweep import sweep as swept
from tracer.api.compare import values
from tracer.api.compare.rounds import quieter, take_turns
from tracer.api.compare.targets import (
    AtBatch,
    Recorded,
    Settings,
    Target,
    distinct,
    parse,
    refuse_idle,
)
from tracer.errors import ThresholdError, UsageError
from tracer.support.progress import Progress
from tracer.support.tolerance import Tolerance


def compare(
    sides: Sequence[str],
    *,
    by: str = "layer",
    depth: int | None = None,
    settings: Settings = Settings(),  # noqa: B008 - frozen, so one for all is right
    rounds: int | None = None,
    runs: int | None = None,
    tolerance: Tolerance | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare the first of `sides` with each of the others, in time and work.

    Sides are named as on the command line (see `tracer.api.compare.targets`); those that are no
    saved traces are run now, in turn. With a `tolerance`, what they compute is compared too.
    Raises the errors of `tracer.errors`; InputError where there is too little in common.
    """
    if len(sides) < 2:
        raise UsageError("one side alone cannot be compared", "Name two or more.")
    found = distinct([parse(side) for side in sides])
    refuse_idle(found, settings, rounds, runs)
    live = [side for side in found if not isinstance(side, Recorded)]
    taken = iter(_measured(live, settings, rounds, runs, progress))
    ready = [
        recorded(side.label, side.trace, settings.batch)
        if isinstance(side, Recorded)
        else next(taken)
        for side in found
    ]
    result = compared(ready, by, depth)
    if tolerance is None:
        return result
    numbers, notes = values.compared(found, settings, tolerance)
    return replace(result, numbers=numbers, notes=(*result.notes, *notes))


def sweep(
    sides: Sequence[str],
    batches: Sequence[int],
    *,
    settings: Settings = Settings(),  # noqa: B008 - frozen, so one for all is right
    rounds: int | None = None,
    runs: int | None = None,
    progress: Progress | None = None,
) -> Sweeps:
    """Each of `sides` at several batch sizes; a saved trace must have runs of each.

    What is run now takes turns, batch sizes and models alike.
    """
    found = distinct([parse(side) for side in sides])
    refuse_idle(found, settings, rounds, runs)
    live = [
        AtBatch(side.label, side, batch)
        for side in found
        if not isinstance(side, Recorded)
        for batch in batches
    ]
    taken = iter(_measured(live, settings, rounds, runs, progress))
    return Sweeps(
        swept(
            side.label,
            [recorded(side.label, side.trace, batch) for batch in batches]
            if isinstance(side, Recorded)
            else [next(taken) for _ in batches],
        )
        for side in found
    )


def _measured(
    live: Sequence[Target],
    settings: Settings,
    rounds: int | None,
    runs: int | None,
    progress: Progress | None,
) -> list[Side]:
    """Run sides in turn."""
    if not live:
        return []
    kept = quieter(take_turns(live, settings, rounds, runs, progress))
    return [measured(side.label, traces) for side, traces in zip(live, kept, strict=True)]


def check(comparison: Comparison, fail_above: float) -> tuple[str, bool]:
    """One line on whether any side is slower than the first by more than a share, and if so.

    It is where the whole interval of the ratio lies above. Raises ThresholdError where the runs
    are too few for an interval: a gate that cannot tell must not let pass.
    """
    first, *others = comparison.totals.to_dict("records")
    verdicts, failed = [], False
    for row in others:
        low, high = row["ratio_low"] - 1, row["ratio_high"] - 1
        if math.isnan(low):
            raise ThresholdError(
                f"{row['side']}: too few runs, or too uneven ones, to tell whether it is slower",
                "Give --runs and --rounds, or a quieter machine.",
            )
        slower = low > fail_above
        failed = failed or slower
        verdicts.append(
            f"{'FAIL' if slower else 'pass'}: {row['side']} is {_than(row['ratio'])} "
            f"{first['side']} (between {low:+.1%} and {high:+.1%}, allowed {fail_above:+.1%})"
        )
    return "; ".join(verdicts), failed


def _than(ratio: float) -> str:
    """`1.5% slower than`, or what is said where that would be 0.0%."""
    share = f"{abs(ratio - 1):.1%}"
    if share == "0.0%":
        return "as fast as"
    return f"{share} {'slower' if ratio > 1 else 'faster'} than"
