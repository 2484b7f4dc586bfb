"""Measures an ONNX model, once for each combination of settings: see `tracer.profile`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

from tracer.analyzers import energy as energy_models
from tracer.api._assembly import Analyzed, Pricing, assembled, energy_settings
from tracer.api._generation import Phased, refuse_other_inputs
from tracer.api._pipeline import Pipeline
from tracer.api._planned import Start, by_plan, refuse_phases
from tracer.api._roofs import Roofs
from tracer.api._sweep import each
from tracer.containment import signals
from tracer.executors import registry
from tracer.exporters.subject import Subject, open_subject
from tracer.graph.model import Model
from tracer.inputs.decoder import Phases
from tracer.inputs.request import InputPaths, Samples, request_for, with_overrides
from tracer.quantization.from_qonnx import runnable_form
from tracer.records.environment import Peaks
from tracer.records.trace import INCOMPLETE, Trace
from tracer.support.progress import Progress, silent

_NOT_REFINED = (
    "out of time after the last run: fused kernels are traced back by names alone, and nothing was "
    "replayed or compared with the peaks of this machine"
)
_OF_ONNX = "onnxruntime"
"""The executor that has no operators of QONNX."""


def profile(
    model: Subject,
    batch: int | Sequence[int] | None,
    dims: Mapping[str, int] | None,
    feeds: InputPaths | Samples,
    seed: int,
    threads: int | Sequence[int],
    optimization: str | Sequence[str] | None,
    chosen: Mapping[str, object],
    convention: str,
    energy: str | None,
    peaks: Callable[[int], Peaks] | None,
    replay: int,
    split: int,
    confirm: bool,
    progress: Progress | None,
    executor: str,
    keep: Callable[[Trace], object] | None,
    phases: Phases | None,
    plan: Path | None = None,
) -> Trace:
    """Returns the trace of all runs; `chosen` are settings of the executor.

    With `phases`, each of them has a run, and whole generations are timed before. A `plan` is
    applied to the model first, and to the settings.
    """
    if phases is not None:
        refuse_other_inputs(dims, feeds)
    energy_model = None if energy is None else energy_models.find(energy)
    loaded = _opened(model, executor, feeds)
    phased = None if phases is None else Phased.of(loaded, phases, executor, seed, progress)
    swept = {
        "threads": each(threads),
        "optimization": each(optimization),
    }
    settings = [
        registry.settings_for(executor, {**chosen, "threads": count or None, "optimization": level})
        for count, level in product(*swept.values())
    ]
    start = Start(loaded, batch, settings)
    if plan is not None:
        refuse_phases(phases)
        start = by_plan(plan, model, start, dims, feeds, seed)
        loaded, batch, settings = start.model, start.batch, start.settings
    roofs = Roofs(peaks)
    counts = sorted({getattr(setting, "threads", None) or 0 for setting in settings})
    pipeline = Pipeline(
        loaded,
        registry.find_optimizing(executor) if replay or split else registry.find(executor),
        convention,
        None if energy_model is None else Pricing(energy_model),
        replay,
        split,
        confirm,
        progress or silent,
    )
    asked = {"batch": batch, "dims": dims, "feeds": feeds, "seed": seed}
    several = {name: values for name, values in swept.items() if len(values) > 1}
    recorded = {
        **asdict(settings[0]), **several, **asked, "convention": convention,
        "energy": energy_settings(energy_model), "replay": replay,
        "split": split, "phases": None if phases is None else asdict(phases),
        "plan": None if plan is None else str(plan),
    }  # fmt: skip
    planned = list(product(each(batch), settings, phases.in_order() if phases else [None]))

    def trace_of(analyzed: Sequence[Analyzed]) -> Trace:
        found = [roofs.under(count, analyzed) for count in counts]  # the default's, 0, are first
        known = [peak for peak in found if peak is not None]
        return told(assembled(loaded, analyzed, recorded, known))

    def told(trace: Trace) -> Trace:
        trace = replace(trace, notes=(*start.notes, *trace.notes, *roofs.notes))
        return phased.told(trace) if phased else trace

    analyzed: list[Analyzed] = []
    try:
        for size, setting, phase in planned:
            if analyzed and keep is not None:
                keep(_incomplete(trace_of(analyzed), len(analyzed), len(planned), "broken off"))
            request = (
                phased.request(size, setting, phase)
                if phased and phase
                else request_for(model, loaded, size, dims, feeds, seed).first_batch()
            )
            analyzed.append(pipeline.run(request, setting, phase))
            if signals.ending():
                break
        else:
            return trace_of(analyzed)
    except signals.ENDINGS:
        if not analyzed or not signals.ending():
            raise
    measured = [roofs.known[count] for count in counts if count in roofs.known]
    trace = told(assembled(loaded, analyzed, recorded, measured))
    return _ended(trace, analyzed, len(planned))


def _opened(model: Subject, executor: str, feeds: InputPaths | Samples) -> Model:
    loaded = with_overrides(open_subject(model), feeds)
    return runnable_form(loaded) if executor == _OF_ONNX else loaded


def _ended(trace: Trace, analyzed: Sequence[Analyzed], planned: int) -> Trace:
    """Returns `trace` with a note on what a signal left out."""
    if len(analyzed) == planned and analyzed[-1].whole and signals.settle():
        return replace(trace, notes=(_NOT_REFINED, *trace.notes))
    return _incomplete(trace, len(analyzed), planned, signals.ending())


def _incomplete(trace: Trace, runs: int, planned: int, why: str) -> Trace:
    """Returns `trace` marked as the first `runs` of `planned` configurations."""
    kept = f"{runs} of {planned} configurations" if planned > 1 else "the runs until then"
    return replace(trace, notes=(f"{INCOMPLETE}{why}; it has {kept}", *trace.notes))
