"""Tunes a model: see `tracer.tune`."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from tracer import host
from tracer.analyzers.compare.contrast import Contrast
from tracer.api.profile import profile
from tracer.api.tune import TuneArguments
from tracer.containment import signals
from tracer.errors import UsageError
from tracer.executors import registry
from tracer.exporters import writing
from tracer.exporters.subject import open_subject, runnable_form
from tracer.inputs.request import on_sizes_that_run, request_for, with_overrides
from tracer.records.model_info import ModelInfo
from tracer.records.trace import INCOMPLETE
from tracer.records.transformed import Speedup, Trial, Tuned
from tracer.support.tolerance import Tolerance
from tracer.text import plural
from tracer.tuning import candidates
from tracer.tuning import plan as python
from tracer.tuning.changes import Findings, find, parsed
from tracer.tuning.search import Found, Search
from tracer.tuning.setup import Machine, Setup

_PROFILE_S, _PROFILED = 0.5, 0.02
"""Seconds of recorded runs of the profile by which changes are chosen, and their share of the time
that a limit leaves: on a busy machine the profile takes twenty times as long."""
_EMULATION_S = 20.0
"""Seconds to emulate the sums of a model in 8 bits, beyond those of the search."""
_SEARCHED = 0.7
"""Share of the time that a limit leaves, after which a search ends: its last session goes on."""
_DENORMALS = (
    "onnxruntime flushes denormals in the thread that calls a session only if that session is the "
    "first of the process"
)


def tune(call: TuneArguments) -> Tuned:
    """Profiles the model, searches, and writes the changed model; or makes `apply` alone."""
    flag = "--try" if call.only else "--allow" if call.allow else None
    if call.apply and flag:
        raise UsageError(
            f"{flag} is for a search, and --apply makes its changes without one",
            f"Leave out {flag}, or --apply.",
        )
    report = call.report
    tolerance = call.tolerance or Tolerance(relative=candidates.DEFAULT_RTOL)
    request = candidates.Request(
        call.goal, call.max_seconds, frozenset(call.allow), tolerance, tuple(call.only or ())
    )
    target = None if call.output is None else Path(call.output)
    if target is not None:
        writing.check_target(target, call.force)
    candidates.refuse_unknown(request.allow)
    for name in request.only:
        find(name)  # raises UsageError before any work
    chosen = parsed(call.apply or ())
    machine, base = Machine.this(), _setup(call)
    if chosen:
        allowed = request.allow | {step.change.effect for step in chosen}
        bench, best = candidates.OnnxruntimeBench(0, report), candidates.Candidate(chosen)
        candidates.Workshop(base, replace(request, allow=allowed), bench).make(best)
        if best.fault:
            raise UsageError(
                f"--apply {', '.join(map(str, chosen))}: {best.fault}",
                "tracer tune without --apply tries what can be made.",
            )
        outcome = Found((), best, Contrast(), None)  # nothing is measured
    else:
        outcome = _search(call, base, request, machine)
    proto, setup = None, outcome.best.setup
    if setup is not None and setup.model is not base.model:
        proto = setup.whole_proto
    notes = [*base.model.notes, *base.feedset.notes]
    if outcome.is_whole:
        seconds = min(_EMULATION_S, _SEARCHED * signals.seconds_left())
        notes += candidates.saturation_notes(outcome.candidates, machine, seconds, report)
    else:
        count = sum(len(each.own) > 1 for each in outcome.candidates)
        forms = f"{count or 'none'} of {plural(len(outcome.candidates), 'form')}"
        notes.insert(0, f"{INCOMPLETE}out of time; {forms} were measured")
    if setup is not None and setup.session.flushes_denormals:
        notes.append(_DENORMALS)
    result = _result(base, machine, request, outcome, proto, notes)
    if proto is None or target is None:
        return result
    return replace(result, proto=writing.write_last(proto, target, None, call.force))


def _setup(call: TuneArguments) -> Setup:
    """Returns the unchanged setup, on inputs of the first sizes that run."""
    loaded = runnable_form(with_overrides(open_subject(call.model), call.inputs)).executed
    chosen = registry.settings_for(candidates.EXECUTOR, _settings(call))
    executor = registry.find_alternating(candidates.EXECUTOR)

    def runs(feedset: Any) -> None:
        with executor.ready(loaded, feedset, chosen):
            pass

    asked = request_for(call.model, loaded, call.batch, call.dims, call.inputs, call.seed)
    attempt = registry.try_feeds(candidates.EXECUTOR, loaded, chosen)
    feedset, _ = on_sizes_that_run(asked.first_batch(), runs, attempt, call.report)
    return Setup(loaded, feedset, chosen)


def _settings(call: TuneArguments) -> dict[str, Any]:
    """Returns the settings to start from; None is the default of the executor."""
    return {
        "threads": call.threads or None, "optimization": call.optimization,
        "provider": call.provider,
    }  # fmt: skip


def _search(
    call: TuneArguments, base: Setup, request: candidates.Request, machine: Machine
) -> Found:
    """Searches in the time that the profile leaves, at least half of it within the limit."""
    began = time.monotonic()
    chosen = {name: value for name, value in _settings(call).items() if value is not None}
    seconds = min(_PROFILE_S, _PROFILED * signals.seconds_left())
    with signals.keep_nothing():
        trace = profile(
            base.model, batch=call.batch, dims=call.dims, inputs=call.inputs, seed=call.seed,
            min_time=seconds, **chosen, confirm=False, peaks=host.peaks, progress=call.report,
            in_process=True,
        )  # fmt: skip
    findings = Findings(base, trace, machine, request.goal)
    left = max(request.seconds / 2, request.seconds - (time.monotonic() - began))
    left = min(left, _SEARCHED * signals.seconds_left())
    bench = candidates.OnnxruntimeBench(call.seed, call.report)
    return Search(findings, replace(request, seconds=left), bench, call.report).run()


def _result(
    base: Setup,
    machine: Machine,
    request: candidates.Request,
    outcome: Found,
    proto: onnx.ModelProto | None,
    notes: Sequence[str],
) -> Tuned:
    best = outcome.best
    tuned, speedup = best.setup or base, _speedup(outcome.contrast)
    kept = {str(step) for step in best.steps}
    trials = []
    for candidate in outcome.candidates:
        (step,) = candidate.steps
        is_kept = str(step) in kept
        verdict = "kept" if is_kept else _verdict(candidate, request.goal, bool(kept))
        trials.append(
            Trial(
                change=step.change.name, value=step.value, why=candidate.why,
                effect=step.change.effect, verdict=verdict, kept=is_kept,
                speedup=None if candidate.fault else _speedup(candidate.contrast),
                memory_bytes=candidate.memory, difference=candidate.difference,
            )
        )  # fmt: skip
    trials.sort(key=lambda t: (not t.kept, -(t.speedup.ratio if t.speedup else 0.0)))
    name = base.model.name
    return Tuned(
        model=ModelInfo.of(base.model),
        settings={
            "goal": request.goal, "seconds": request.seconds, "allow": sorted(request.allow),
            "tolerance": str(request.tolerance), "batch": base.feedset.batch,
            "processor": machine.cpu,
        },
        trials=tuple(trials),
        plan=python.plan_of(base, tuned, best.steps, request.goal, machine, speedup),
        speedup=speedup,
        memory_bytes=best.memory,
        memory_before=outcome.memory_before,
        difference=best.difference,
        commands=python.model_commands(base, best.steps, name),
        code=python.session_code(tuned, proto is not None, name) if best.steps else (),
        notes=tuple(dict.fromkeys(notes)),
        proto=proto,
    )  # fmt: skip


def _verdict(candidate: candidates.Candidate, goal: str, others: bool) -> str:
    """Returns why a form was not kept, where `others` were or none."""
    if candidate.fault:
        return candidate.fault
    contrast = candidate.contrast
    if contrast.high < 1:
        if goal == "memory":
            return "no less memory"
        alone = "faster alone, no gain in the combination"
        return alone if others else "faster at first, not confirmed"
    if contrast.low > 1:
        integer = candidate.steps[0].change.effect == "quantize"
        return f"{contrast.ratio:.2f}x the time of floats" if integer else "slower"
    return "not faster" if contrast.ratio > 1 else "no significant difference"


def _speedup(contrast: Contrast) -> Speedup | None:
    """Returns the time before ÷ the time after; None where the interval is not known."""
    if not contrast.low > 0:
        return None
    return Speedup(1 / contrast.ratio, 1 / contrast.high, 1 / contrast.low)
