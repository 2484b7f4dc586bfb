"""Measures an ONNX model, once for each combination of settings: see `tracer.profile`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from tracer import host
from tracer.analyzers import energy as energy_models
from tracer.api._assembly import Analyzed, Pricing, as_list, assembled, energy_settings
from tracer.api._generation import Phased, refuse_other_inputs
from tracer.api._pipeline import Pipeline
from tracer.api.profile import ProfileArguments
from tracer.containment import signals
from tracer.containment.activity import silent
from tracer.errors import UsageError
from tracer.executors import registry
from tracer.exporters.subject import ModelSource, open_subject
from tracer.graph.model import Model
from tracer.inputs.request import (
    InputPaths,
    Phase,
    Phases,
    Request,
    Samples,
    request_for,
    with_overrides,
)
from tracer.quantization.from_qonnx import runnable_form
from tracer.records.environment import Peak, Peaks
from tracer.records.trace import INCOMPLETE, Trace
from tracer.tuning import plan as plans
from tracer.tuning.setup import Machine, Setup


@dataclass(frozen=True, slots=True)
class Start:
    """The model of a profile, its batch sizes, and the settings of its runs.

    `notes` tell of a plan and how it fits here; `tuned` owns the files of a model that it changed.
    """

    model: Model
    batch: int | Sequence[int] | None
    settings: list[Any]
    notes: tuple[str, ...] = ()
    tuned: Setup | None = None


def refuse_phases(phases: object) -> None:
    """Raises UsageError where a plan is given for the phases of a language model."""
    if phases is not None:
        raise UsageError(
            "a plan is for runs on the same inputs, and phases feed their own",
            "Leave out --plan, or --prefill and --decode.",
        )


def by_plan(
    path: Path,
    subject: ModelSource,
    start: Start,
    dims: Mapping[str, int] | None,
    feeds: InputPaths | Samples,
    seed: int,
) -> Start:
    """Returns the model with the changes of the plan at `path`, made on its inputs.

    Raises UsageError for several batch sizes or settings beside a plan, InputError for a file that
    is no plan, and the errors of the changes.
    """
    if len(start.settings) > 1 or isinstance(start.batch, Sequence):
        raise UsageError(
            "a plan sets threads, optimisation and provider, and fits one batch size",
            "Give one of each beside --plan.",
        )
    plan = plans.read_plan(path)
    batch = plans.batch_of(plan) if start.batch is None else start.batch
    feedset = request_for(subject, start.model, batch, dims, feeds, seed).first_batch().feeds()
    before = Setup(start.model.executed, feedset, start.settings[0])
    steps = ", ".join(f"{change}={value}" for change, value in plan.steps) or "no change"
    notes = (f"tuned: {steps}", *plans.differences(plan, before, Machine.this()))
    tuned = plans.apply_plan(plan, before)
    return Start(tuned.model, batch, [tuned.settings], notes, tuned)


_MEASURING_S = 6.0
"""Seconds that measuring the peaks of this machine may take while other programs run."""


@dataclass(slots=True)
class Roofs:
    """Peaks by number of threads, 0 for the default; `measure` returns them for this machine.

    A product that was faster than a peak proves it wrong. Then the peaks are measured again, once,
    and a peak that is still too low becomes the rate of the product. `notes` tell it. Nothing is
    measured for which the time limit leaves no time.
    """

    measure: Callable[[int], Peaks] | None
    known: dict[int, Peaks] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    def under(self, threads: int, analyzed: Sequence[Analyzed]) -> Peaks | None:
        """Returns the peaks at `threads` threads, right for those of the runs that had as many.

        None where they are not measured.
        """
        has_time = signals.seconds_left() > _MEASURING_S
        is_known = threads in self.known or host.stored_peaks(threads) is not None
        if self.measure is None or not (has_time or is_known):
            return None
        shown = _highest([each for each in analyzed if (each.run.threads or 0) == threads])
        peaks = self.known.get(threads)
        if peaks is None:
            peaks = self.measure(threads)
            if has_time and peaks.raised(shown) is not peaks:
                self._note(peaks, shown, "so the peaks were measured again")
                peaks = self._again(peaks, threads)
        right = peaks.raised(shown)
        if right is not peaks:
            self._note(peaks, shown, "which is the peak now")
            host.correct(peaks, right)
        self.known[threads] = right
        return right

    def _again(self, stored: Peaks, threads: int) -> Peaks:
        assert self.measure is not None
        host.correct(stored, None)
        measured = self.measure(threads)
        better = measured.at_least(stored) if measured.is_busy else measured
        if better != measured:
            host.correct(measured, better)
        return better

    def _note(self, peaks: Peaks, shown: dict[str, Peak], consequence: str) -> None:
        for kind, peak in peaks.raised(shown).arithmetic.items():
            before = peaks.arithmetic[kind]
            if peak != before:
                reached = f"{peak.by} reached {peak.rate / 1e9:.3g} G operations/s"
                beaten = f"more than the {kind} peak of {before.rate / 1e9:.3g}"
                self.notes[f"{reached}, {beaten}, {consequence}"] = None


def _highest(analyzed: Sequence[Analyzed]) -> dict[str, Peak]:
    highest: dict[str, Peak] = {}
    for each in analyzed:
        for kind, peak in each.shown.items():
            if kind not in highest or peak.rate > highest[kind].rate:
                highest[kind] = peak
    return highest


_NOT_REFINED = (
    "out of time after the last run: fused kernels are traced back by names alone, and nothing was "
    "replayed or compared with the peaks of this machine"
)
_OF_ONNX = "onnxruntime"
"""The executor that has no operators of QONNX."""


def profile(call: ProfileArguments) -> Trace:
    """Returns the trace of all runs.

    Each phase of a language model has a run, and whole generations are timed before. A plan is
    applied to the model first, and to the settings.
    """
    phases = Phases.of(call.prefill, call.decode, call.past)
    if phases is not None:
        refuse_other_inputs(call.dims, call.feeds)
    energy_model = None if call.energy is None else energy_models.find(call.energy)
    loaded = with_overrides(open_subject(call.model), call.feeds)
    if call.executor == _OF_ONNX:
        loaded = runnable_form(loaded)
    phased = None
    if phases is not None:
        phased = Phased.of(loaded, phases, call.executor, call.seed, call.progress)
    swept = {"threads": as_list(call.threads), "optimization": as_list(call.optimization)}
    start = Start(loaded, call.batch, _settings(call, swept))
    if call.plan is not None:
        refuse_phases(phases)
        start = by_plan(Path(call.plan), call.model, start, call.dims, call.feeds, call.seed)
    several = {name: values for name, values in swept.items() if len(values) > 1}
    recorded = {
        **asdict(start.settings[0]), **several, "batch": start.batch, "dims": call.dims,
        "feeds": call.feeds, "seed": call.seed, "convention": call.convention,
        "energy": energy_settings(energy_model), "replay": call.replay,
        "split": call.split, "phases": None if phases is None else asdict(phases),
        "plan": None if call.plan is None else str(call.plan),
    }  # fmt: skip
    find = registry.find_optimizing if call.replay or call.split else registry.find
    pipeline = Pipeline(
        start.model, find(call.executor), call.convention,
        None if energy_model is None else Pricing(energy_model),
        call.replay, call.split, call.confirm, call.progress or silent,
    )  # fmt: skip
    return _Runs(call, start, phases, phased, pipeline, recorded).trace()


def _settings(call: ProfileArguments, swept: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Returns the settings of the executor for each combination of threads and level."""
    chosen = {
        "runs": call.runs, "warmup": call.warmup, "min_time": call.min_time,
        "precision": call.precision, "provider": call.provider,
        "provider_options": call.provider_options or None, "register": call.register or None,
    }  # fmt: skip
    return [
        registry.settings_for(
            call.executor, {**chosen, "threads": count or None, "optimization": level}
        )
        for count, level in product(*swept.values())
    ]


