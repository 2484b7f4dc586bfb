"""Run sides in turn, or read them, and compare them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tracer.comparison.targets import Recorded, Settings, distinct, parse
from tracer.errors import ThresholdError, UsageError

if TYPE_CHECKING:
    from analyzers.compare import Comparison
    from analyzers.compare.sides import Side
    from analyzers.compare.sweep import Sweep
    from tracer.comparison.targets import Target
    from tracer.interpreter.comparison import Tolerance

Progress = Callable[[int, int, str], None]


def compare(
    sides: Sequence[str],
    *,
    by: str = "layer",
    settings: Settings = Settings(),  # noqa: B008 - frozen, so one for all is right
    rounds: int | None = None,
    runs: int | None = None,
    tolerance: Tolerance | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare the first of `sides` with each of the others, in time and work.

    Sides are named as on the command line (see `tracer.comparison.targets`); those that are no
    saved traces are run now, in turn. With a `tolerance`, what they compute is compared too.
    Raises the errors of `tracer.errors`; InputError where there is too little in common.
    """
    from analyzers.compare import compare as compared
    from analyzers.compare.sides import measured, recorded
    from tracer.comparison import rounds as turns
    from tracer.comparison import values

    if len(sides) < 2:
        raise UsageError("one side alone cannot be compared", "Name two or more.")
    found = distinct([parse(side) for side in sides])
    live = [side for side in found if not isinstance(side, Recorded)]
    traces = turns.quieter(turns.take_turns(live, settings, rounds, runs, progress)) if live else []
    taken = iter(traces)
    ready: list[Side] = [
        recorded(side.label, side.trace, settings.batch)
        if isinstance(side, Recorded)
        else measured(side.label, next(taken))
        for side in found
    ]
    result = compared(ready, by)
    if tolerance is None:
        return result
    numbers, notes = values.compared(found, settings, tolerance)
    return replace(result, numbers=numbers, notes=(*result.notes, *notes))


def sweep(
    sides: Sequence[str],
    batches: Sequence[int],
    *,
    settings: Settings = Settings(),  # noqa: B008 - frozen, so one for all is right
    runs: int | None = None,
    progress: Progress | None = None,
) -> tuple[Sweep, ...]:
    """Each of `sides` at several batch sizes; of a saved trace, those it has among them."""
    from analyzers.compare.sides import recorded
    from analyzers.compare.sweep import sweep as swept

    def at(side: Recorded | Target, batch: int) -> Side:
        if isinstance(side, Recorded):
            return recorded(side.label, side.trace, batch)
        trace = side.run(runs, replace(settings, batch=batch), progress)
        return recorded(side.label, trace)

    found = distinct([parse(side) for side in sides])
    return tuple(swept(side.label, [at(side, batch) for batch in batches]) for side in found)


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
        way = "slower" if row["ratio"] > 1 else "faster"
        verdicts.append(
            f"{'FAIL' if slower else 'pass'}: {row['side']} is {abs(row['ratio'] - 1):.1%} {way} "
            f"than {first['side']} (between {low:+.1%} and {high:+.1%}, allowed {fail_above:+.1%})"
        )
    return "; ".join(verdicts), failed
