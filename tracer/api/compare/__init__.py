"""Compare models and recordings: alternate runs of the sides that are run now, then compare."""

import math
from collections.abc import Sequence
from dataclasses import replace

from analyzers.compare import Comparison
from analyzers.compare import compare as compare_sides
from analyzers.compare.sides import Side, measured, recorded
from analyzers.compare.sweep import Sweeps
from analyzers.compare.sweep import sweep as sweep_of
from tracer.api.compare import inputs, values
from tracer.api.compare.naming import parse, refuse_unused, with_short_labels
from tracer.api.compare.rounds import quieter, take_turns
from tracer.api.compare.sides import LiveSide, NamedSide, Recorded, SideSettings
from tracer.containment.calls import contained
from tracer.errors import ThresholdError, UsageError
from tracer.support.arguments import check_arguments
from tracer.support.progress import Progress
from tracer.support.tolerance import Tolerance

_DEFAULT = SideSettings()


def compare(
    sides: Sequence[str],
    *,
    by: str = "layer",
    depth: int | None = None,
    settings: SideSettings = _DEFAULT,
    rounds: int | None = None,
    runs: int | None = None,
    tolerance: Tolerance | None = None,
    progress: Progress | None = None,
    in_process: bool = False,
) -> Comparison:
    """Compares each of `sides` with the first one, in time and work.

    Sides are named as on the command line (see `tracer.api.compare.naming`). Those that are not
    saved traces are run now, alternating. With a `tolerance` their values are compared as well, on
    the inputs of the first ONNX model (see `tracer.api.compare.inputs`). They run in a child
    process, or with `in_process` in this one. Raises the errors of `tracer.errors`; InputError if
    the models have too little in common.
    """
    arguments = locals()
    check_arguments(arguments)
    if not in_process:
        return contained(compare, {**arguments, "in_process": True})
    if len(sides) < 2:
        raise UsageError("one side alone cannot be compared", "Name two or more.")
    named = _named(sides, settings, rounds, runs)
    arrays = inputs.shared(named, settings)
    live = inputs.live(named, arrays)
    measurements = iter(_measure(live, settings, rounds, runs, progress))
    comparison = compare_sides(
        [
            recorded(side.label, side.trace, settings.batch)
            if isinstance(side, Recorded)
            else next(measurements)
            for side in named
        ],
        by,
        depth,
    )
    if tolerance is None:
        return comparison
    numbers, notes = values.compare_values(named, arrays, settings, tolerance)
    return replace(comparison, numbers=numbers, notes=(*comparison.notes, *notes))


def sweep(
    sides: Sequence[str],
    batches: Sequence[int],
    *,
    settings: SideSettings = _DEFAULT,
    rounds: int | None = None,
    runs: int | None = None,
    progress: Progress | None = None,
    in_process: bool = False,
) -> Sweeps:
    """Compares batch sizes of each of `sides`; a saved trace must have a run of each.

    Runs alternate between batch sizes and models, in a child process, or with `in_process` in this
    one. Raises UsageError for a side without these sizes, and the other errors of `tracer.errors`.
    """
    arguments = locals()
    check_arguments(arguments)
    if not in_process:
        return contained(sweep, {**arguments, "in_process": True})
    named = _named(sides, settings, rounds, runs)
    by_batch = [_at(named, settings, batch) for batch in batches]
    live = [side for group in zip(*by_batch, strict=True) for side in group]
    measurements = iter(_measure(live, settings, rounds, runs, progress))
    return Sweeps(
        sweep_of(
            side.label,
            [recorded(side.label, side.trace, batch) for batch in batches]
            if isinstance(side, Recorded)
            else [next(measurements) for _ in batches],
        )
        for side in named
    )


def _named(
    sides: Sequence[str], settings: SideSettings, rounds: int | None, runs: int | None
) -> list[NamedSide]:
    named = with_short_labels([parse(side) for side in sides])
    refuse_unused(named, settings, rounds, runs)
    return named


def _at(sides: Sequence[NamedSide], settings: SideSettings, batch: int) -> list[LiveSide]:
    arrays = inputs.shared(sides, replace(settings, batch=batch))
    return [replace(side, batch=batch) for side in inputs.live(sides, arrays)]


def _measure(
    live: Sequence[LiveSide],
    settings: SideSettings,
    rounds: int | None,
    runs: int | None,
    progress: Progress | None,
) -> list[Side]:
    """Runs the sides alternately."""
    if not live:
        return []
    quiet = quieter(take_turns(live, settings, rounds, runs, progress))
    return [measured(side.label, traces) for side, traces in zip(live, quiet, strict=True)]


def check(comparison: Comparison, fail_above: float) -> tuple[str, bool]:
    """Returns a line on whether a side is slower than the first by more than a share, and if so.

    A side fails if its whole confidence interval lies above. Raises ThresholdError if there are
    too few runs for an interval: a gate must not pass what it cannot judge.
    """
    first, *rest = comparison.totals.to_dict("records")
    verdicts, failed = [], False
    for row in rest:
        low, high = row["ratio_low"] - 1, row["ratio_high"] - 1
        if math.isnan(low):
            raise ThresholdError(
                f"{row['side']}: too few runs, or too uneven ones, to tell whether it is slower",
                "Give --runs and --rounds, or a quieter machine.",
            )
        slower = low > fail_above
        failed = failed or slower
        verdicts.append(
            f"{'FAIL' if slower else 'pass'}: {row['side']} is {_relation(row['ratio'])} "
            f"{first['side']} (between {low:+.1%} and {high:+.1%}, allowed {fail_above:+.1%})"
        )
    return "; ".join(verdicts), failed


def _relation(ratio: float) -> str:
    """Returns text such as `1.5% slower than`, or `as fast as` where that would be 0.0%."""
    share = f"{abs(ratio - 1):.1%}"
    if share == "0.0%":
        return "as fast as"
    return f"{share} {'slower' if ratio > 1 else 'faster'} than"
