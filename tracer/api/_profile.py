"""Measures an ONNX model, once for each combination of settings: see `tracer.profile`.

The stages of a run: run, compare tensors, replay kernels and nodes, observe, analyze.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracer import host
from tracer.analyzers import energy as energy_models
from tracer.analyzers.attribution import attribute
from tracer.analyzers.cost import typed_model
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.analyzers.timing import largest, longest_fused, wall
from tracer.api import _assembly
from tracer.api.profile import ProfileArguments
from tracer.containment import signals
from tracer.errors import TracerError, UsageError
from tracer.executors import registry
from tracer.executors.registry import OptimizedGraph
from tracer.executors.releases import PACKAGES
from tracer.exporters.subject import open_subject, runnable_form
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.graph.shape_inference import TensorTypes
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import (
    Phase,
    Phases,
    Request,
    on_sizes_that_run,
    request_for,
    with_overrides,
)
from tracer.inputs.sizes import open_places
from tracer.limits import Limits, fair_share
from tracer.records.environment import Peak, Peaks
from tracer.records.trace import INCOMPLETE, Run, Trace
from tracer.shapes import infer

if TYPE_CHECKING:
    from tracer.api._generation import Phased
    from tracer.tuning.setup import Setup

_COMPARED_BYTES, _COMPARED_S = 1 << 30, 20.0
"""What a profile may spend on comparing tensors; `tracer fusions` spends more."""
_MEASURING_S = 6.0
"""Seconds that measuring the peaks of this machine may take while other programs run."""
_NOT_REFINED = (
    "out of time after the last run: fused kernels are traced back by names alone, and nothing was "
    "replayed or compared with the peaks of this machine"
)
_OF_ONNX = PACKAGES.values()
"""The executors that have no operators of QONNX."""


@dataclass(frozen=True, slots=True)
class _Start:
    """The model of a profile, its batch sizes, the settings of its runs, and sizes by dimension.

    `notes` tell of a plan and how it fits here; `tuned` owns the files of a model that it changed.
    """

    model: Model
    batch: int | Sequence[int] | None
    settings: list[Any]
    dims: Mapping[str, int] | None
    notes: tuple[str, ...] = ()
    tuned: Setup | None = None


def profile(call: ProfileArguments) -> Trace:
    """Returns the trace of all runs.

    Each phase of a language model has a run, and whole generations are timed before. A plan is
    applied to the model first, and to the settings.
    """
    phases = Phases.of(call.prefill, call.decode, call.past)
    if phases is not None:
        from tracer.api import _generation  # 0.01 s, and most models have no phases

        _generation.refuse_other_inputs(call.dims, call.inputs)
    energy_model = None if call.energy is None else energy_models.find(call.energy)
    loaded = with_overrides(open_subject(call.model), call.inputs)
    if call.executor in _OF_ONNX:
        loaded = runnable_form(loaded)
    phased = None
    if phases is not None:
        phased = _generation.Phased.of(loaded, phases, call.executor, call.seed, call.report)
    swept = {
        "threads": _assembly.as_list(call.threads),
        "optimization": _assembly.as_list(call.optimization),
    }
    chosen = {
        "runs": call.runs, "warmup": call.warmup, "min_time": call.min_time,
        "precision": call.precision, "provider": call.provider,
        "provider_options": call.provider_options or None, "register": call.register or None,
    }  # fmt: skip
    settings = [
        registry.settings_for(
            call.executor, {**chosen, "threads": count or None, "optimization": level}
        )
        for count, level in product(*swept.values())
    ]
    start = _Start(loaded, call.batch, settings, call.dims)
    if call.plan is not None:
        if phases is not None:
            raise UsageError(
                "a plan is for runs on the same inputs, and phases feed their own",
                "Leave out --plan, or --prefill and --decode.",
            )
        start = _by_plan(Path(call.plan), call, start)
    several = {name: values for name, values in swept.items() if len(values) > 1}
    recorded = {
        **asdict(start.settings[0]), **several, "batch": start.batch, "dims": call.dims,
        "feeds": call.inputs, "seed": call.seed, "convention": call.convention,
        "energy": energy_model and energy_model.settings, "replay": call.replay,
        "split": call.split, "phases": None if phases is None else asdict(phases),
        "plan": None if call.plan is None else str(call.plan),
    }  # fmt: skip
    pricing = None if energy_model is None else energy_models.Pricing(energy_model)
    return _Runs(call, start, phased, pricing, recorded).trace()


def _by_plan(path: Path, call: ProfileArguments, start: _Start) -> _Start:
    """Returns the model with the changes of the plan at `path`, made on its inputs.

    Raises UsageError for several batch sizes or settings beside a plan, InputError for a file that
    is no plan, and the errors of the changes.
    """
    from tracer.tuning import plan as plans  # 0.04 s, and few profiles have one
    from tracer.tuning.setup import Machine, Setup

    if len(start.settings) > 1 or isinstance(start.batch, Sequence):
        raise UsageError(
            "a plan sets threads, optimisation and provider, and fits one batch size",
            "Give one of each beside --plan.",
        )
    plan = plans.read_plan(path)
    batch = plans.batch_of(plan) if start.batch is None else start.batch
    request = request_for(call.model, start.model, batch, call.dims, call.inputs, call.seed)
    before = Setup(start.model.executed, request.first_batch().feeds(), start.settings[0])
    steps = ", ".join(f"{change}={value}" for change, value in plan.steps) or "no change"
    notes = (f"tuned: {steps}", *plans.differences(plan, before, Machine.this()))
    tuned = plans.apply_plan(plan, before)
    are_open = open_places(tensor_type.declared_shapes(tuned.model.inputs))
    dims = call.dims if are_open else None  # which are folded otherwise
    return _Start(tuned.model, batch, [tuned.settings], dims, notes, tuned)


@dataclass(slots=True)
class _Roofs:
    """Peaks by number of threads, 0 for the default; `measure` returns them for this machine.

    A product that was faster than a peak proves it wrong. Then the peaks are measured again, once,
    and a peak that is still too low becomes the rate of the product. `notes` tell it. Nothing is
    measured for which the time limit leaves no time.
    """

    measure: Callable[[int], Peaks] | None
    known: dict[int, Peaks] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    def under(self, threads: int, analyzed: Sequence[_assembly.Analyzed]) -> Peaks | None:
        """Returns the peaks at `threads` threads, right for those of the runs that had as many.

        None where they are not measured.
        """
        has_time = signals.seconds_left() > _MEASURING_S
        is_known = threads in self.known or host.stored_peaks(threads) is not None
        if self.measure is None or not (has_time or is_known):
            return None
        shown: dict[str, Peak] = {}
        for each in analyzed:
            if (each.run.threads or 0) == threads:
                for kind, peak in each.shown.items():
                    shown[kind] = max(shown.get(kind, peak), peak, key=lambda one: one.rate)
        peaks = self.known.get(threads)
        if peaks is None:
            peaks = self.measure(threads)
            if has_time and peaks.raised(shown) is not peaks:
                self._note(peaks, shown, "so the peaks were measured again")
                host.correct(peaks, None)
                again = self.measure(threads)
                peaks = again.at_least(peaks) if again.is_busy else again
                if peaks != again:
                    host.correct(again, peaks)
        right = peaks.raised(shown)
        if right is not peaks:
            self._note(peaks, shown, "which is the peak now")
            host.correct(peaks, right)
        self.known[threads] = right
        return right

    def _note(self, peaks: Peaks, shown: dict[str, Peak], consequence: str) -> None:
        for kind, peak in peaks.raised(shown).arithmetic.items():
            before = peaks.arithmetic[kind]
            if peak != before:
                reached = f"{peak.by} reached {peak.rate / 1e9:.3g} G operations/s"
                beaten = f"more than the {kind} peak of {before.rate / 1e9:.3g}"
                self.notes[f"{reached}, {beaten}, {consequence}"] = None


class _Runs:
    """The runs of a profile, one for each batch size, setting and phase, and their trace."""

    def __init__(
        self,
        call: ProfileArguments,
        start: _Start,
        phased: Phased | None,
        pricing: energy_models.Pricing | None,
        recorded: Mapping[str, object],
    ) -> None:
        self._call, self._start, self._phased, self._pricing = call, start, phased, pricing
        self._model, self._recorded = start.model, recorded
        find = registry.find_optimizing if call.replay or call.split else registry.find
        self._executor, self._progress = find(call.executor), call.report
        self._roofs = _Roofs(call.peaks)
        self._counts = sorted({getattr(each, "threads", None) or 0 for each in start.settings})
        each_phase = (None,) if phased is None else phased.phases.in_order()
        self._planned = list(product(_assembly.as_list(start.batch), start.settings, each_phase))
        self._analyzed: list[_assembly.Analyzed] = []

    def trace(self) -> Trace:
        """Runs all; what a signal leaves is marked incomplete."""
        try:
            for size, settings, phase in self._planned:
                if self._analyzed and self._call.keep is not None:
                    self._call.keep(self._incomplete(self._compared(), "broken off"))
                self._analyzed.append(self._run(size, settings, phase))
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

    def _compared(self) -> Trace:
        """Returns the trace of the runs so far, under the peaks of this machine."""
        peaks = [self._roofs.under(count, self._analyzed) for count in self._counts]
        return self._assembled([each for each in peaks if each is not None])  # the default's first

    def _assembled(self, peaks: Sequence[Peaks]) -> Trace:
        trace = _assembly.assembled(self._model, self._analyzed, self._recorded, peaks)
        trace = replace(trace, notes=(*self._start.notes, *trace.notes, *self._roofs.notes))
        return self._phased.with_generations(trace) if self._phased else trace

    def _incomplete(self, trace: Trace, why: str) -> Trace:
        """Returns `trace` marked as that of the first of the runs."""
        runs, planned = len(self._analyzed), len(self._planned)
        part = f"{runs} of {planned} configurations" if planned > 1 else "the runs until then"
        return replace(trace, notes=(f"{INCOMPLETE}{why}; it has {part}", *trace.notes))

    def _run(self, size: int | None, settings: Any, phase: Phase | None) -> _assembly.Analyzed:
        """Returns the run with these settings of the executor, and its rows of the node table."""
        call, model = self._call, self._model
        request: Request
        if self._phased and phase:
            request = self._phased.request(size, settings, phase)
        else:
            request = request_for(call.model, model, size, self._start.dims, call.inputs, call.seed)
            request = request.first_batch()
        feedset, profiled = on_sizes_that_run(
            request, lambda feeds: self._executor.profile(model, feeds, settings, self._progress),
            registry.try_feeds(call.executor, model, settings), self._progress,
        )  # fmt: skip
        run = _assembly.configured(profiled.run, settings)
        if phase is not None:
            run = replace(run, phase=phase.name, past=phase.past)
        whole = not signals.ending()
        try:
            if whole:
                return self._refined(run, profiled.optimized_graph, request, feedset)
        except signals.ENDINGS:
            if not signals.ending():
                raise
        types = infer(model, feedset.shapes)
        return replace(_assembly.analyze(model, run, types, None, call.convention), whole=whole)

    def _refined(
        self, run: Run, graph: OptimizedGraph | None, request: Request, feedset: FeedSet
    ) -> _assembly.Analyzed:
        """Returns the rows of `run`, with all that further runs of the model tell of them."""
        call, model = self._call, self._model
        groups: _assembly.Groups = attribute(model.executed, run.kernels)
        evidence = None
        fused = any(len(group) > 1 for group in groups)
        if call.confirm and fused and graph is not None and graph.comparable:
            feed_sets = [feedset, *request.further_feeds(feedset)]
            most = Limits(live_bytes=min(_COMPARED_BYTES, fair_share()), seconds=_COMPARED_S)
            matches = _assembly.matched(graph, feed_sets, most, self._progress)
            if isinstance(matches, TracerError):
                # its cause lacks the node and the types that the interpreter adds
                cause = matches.__cause__
                why = cause.what if isinstance(cause, TracerError) else matches.what
                note = f"fused kernels are traced back by names alone: {why}"
                run = replace(run, notes=(*run.notes, note))
            else:
                evidence = matches
                groups = attribute(model.executed, run.kernels, matches)
        if call.replay and graph is not None:
            positions = list(largest(run, groups, call.replay))
            replayed = [run.kernels[position] for position in positions]
            times = np.full(len(run.kernels), np.nan)
            times[positions] = graph.replay(feedset, replayed, self._progress) * wall(run)["mean"]
            run = replace(run, replayed_us=times)
        types, calls = infer(model, feedset.shapes), None
        tells_types = any(kernel.output_types for kernel in run.kernels)
        if tells_types if graph is None else typed_model.needed(model, types, run.kernels):
            # shape inference is incomplete or wrong: an optimised model runs once as it is
            kernels = run.kernels if graph is None else graph.unoptimized_kernels(feedset)
            observation = typed_model.observe(model, kernels)
            types, differences = observation.applied(model, types)
            calls, run = observation.calls, replace(run, notes=(*run.notes, *differences))
        alone: Mapping[str, float] = {}
        if call.split and graph is not None:
            nodes = longest_fused(run, groups, call.split)
            alone = self._isolated_times(graph, types, nodes, feedset)
        attribution = _assembly.Attribution(groups, evidence, alone)
        return _assembly.analyze(
            model, run, types, calls, call.convention, attribution, self._pricing
        )

    def _isolated_times(
        self, graph: OptimizedGraph, types: TensorTypes, keys: Sequence[str], feedset: FeedSet
    ) -> Mapping[str, float]:
        """Returns the times of these nodes, each run alone as the model has it ÷ a whole run.

        `keys` are those of nodes that run, the result has the nodes that they are parts of. What is
        computed from weights alone was computed before the run, and takes no time.
        """
        model = self._model.executed
        typed = TypedModel(model, types if model is self._model else infer(model, feedset.shapes))
        nodes = {node.key: node for node in model.nodes}
        constant = typed.sources.of_tensors
        outputs = {key: list(typed.flow.outputs_of(nodes[key])) for key in keys}
        running = [key for key in keys if not all(map(constant.__contains__, outputs[key]))]
        shares = graph.replay_unfused(feedset, [nodes[key] for key in running], self._progress)
        of_nodes = dict.fromkeys(keys, 0.0) | dict(zip(running, shares.tolist(), strict=True))
        alone: dict[str, float] = {}
        for key, share in of_nodes.items():
            for own in self._model.own_nodes([key]):
                alone[own] = alone.get(own, 0.0) + share
        return alone
