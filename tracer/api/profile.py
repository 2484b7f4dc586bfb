"""`tracer.profile`: measures an ONNX model and returns a Trace with a row for each node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.api._calls import by_rules as contained
from tracer.api.framework import FrameworkOptions, profile_framework
from tracer.api.interpret import Receiver, interpret
from tracer.support.arguments import RULES, swept
from tracer.support.progress import Progress

if TYPE_CHECKING:
    from tracer.accumulators.spec.policy import Policy
    from tracer.exporters.subject import Subject
    from tracer.inputs.request import InputPaths, Samples
    from tracer.limits import Limits
    from tracer.records.environment import Peaks
    from tracer.records.trace import Trace

_RULES = {name: swept(RULES[name]) for name in ("batch", "threads", "optimization", "past")}

_COMMON = ("batch", "seed", "runs", "warmup", "min_time", "precision", "threads")
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
    precision: float | None = None
    threads: int | Sequence[int] = 0
    optimization: str | Sequence[str] = "all"
    provider: str = "cpu"
    provider_options: Mapping[str, str] = field(default_factory=dict)
    register: Sequence[str | Path] = ()
    replay: int = 0
    split: int = 0
    convention: str = "plain"
    energy: str | None = None
    peaks: Callable[[int], Peaks] | None = None
    prefill: int | None = None
    decode: int | None = None
    past: Sequence[int] | None = None
    plan: Path | None = None


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
    from tracer.analyzers.merging import Source, merged
    from tracer.exporters.source import runs_in_framework

    arguments = vars(options)
    if sums is not None or runs_in_framework(str(target)):
        _refuse_phases(options)
    if not runs_in_framework(str(target)):
        if sums is None:
            return profile(target, **arguments, progress=progress, keep=keep)
        counted = _counted(target, options, sums, progress)
        times = profile(target, **(arguments | {"energy": None}), progress=progress)
        return merged([Source("times", times), Source("sums", counted)])
    common = {name: arguments[name] for name in _COMMON}
    return profile_framework(str(target), **vars(framework), **common, progress=progress)


def _refuse_phases(options: ProfileOptions) -> None:
    """Raises UsageError for phases of a model that does not run in onnxruntime alone."""
    from tracer.errors import UsageError

    if (options.prefill, options.decode, options.past) != (None, None, None):
        raise UsageError(
            "phases are those of an ONNX model, without narrow accumulators",
            "Leave out --accumulator, or --prefill, --decode and --past.",
        )


def _counted(
    target: str | Path, options: ProfileOptions, sums: SumOptions, progress: Progress | None
) -> Trace:
    """Returns the trace of all inputs in narrow accumulators, by the options of the profile."""
    return interpret(
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


@contained(_RULES)
def profile(
    model: Subject,
    *,
    batch: int | Sequence[int] | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: InputPaths | Samples = None,
    seed: int = 0,
    runs: int | None = None,
    warmup: int | None = None,
    min_time: float | None = None,
    precision: float | None = None,
    threads: int | Sequence[int] = 0,
    optimization: str | Sequence[str] | None = None,
    provider: str | None = None,
    provider_options: Mapping[str, str] | None = None,
    register: Sequence[str | Path] = (),
    convention: str = "plain",
    energy: str | None = None,
    peaks: Callable[[int], Peaks] | None = None,
    replay: int = 0,
    split: int = 0,
    prefill: int | None = None,
    decode: int | None = None,
    past: int | Sequence[int] | None = None,
    plan: str | Path | None = None,
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
    `batch` (1) are timed. `dims` sizes open dimensions, by symbol or `INPUT:AXIS`. `runs` to
    `register` are settings of the executor (see its `settings` module); None is its
    default. `convention` says how additions are counted (see `analyzers.cost`). `energy` names a
    model of `analyzers.energy`, which fills the column `energy`, in 32-bit accumulators. `peaks` is
    called with `threads` after the runs; its peaks are the roofs of the roofline. The kernels of
    the `replay` slowest rows are also run alone, without the profiler. So are the nodes of the
    `split` slowest kernels that contain several: this fills `time_us_split`. `confirm` checks which
    nodes fused kernels contain by comparing tensors with the interpreter.

    `prefill` and `decode` profile the phases of a decoder with a cache: a prefill of `prefill`
    tokens, and one of `decode` steps of one token: the middle one, or with `past` one at each of
    these numbers of tokens in the cache. Whole generations are timed as well. Raises ModelError
    for a model without a cache, UsageError for `dims` or `feeds` beside them.

    `plan` is the file of a plan that `tracer.tune` chose: its changes are made first, and its
    settings replace `threads`, `optimization` and `provider`. Notes tell how this machine and model
    differ from those of the plan.

    `keep` is called before every further run, with a trace of the runs so far that is marked
    incomplete: what is left of them if the model crashes the process.

    The model runs in a child process, within `seconds` and `process_bytes` of `limits`;
    `in_process` runs it in this one, without limits. Raises the errors of `tracer.errors`, and
    CrashError if the child dies.
    """
    from tracer.api import _profile
    from tracer.inputs.decoder import Phases

    phases = Phases.of(prefill, decode, past)
    return _profile.profile(
        model, batch, dims, feeds, seed, threads, optimization,
        {"runs": runs, "warmup": warmup, "min_time": min_time,
         "precision": precision, "provider": provider,
         "provider_options": provider_options or None, "register": register or None},
        convention, energy, peaks, replay, split, confirm, progress, executor, keep, phases,
        None if plan is None else Path(plan),
    )  # fmt: skip