class _Runs:
    """The runs of a profile, one for each batch size, setting and phase, and their trace."""

    def __init__(
        self,
        call: ProfileArguments,
        start: Start,
        phases: Phases | None,
        phased: Phased | None,
        pipeline: Pipeline,
        recorded: Mapping[str, object],
    ) -> None:
        self._call, self._start, self._phased, self._pipeline = call, start, phased, pipeline
        self._recorded = recorded
        self._roofs = Roofs(call.peaks)
        self._counts = sorted({getattr(each, "threads", None) or 0 for each in start.settings})
        whole: list[Phase | None] = [None]
        each_phase = phases.in_order() if phases else whole
        self._planned = list(product(as_list(start.batch), start.settings, each_phase))
        self._analyzed: list[Analyzed] = []

    def trace(self) -> Trace:
        """Runs all; what a signal leaves is marked incomplete."""
        try:
            for size, settings, phase in self._planned:
                if self._analyzed and self._call.keep is not None:
                    self._call.keep(self._incomplete(self._compared(), "broken off"))
                request = self._request(size, settings, phase)
                self._analyzed.append(self._pipeline.run(request, settings, phase))
                if signals.ending():
                    break
            else:
                return self._compared()
        except signals.ENDINGS:
            if not self._analyzed or not signals.ending():
                raise
        known = self._roofs.known
        trace = self._assembled([known[count] for count in self._counts if count in known])
        is_complete = len(self._analyzed) == len(self._planned) and self._analyzed[-1].whole
        if is_complete and signals.settle():
            return replace(trace, notes=(_NOT_REFINED, *trace.notes))
        return self._incomplete(trace, signals.ending())

    def _request(self, size: int | None, settings: Any, phase: Phase | None) -> Request:
        call = self._call
        if self._phased and phase:
            return self._phased.request(size, settings, phase)
        return request_for(
            call.model, self._start.model, size, call.dims, call.feeds, call.seed
        ).first_batch()

    def _compared(self) -> Trace:
        """Returns the trace of the runs so far, under the peaks of this machine."""
        peaks = [self._roofs.under(count, self._analyzed) for count in self._counts]
        return self._assembled([each for each in peaks if each is not None])  # the default's first

    def _assembled(self, peaks: Sequence[Peaks]) -> Trace:
        trace = assembled(self._start.model, self._analyzed, self._recorded, peaks)
        trace = replace(trace, notes=(*self._start.notes, *trace.notes, *self._roofs.notes))
        return self._phased.with_generations(trace) if self._phased else trace

    def _incomplete(self, trace: Trace, why: str) -> Trace:
        """Returns `trace` marked as that of the first of the runs."""
        runs, planned = len(self._analyzed), len(self._planned)
        part = f"{runs} of {planned} configurations" if planned > 1 else "the runs until then"
        return replace(trace, notes=(f"{INCOMPLETE}{why}; it has {part}", *trace.notes))
