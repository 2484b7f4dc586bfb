"""Runs the sides of a comparison and compares them: see `tracer.compare` and `tracer.sweep`.

Whole runs of the live sides are timed without a profiler, layers with one, in sessions of their
own in which the sides take turns.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tracer.analyzers.compare import MODEL, Comparison, equivalent, not_slower, verdicts_of
from tracer.analyzers.compare import compare as compare_sides
from tracer.analyzers.compare.contrast import FINEST, of_sessions
from tracer.analyzers.compare.numbers import Numbers, Scores
from tracer.analyzers.compare.sides import Side, measured_side, recorded_side
from tracer.analyzers.compare.sweep import Sweeps
from tracer.analyzers.compare.sweep import sweep as sweep_of
from tracer.api.compare import CompareArguments, SideSettings, SweepArguments, naming, values
from tracer.api.compare.sides import LiveSide, NamedSide, OnnxSide, Recorded, Runner, with_releases
from tracer.containment import signals
from tracer.containment.activity import Progress
from tracer.executors.measuring import Pace, by_side, keeping, sessions
from tracer.exporters.subject import ModelSource
from tracer.inputs.request import Samples, with_overrides
from tracer.records.trace import INCOMPLETE, Trace, Turns
from tracer.support.temporary import TemporaryFolder
from tracer.support.types import FloatArray
from tracer.text import plural

PACES = {
    "whole runs": Pace(block_us=100.0, least_runs=1, session_s=0.05),
    "layers": Pace(block_us=500.0, least_runs=5, session_s=0.1),
}
"""Blocks of layers are longer than those of whole runs: a profiler's clock that counts whole µs
tells a layer of some µs only on average over runs."""

_LEAST_SESSIONS = {"whole runs": 4, "layers": 8}
"""Fewer sessions of layers leave an interval too wide to hold against a test of many layers at
once."""

_PASS = 8
"""Sessions between two looks at the interval: each look more would end a few turns too early."""

_LARGE = "weights are too large for all sides at once, so sides do not alternate within a session"

_NO_TIME = "values were not compared: the time of --max-seconds ended"

Blocks = list[FloatArray]
"""Median time of the runs of each block, µs: an array for each session."""


def compare(call: CompareArguments) -> Comparison:
    """Compares the sides in time and work, and in scores and values if these are asked for."""
    with with_releases(open_sides(call.sides, call.settings), call.report) as chosen:
        folder = TemporaryFolder()  # goes when this call ends
        settings, progress, scoring = call.settings, call.report, None
        if call.test is not None:
            data = Samples(str(call.test), call.test_limit, Path(call.data_dir))
            scoring = values.Scoring(data, call.metrics or ())
            values.check_scoring(chosen, scoring)
        if call.threads:
            chosen = naming.at_each_threads(chosen, call.threads)
        named, divisions = naming.with_own_inputs(chosen, settings, folder.path)
        arrays = naming.shared_inputs(named, settings)
        run_now, pace = measure(naming.live_sides(named, arrays), call.by, settings, progress)
        measurements = iter(run_now)
        compared = [
            recorded_side(side.label, side.trace, settings.batch)
            if isinstance(side, Recorded)
            else next(measurements)
            for side in named
        ]
        comparison = compare_sides(compared, call.by, call.depth)
        notes = [*comparison.notes, *divisions, *pace]
        scores, numbers = tuple[Scores, ...](), tuple[Numbers, ...]()
        if scoring is not None and not signals.ending():
            scores, unscored = values.compare_scores(named, scoring, settings, progress)
            notes += unscored
        if call.tolerance is not None and not signals.ending():
            try:
                numbers, unequal = values.compare_values(named, arrays, settings, call.tolerance)
            except signals.TimeUp:
                if not signals.settle():
                    raise
                signals.keep(True)  # the times, which are complete
                unequal = (_NO_TIME,)
            notes += unequal
        gates = [] if call.fail_above is None else [not_slower(call.fail_above)]
        if call.fail_unless_within is not None:
            gates.append(equivalent(call.fail_unless_within))
        verdicts = verdicts_of(comparison.totals, gates)
        return replace(
            comparison, notes=tuple(notes), scores=scores, numbers=numbers, verdicts=verdicts
        )


def sweep(call: SweepArguments) -> Sweeps:
    """Compares the batch sizes of each side."""
    with with_releases(open_sides(call.sides, call.settings), call.report) as named:
        settings, batches = call.settings, call.batches
        by_batch: list[list[LiveSide]] = []
        for batch in batches:
            arrays = naming.shared_inputs(named, replace(settings, batch=batch))
            by_batch.append(
                [replace(side, batch=batch) for side in naming.live_sides(named, arrays)]
            )
        live = [side for group in zip(*by_batch, strict=True) for side in group]
        measurements = iter(measure(live, "op", settings, call.report)[0])
        return Sweeps(
            sweep_of(
                side.label,
                [recorded_side(side.label, side.trace, batch) for batch in batches]
                if isinstance(side, Recorded)
                else [next(measurements) for _ in batches],
            )
            for side in named
        )


def open_sides(sides: "Sequence[ModelSource | Trace]", settings: SideSettings) -> list[NamedSide]:
    """Returns the sides as they run. Raises the errors of `naming.named_sides`."""
    named = naming.named_sides(sides, settings)
    naming.refuse_unused(named, settings)
    return [
        replace(side, model=with_overrides(side.model, side.feeds or settings.inputs))
        if isinstance(side, OnnxSide)
        else side
        for side in named
    ]


def measure(
    live: Sequence[LiveSide], by: str, settings: SideSettings, progress: Progress,
    first: Sequence[Trace] = (),
) -> tuple[list[Side], tuple[str, ...]]:  # fmt: skip
    """Returns the sides, which ran alternately, and notes on that.

    `first` are their profiles, where these are made. What a signal left of the sessions is marked
    incomplete.
    """
    if not live:
        return [], ()
    first = first or [side.run(settings) for side in live]
    runners = [side.runner(settings) for side in live]
    together = not any(side.is_large for side in live)
    blocks: list[Blocks] = [[] for _ in live]
    turns: list[list[Turns]] = [[] for _ in live]
    notes: tuple[str, ...] = () if together else (_LARGE,)
    if together and len(live) > 1:
        blocks, notes = whole_runs(runners, settings, progress)
    if (by != MODEL or not any(blocks)) and not signals.ending():
        turns, more = layer_turns(runners, settings, together, progress)
        if not any(blocks):  # the median undisturbed run of each session is its only block
            blocks = [[np.array([np.median(each.wall_us)]) for each in side] for side in turns]
        notes = (*notes, *more)
    sides = [
        measured_side(side.label, trace, taken, whole)
        for side, trace, taken, whole in zip(live, first, turns, blocks, strict=True)
    ]
    if not signals.ending():
        return sides, notes
    incomplete = f"{INCOMPLETE}{signals.ending()}; it has {plural(len(blocks[0]), 'session')}"
    return [
        replace(side, run=replace(side.run, notes=(incomplete, *side.run.notes))) for side in sides
    ], notes


def whole_runs(
    runners: Sequence[Runner], settings: SideSettings, progress: Progress
) -> tuple[list[Blocks], tuple[str, ...]]:
    """Returns the blocks of each side, and a note on how exact their ratios are.

    In a session all sides have the same number of blocks, which belong together by position.
    After `settings.sessions` further ones are made until all intervals lie within
    `settings.precision` of their ratio, or the time is up. A signal leaves the sessions that are
    complete by then.
    """

    def is_enough(made: Sequence[Sequence[FloatArray]]) -> bool:
        further = len(made) - settings.sessions
        if further < 0 or further % _PASS:
            return False
        return _half_width(by_side(made, len(runners))) <= settings.precision

    openers = [runner.whole_runs for runner in runners]
    report = keeping(progress, "comparing whole runs")
    pace, least = _pace("whole runs", runners), _LEAST_SESSIONS["whole runs"]
    made = sessions(openers, pace, settings, True, least, is_enough, report)
    blocks = by_side(made, len(runners))
    if len(made) < 2:
        return blocks, ()
    reached, turns = _half_width(blocks), sum(map(len, blocks[0]))
    count = f"{len(made)} sessions of each side, {plural(turns, 'turn')}"
    if reached <= settings.precision:
        return blocks, (f"whole runs took turns in {count}",)
    advice = "--max-seconds allows more time, --precision less"
    if settings.precision < FINEST:
        advice = f"two sides may differ by ±{FINEST:.2g} through their places in memory alone"
    exact = f"±{reached:.2g}, not ±{settings.precision:.2g}"
    return blocks, (f"whole runs are compared to {exact}, in {count}: {advice}",)


def _pace(what: str, runners: Sequence[Runner]) -> Pace:
    pace = PACES[what]
    return replace(pace, block_us=max(pace.block_us, *(each.block_us for each in runners)))


def _half_width(blocks: Sequence[Blocks]) -> float:
    """Returns half the width of the widest interval, as a share of its ratio."""
    first, *others = blocks
    contrasts = [of_sessions(first, other) for other in others]
    return max((each.high - each.low) / (2 * each.ratio) for each in contrasts)


def layer_turns(
    runners: Sequence[Runner], settings: SideSettings, together: bool, progress: Progress
) -> tuple[list[list[Turns]], tuple[str, ...]]:
    """Returns the turns of each side by session, and a note if the time is up before all are made.

    In a session all sides have the same number of turns, which belong together by position.
    `settings.sessions` are made. Sides that do not fit in memory `together` have one turn each. A
    signal leaves the sessions that are complete by then.
    """
    made = sessions(
        [runner.recording for runner in runners], _pace("layers", runners), settings, together,
        min(_LEAST_SESSIONS["layers"], settings.sessions),
        lambda made: len(made) >= settings.sessions, keeping(progress, "comparing layers"),
    )  # fmt: skip
    # A profiler may lose the events of the last turns: those that all sides have remain.
    common = [(session, min(map(len, session))) for session in made]
    complete = [[side.head(count) for side in session] for session, count in common if count]
    turns = by_side(complete, len(runners))
    if len(complete) >= settings.sessions or signals.ending():
        return turns, ()
    note = f"layers are compared in {plural(len(complete), 'session')} of each side, not "
    note += f"{settings.sessions}"
    return turns, (f"{note}: --max-seconds allows more time",)
