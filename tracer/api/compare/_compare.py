"""Runs the sides of a comparison and compares them: see `tracer.compare` and `tracer.sweep`."""

from collections.abc import Sequence
from dataclasses import replace

from tracer.analyzers.compare import MODEL, Comparison
from tracer.analyzers.compare import compare as compare_sides
from tracer.analyzers.compare.sides import Side, measured_side, recorded_side
from tracer.analyzers.compare.sweep import Sweeps
from tracer.analyzers.compare.sweep import sweep as sweep_of
from tracer.analyzers.compare.totals import Equivalent, Gate, NotSlower, verdicts_of
from tracer.analyzers.views.text import plural
from tracer.api.compare import inputs, layers, values
from tracer.api.compare import scores as scoring
from tracer.api.compare.naming import named_sides, refuse_unused
from tracer.api.compare.settings import SideSettings
from tracer.api.compare.sides import LiveSide, NamedSide, OnnxSide, Recorded
from tracer.api.compare.threads import at_each
from tracer.api.compare.whole_runs import Blocks, whole_runs
from tracer.containment import signals
from tracer.inputs.overrides import with_overrides
from tracer.inputs.request import Samples
from tracer.records.trace import INCOMPLETE
from tracer.records.turns import Turns
from tracer.support.progress import Progress, silent
from tracer.support.temporary import TemporaryFolder
from tracer.support.tolerance import Tolerance

_FIRST_RUNS = 5
"""Runs of the profile that tells which kernels a side has, before the turns."""

_LARGE = "weights are too large for all sides at once, so sides do not alternate within a session"


def compare(
    sides: Sequence[str],
    by: str,
    depth: int | None,
    settings: SideSettings,
    tolerance: Tolerance | None,
    threads: Sequence[int] | None,
    data: Samples | None,
    metrics: Sequence[str],
    progress: Progress | None,
) -> Comparison:
    """Compares each of `sides` with the first one, in time and work, and values if tolerated.

    With `data`, it also compares their scores by `metrics`.
    """
    folder = TemporaryFolder()  # goes when this call ends
    chosen = _named(sides, settings)
    if data is not None:
        scoring.check(chosen, data, metrics)
    if threads:
        chosen = at_each(chosen, threads)
    named, divisions = inputs.divided(chosen, settings, folder.path)
    arrays = inputs.shared(named, settings)
    live = inputs.live(named, arrays)
    run_now, pace = _measure(live, by, settings, progress)
    measurements = iter(run_now)
    comparison = compare_sides(
        [
            recorded_side(side.label, side.trace, settings.batch)
            if isinstance(side, Recorded)
            else next(measurements)
            for side in named
        ],
        by,
        depth,
    )
    comparison = replace(comparison, notes=(*comparison.notes, *divisions, *pace))
    if data is not None and not signals.ending():
        scores, unscored = scoring.score(named, data, metrics, settings, progress or silent)
        comparison = replace(comparison, scores=scores, notes=(*comparison.notes, *unscored))
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
    return replace(comparison, verdicts=verdicts_of(comparison.totals, gates))


def sweep(
    sides: Sequence[str],
    batches: Sequence[int],
    settings: SideSettings,
    progress: Progress | None,
) -> Sweeps:
    """Compares the batch sizes of each of `sides`."""
    named = _named(sides, settings)
    by_batch = [_at(named, settings, batch) for batch in batches]
    live = [side for group in zip(*by_batch, strict=True) for side in group]
    measurements = iter(_measure(live, "op", settings, progress)[0])
    return Sweeps(
        sweep_of(
            side.label,
            [recorded_side(side.label, side.trace, batch) for batch in batches]
            if isinstance(side, Recorded)
            else [next(measurements) for _ in batches],
        )
        for side in named
    )


def _named(sides: Sequence[str], settings: SideSettings) -> list[NamedSide]:
    named = named_sides(sides, settings)
    refuse_unused(named, settings)
    return [
        replace(side, model=with_overrides(side.model, side.feeds or settings.feeds))
        if isinstance(side, OnnxSide)
        else side
        for side in named
    ]


def _at(sides: Sequence[NamedSide], settings: SideSettings, batch: int) -> list[LiveSide]:
    arrays = inputs.shared(sides, replace(settings, batch=batch))
    return [replace(side, batch=batch) for side in inputs.live(sides, arrays)]


def _measure(
    live: Sequence[LiveSide], by: str, settings: SideSettings, progress: Progress | None
) -> tuple[list[Side], tuple[str, ...]]:
    """Returns the sides, which ran alternately, and notes on that.

    What a signal left of the sessions is marked incomplete.
    """
    if not live:
        return [], ()
    report = progress or silent
    first = [side.run(_FIRST_RUNS, settings) for side in live]
    runners = [side.runner(settings) for side in live]
    together = not any(side.is_large for side in live)
    blocks: list[Blocks] = [[] for _ in live]
    turns: list[list[Turns]] = [[] for _ in live]
    notes: tuple[str, ...] = () if together else (_LARGE,)
    if together and len(live) > 1:
        blocks, notes = whole_runs(runners, settings, report)
    if (by != MODEL or not any(blocks)) and not signals.ending():
        turns, more = layers.layers(runners, settings, together, report)
        blocks = blocks if any(blocks) else [layers.whole(each) for each in turns]
        notes = (*notes, *more)
    sides = [
        measured_side(side.label, trace, taken, whole)
        for side, trace, taken, whole in zip(live, first, turns, blocks, strict=True)
    ]
    if not signals.ending():
        return sides, notes
    return [_incomplete(side, len(blocks[0])) for side in sides], notes


def _incomplete(side: Side, sessions: int) -> Side:
    note = f"{INCOMPLETE}{signals.ending()}; it has {plural(sessions, 'session')}"
    return replace(side, run=replace(side.run, notes=(note, *side.run.notes)))
