"""Tunes a model: see `tracer.tune`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from analyzers.compare.contrast import Contrast
from exporters import writing
from exporters.subject import Subject, open_subject
from tracer import host
from tracer.api.profile import profile
from tracer.executors import registry
from tracer.graph import data_file
from tracer.inputs.request import InputPaths, Samples, on_sizes_that_run, request_for
from tracer.quantization.from_qonnx import for_onnxruntime
from tracer.records.trace import ModelInfo, Trace
from tracer.records.tuned import Speedup, Trial, Tuned
from tracer.support.progress import Progress, silent
from tracer.support.tolerance import Tolerance
from tracer.tuning import code as python
from tracer.tuning.bench import EXECUTOR, OnnxruntimeBench
from tracer.tuning.candidates import DEFAULT_RTOL, Candidate, Request, refuse_unknown
from tracer.tuning.changes import Steps, find
from tracer.tuning.findings import Findings
from tracer.tuning.machine import Machine
from tracer.tuning.plan import plan_of
from tracer.tuning.search import Found, Search
from tracer.tuning.setup import Setup

_PROFILE_S = 0.5
"""Seconds of recorded runs of the profile by which changes are chosen."""


def tune(
    model: Subject,
    batch: int | None,
    dims: Mapping[str, int] | None,
    feeds: InputPaths | Samples,
    seed: int,
    settings: Mapping[str, Any],
    goal: str,
    seconds: float,
    allow: Sequence[str],
    tolerance: Tolerance | None,
    only: Sequence[str],
    output: str | Path | None,
    force: bool,
    progress: Progress | None,
) -> Tuned:
    """Profiles the model, searches, and writes the changed model."""
    target = None if output is None else Path(output)
    if target is not None:
        writing.check_target(target, force)
    request = Request(
        goal, seconds, frozenset(allow), tolerance or Tolerance(relative=DEFAULT_RTOL), tuple(only)
    )
    refuse_unknown(request.allow)
    for name in request.only:
        find(name)  # raises UsageError before any work
    report = progress or silent
    base = _base(model, batch, dims, feeds, seed, settings)
    trace = _profile(base, batch, dims, feeds, seed, settings, report)
    findings = Findings(base, trace, Machine.this(), goal)
    found = Search(findings, request, OnnxruntimeBench(seed, report), report).run()
    proto = _changed(base, found.best)
    if proto is not None and target is not None:
        proto = writing.write(proto, target, None)
    return _result(findings, request, found, proto)


def _base(
    model: Subject,
    batch: int | None,
    dims: Mapping[str, int] | None,
    feeds: InputPaths | Samples,
    seed: int,
    settings: Mapping[str, Any],
) -> Setup:
    """Returns the unchanged setup, on inputs of the first sizes that run."""
    loaded = for_onnxruntime(open_subject(model)).executed
    chosen = registry.settings_for(EXECUTOR, settings)
    executor = registry.find_alternating(EXECUTOR)

    def runs(feedset: Any) -> None:
        with executor.ready(loaded, feedset, chosen):
            pass

    request = request_for(model, loaded, batch, dims, feeds, seed).cut()
    feedset, _ = on_sizes_that_run(request, runs)
    return Setup(loaded, feedset, chosen)


def _profile(
    base: Setup,
    batch: int | None,
    dims: Mapping[str, int] | None,
    feeds: InputPaths | Samples,
    seed: int,
    settings: Mapping[str, Any],
    report: Progress,
) -> Trace:
    chosen = {name: value for name, value in settings.items() if value is not None}
    return profile(
        base.model, batch=batch, dims=dims, feeds=feeds, seed=seed, min_time=_PROFILE_S, **chosen,
        confirm=False, peaks=host.peaks, progress=report, in_process=True,
    )  # fmt: skip


def _changed(base: Setup, best: Candidate) -> onnx.ModelProto | None:
    """Returns the changed model with its weights in memory; None where it is as it was."""
    if best.setup is None or best.setup.model is base.model:
        return None
    path = best.setup.model.path
    return data_file.whole(best.setup.model.proto, None if path is None else path.parent)


def _result(
    findings: Findings, request: Request, found: Found, proto: onnx.ModelProto | None
) -> Tuned:
    base, best = findings.setup, found.best
    tuned, speedup = best.setup or base, _speedup(found.contrast)
    trials = [_trial(candidate, best.steps, request.goal) for candidate in found.candidates]
    name = base.model.name
    return Tuned(
        model=ModelInfo.of(base.model),
        settings={
            "goal": request.goal, "seconds": request.seconds, "allow": sorted(request.allow),
            "tolerance": str(request.tolerance), "batch": base.feedset.batch,
            "processor": findings.machine.cpu,
        },
        trials=tuple(sorted(trials, key=_order)),
        plan=plan_of(base, tuned, best.steps, request.goal, findings.machine, speedup),
        speedup=speedup,
        memory_bytes=best.memory,
        memory_before=found.memory_before,
        difference=best.difference,
        commands=python.commands(best.steps, name),
        code=python.code(tuned, proto is not None, name) if best.steps else (),
        notes=tuple(dict.fromkeys((*base.feedset.notes, *_notes(found)))),
        proto=proto,
    )  # fmt: skip


def _trial(candidate: Candidate, kept: Steps, goal: str) -> Trial:
    (step,) = candidate.steps
    is_kept = any(str(step) == str(each) for each in kept)
    return Trial(
        change=step.change.name,
        value=step.value,
        why=candidate.why,
        effect=step.change.effect,
        verdict=_verdict(candidate, is_kept, goal),
        kept=is_kept,
        speedup=None if candidate.fault else _speedup(candidate.contrast),
        memory_bytes=candidate.memory,
        difference=candidate.difference,
    )


def _verdict(candidate: Candidate, is_kept: bool, goal: str) -> str:
    if is_kept:
        return "kept"
    if candidate.fault:
        return candidate.fault
    contrast = candidate.contrast
    if contrast.high < 1:
        return "faster alone, no gain in the combination" if goal != "memory" else "no less memory"
    if contrast.low > 1:
        return "slower"
    return "not faster" if contrast.ratio > 1 else "no significant difference"


def _speedup(contrast: Contrast) -> Speedup | None:
    """Returns the time before ÷ the time after; None where the interval is not known."""
    if not contrast.low > 0:
        return None
    return Speedup(1 / contrast.ratio, 1 / contrast.high, 1 / contrast.low)


def _order(trial: Trial) -> tuple[bool, float]:
    return not trial.kept, -(trial.speedup.ratio if trial.speedup else 0.0)


def _notes(found: Found) -> tuple[str, ...]:
    if found.best.setup is None or not found.best.setup.session.flushes_denormals:
        return ()
    return (
        "onnxruntime flushes denormals in the thread that calls a session only if that session is "
        "the first of the process",
    )
