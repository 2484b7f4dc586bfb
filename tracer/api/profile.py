"""`tracer.profile`: measures an ONNX model and returns a Trace with a row for each node."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path

from analyzers import energy as energy_models
from analyzers.merging import Source, merged
from exporters.source import names_code
from tracer.accumulators.spec.policy import Policy
from tracer.api._assembly import Analyzed, Pricing, assembled, energy_settings
from tracer.api._pipeline import Pipeline
from tracer.api._sweep import each
from tracer.api.framework import FrameworkOptions, profile_framework
from tracer.api.interpret import Receiver, interpret
from tracer.containment import signals
from tracer.containment.calls import contained
from tracer.executors import registry
from tracer.graph.loading import ModelSource, open_model
from tracer.inputs.request import InputPaths, Samples, request_for
from tracer.limits import Limits
from tracer.records.environment import Peaks
from tracer.records.trace import INCOMPLETE, Trace
from tracer.support.arguments import RULES, check_arguments, swept
from tracer.support.progress import Progress, silent

_RULES = {name: swept(RULES[name]) for name in ("batch", "threads", "optimization")}

_COMMON = ("batch", "seed", "runs", "warmup", "min_time", "threads")
"""Options that a model of a framework has as well."""


@dataclass(frozen=True)
class ProfileOptions:
    """The arguments of `profile` that its command sets."""

    batch: Sequence[int] | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    feeds: InputPaths | Samples = None
    seed: int = 0
    runs: int | None = None
    warmup: int = 5
    min_time: float | None = None
    threads: int | Sequence[int] = 0
    optimization: str | Sequence[str] = "all"
    provider: str = "cpu"
    replay: int = 0
    convention: str = "plain"
    energy: str | None = None
    peaks: Callable[[int], Peaks] | None = None


@dataclass(frozen=True)
class SumOptions:
    """The accumulators whose overflow is counted beside the times, and who receives the outputs."""

    policy: Policy
    receivers: Sequence[Receiver] = ()


def profile_target(
    target: str | Path,
    options: ProfileOptions,
    framework: FrameworkOptions,
    sums: SumOptions | None = None,
    progress: Progress | None = None,
    keep: Callable[[Trace], object] | None = None,
) -> Trace:
    """Profiles an ONNX model, or the model that FILE.py:NAME names, in its framework.

    With `sums`, the overflow of an ONNX model is counted over all inputs first, and merged into the
    rows of the times. Without `sums`, `keep` is as in `profile`. Raises the errors of `profile`,
    `interpret` and `profile_framework`.
    """
    arguments = vars(options)
    if not names_code(str(target)):
        if sums is None:
            return profile(target, **arguments, progress=progress, keep=keep)
        counted = _counted(target, options, sums, progress)
        times = profile(target, **(arguments | {"energy": None}), progress=progress)
        return merged([Source("times", times), counted])
    common = {name: arguments[name] for name in _COMMON}
    return profile_framework(str(target), **vars(framework), **common, progress=progress)


def _counted(
    target: str | Path, options: ProfileOptions, sums: SumOptions, progress: Progress | None
) -> Source:
    """Returns the trace of all inputs in narrow accumulators, by the options of the profile."""
    trace = interpret(
        target,
        dims=options.dims,
        feeds=options.feeds,
        seed=options.seed,
        accumulator=sums.policy,
        convention=options.convention,
        energy=options.energy,
        progress=progress,
        receivers=sums.receivers,
    )
    return Source("sums", trace)


def profile(
    model: ModelSource,
    *,
    batch: int | Sequence[int] | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: InputPaths | Samples = None,
    seed: int = 0,
    runs: int | None = None,
    warmup: int | None = None,
    min_time: float | None = None,
    threads: int | Sequence[int] = 0,
    optimization: str | Sequence[str] | None = None,
    provider: str | None = None,
    convention: str = "plain",
    energy: str | None = None,
    peaks: Callable[[int], Peaks] | None = None,
    replay: int = 0,
    confirm: bool = True,
    progress: Progress | None = None,
    executor: str = "onnxruntime",
    limits: Limits | None = None,
    in_process: bool = False,
    keep: Callable[[Trace], object] | None = None,
) -> Trace:
    """Profiles `model`, once for each batch size, number of threads and optimisation level.

    `feeds` names an .npz file or a test_data_set folder. The default is the test data of a model
    folder, else random inputs with `seed`. Of many files, or `Samples` of a data set, the first
    `batch` (1) are timed. `dims` sizes symbolic dimensions by name. `runs` to
    `provider` are settings of the executor (see its `settings` module); None is its default.
    `convention` says how additions are counted (see `analyzers.cost`). `energy` names a model of
    `analyzers.energy`, which fills the column `energy`, in 32-bit accumulators. `peaks` is called
    with `threads` after the runs; its peaks are the roofs of the roofline. The kernels of the
    `replay` slowest rows are also run alone, without the profiler. `confirm` checks which nodes
    fused kernels contain by comparing tensors with the interpreter.

    `keep` is called before every further run, with a trace of the runs so far that is marked
    incomplete: what is left of them if the model crashes the process.

    The model runs in a child process, within `seconds` and `process_bytes` of `limits`;
    `in_process` runs it in this one, without limits. Raises the errors of `tracer.errors`, and
    CrashError if the child dies.
    """
    arguments = locals()
    check_arguments(arguments, _RULES)
    if not in_process:
        most = limits or Limits()
        call = {**arguments, "in_process": True}
        return contained(profile, call, most.seconds, most.process_bytes)
    energy_model = None if energy is None else energy_models.find(energy)
    loaded = open_model(model)
    swept = {
        "threads": each(threads),
        "optimization": each(optimization),
    }
    chosen = {"runs": runs, "warmup": warmup, "min_time": min_time, "provider": provider}
    settings = [
        registry.settings_for(executor, {**chosen, "threads": count or None, "optimization": level})
        for count, level in product(*swept.values())
    ]
    roofs = cache(lambda count: peaks(count) if peaks else None)
    pipeline = Pipeline(
        loaded,
        registry.find_optimizing(executor) if replay else registry.find(executor),
        convention,
        None if energy_model is None else Pricing(energy_model),
        roofs,
        replay,
        confirm,
        progress or silent,
    )
    asked = {"batch": batch, "dims": dims, "feeds": feeds, "seed": seed}
    several = {name: values for name, values in swept.items() if len(values) > 1}
    recorded = {
        **asdict(settings[0]), **several, **asked, "convention": convention,
        "energy": energy_settings(energy_model), "replay": replay,
    }  # fmt: skip
    planned = list(product(each(batch), settings))

    def trace_of(analyzed: Sequence[Analyzed]) -> Trace:
        found = [roofs(count) for count in sorted(swept["threads"])]  # the default's, 0, are first
        known = [peak for peak in found if peak is not None]
        return assembled(loaded, analyzed, recorded, known)

    analyzed: list[Analyzed] = []
    for size, setting in planned:
        if analyzed and keep is not None:
            keep(_incomplete(trace_of(analyzed), len(analyzed), len(planned), "broken off"))
        try:
            request = request_for(model, loaded, size, dims, feeds, seed).cut()
            analyzed.append(pipeline.run(request, setting))
        except signals.ENDINGS:
            if not analyzed or not signals.ending():
                raise
        if signals.ending():
            trace = assembled(loaded, analyzed, recorded)
            return _incomplete(trace, len(analyzed), len(planned), signals.ending())
    return trace_of(analyzed)


def _incomplete(trace: Trace, runs: int, planned: int, why: str) -> Trace:
    """Returns `trace` marked as the first `runs` of `planned` configurations."""
    kept = f"{runs} of {planned} configurations" if planned > 1 else "the runs until then"
    return replace(trace, notes=(f"{INCOMPLETE}{why}; it has {kept}", *trace.notes))
