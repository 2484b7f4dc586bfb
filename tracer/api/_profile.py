"""Measures an ONNX model, once for each combination of settings: see `tracer.profile`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

from tracer.analyzers import energy as energy_models
from tracer.api._assembly import Analyzed, Pricing, assembled, energy_settings
from tracer.api._generation import Phased, refuse_other_inputs
from tracer.api._pipeline import Pipeline
from tracer.api._planned import Start, by_plan, refuse_phases
from tracer.api._roofs import Roofs
from tracer.api._sweep import as_list
from tracer.api.profile import ProfileArguments
from tracer.containment import signals
from tracer.executors import registry
from tracer.exporters.subject import open_subject
from tracer.inputs.decoder import Phase, Phases
from tracer.inputs.request import Request, request_for, with_overrides
from tracer.quantization.from_qonnx import runnable_form
from tracer.records.environment import Peaks
from tracer.records.trace import INCOMPLETE, Trace
from tracer.support.progress import silent

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
