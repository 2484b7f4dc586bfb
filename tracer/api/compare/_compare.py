"""Runs the sides of a comparison and compares them: see `tracer.compare` and `tracer.sweep`."""

from collections.abc import Sequence
from dataclasses import replace

from analyzers.compare import Comparison
from analyzers.compare import compare as compare_sides
from analyzers.compare.gates import Equivalent, Gate, NotSlower, judged
from analyzers.compare.sides import Side, measured, recorded
from analyzers.compare.sweep import Sweeps
from analyzers.compare.sweep import sweep as sweep_of
from tracer.api.compare import inputs, values
from tracer.api.compare.naming import named_sides, refuse_unused
from tracer.api.compare.rounds import quieter, take_turns
from tracer.api.compare.settings import SideSettings
from tracer.api.compare.sides import LiveSide, NamedSide, Recorded
from tracer.containment import signals
from tracer.records.trace import INCOMPLETE
from tracer.support.progress import Progress
from tracer.support.temporary import TemporaryFolder
from tracer.support.tolerance import Tolerance


def compare(
    sides: Sequence[str],
    by: str,
    depth: int | None,
    settings: SideSettings,
    rounds: int | None,
    runs: int | None,
    tolerance: Tolerance | None,
    progress: Progress | None,
) -> Comparison:
    """Compares each of `sides` with the first one, in time and work, and values if tolerated."""
    folder = TemporaryFolder()  # goes when this call ends
    named, divisions = inputs.divided(_named(sides, settings, rounds, runs), settings, folder.path)
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
    comparison = replace(comparison, notes=(*comparison.notes, *divisions))
    if tolerance is None or signals.ending():
        return comparison
    numbers, notes = values.compare_values(named, arrays, settings, tolerance)
    return replace(comparison, numbers=numbers, notes=(*comparison.notes, *notes))


def gated(
    comparison: Comparison, fail_above: float | None, fail_unless_within: float | None
) -> Comparison:
    """Returns the comparison with the verdicts of the gates; None stands for no gate."""
    gates: list[Gate] = []
    if fail_above is not None:
        gates.append(NotSlower(fail_above))
    if fail_unless_within is not None:
        gates.append(Equivalent(fail_unless_within))
    return replace(comparison, verdicts=judged(comparison.totals, gates))


def sweep(
    sides: Sequence[str],
    batches: Sequence[int],
    settings: SideSettings,
    rounds: int | None,
    runs: int | None,
    progress: Progress | None,
) -> Sweeps:
    """Compares the batch sizes of each of `sides`."""
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
    named = named_sides(sides, settings)
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
    """Runs the sides alternately; what a signal left of the rounds is marked incomplete."""
    if not live:
        return []
    turns = take_turns(live, settings, rounds, runs, progress)
    sides = [
        measured(side.label, traces) for side, traces in zip(live, quieter(turns), strict=True)
    ]
    if not signals.ending():
        return sides
    count = len(turns[0])
    note = f"{INCOMPLETE}{signals.ending()}; it has {count} round{'s' if count > 1 else ''}"
    return [replace(side, run=replace(side.run, notes=(note, *side.run.notes))) for side in sides]
