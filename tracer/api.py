"""The Python door: the same jobs as the command line's, as functions that return a Trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tracer import environment, inputs, loading, shapes
from tracer.analysis import analyze, assembled, cost_notes, whole
from tracer.errors import UsageError
from tracer.frameworks import profile_framework as profile_framework
from tracer.inputs import dims as dimensions
from tracer.inputs.request import Request, Samples, on_sizes_that_run
from tracer.limits import Limits
from tracer.model import Model
from tracer.trace import ModelInfo, Run, Trace

if TYPE_CHECKING:
    import onnx

    from tracer.environment import Peaks
    from tracer.equality import Evidence
    from tracer.executors import reference
    from tracer.executors.narrowed import Receive
    from tracer.executors.onnxruntime.options import Options
    from tracer.interpreter.arithmetic.accumulator import Accumulator
    from tracer.interpreter.arithmetic.policy import Policy
    from tracer.shapes import Types

Source: TypeAlias = "str | Path | onnx.ModelProto | Model"
Feeds: TypeAlias = str | Path | Sequence[str | Path] | None
Progress = Callable[[int, int, str], None]

_PROOF = Limits(live_bytes=1 << 30, seconds=20.0)
"""What a profile may spend on the proof of its attribution; `tracer fusions` spends more."""


def profile(
    model: Source,
    *,
    batch: int | Sequence[int] | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: str | Path | None = None,
    seed: int = 0,
    runs: int | None = None,
    warmup: int = 5,
    min_time: float | None = None,
    threads: int = 0,
    optimization: str = "all",
    provider: str = "cpu",
    convention: str = "plain",
    peaks: Callable[[int], Peaks] | None = None,
    replay: int = 0,
    confirm: bool = True,
    progress: Progress | None = None,
) -> Trace:
    """Profile `model` under onnxruntime, once for each batch size.

    `feeds` names an .npz file or a test_data_set folder; without it, and where `model` is not a
    folder with test data of its own, inputs are random with `seed`. `dims` sizes symbolic
    dimensions by name. `runs` to `provider` are those of `executors.onnxruntime.options`.
    `convention` says how additions are counted (see `analyzers.cost`). `peaks` is asked,
    after the runs, what the machine can do with `threads`, as `tracer.host.peaks` tells it, which
    kernels are compared with. The kernels of the `replay` rows that take the most time are run
    alone as well, without the profiler. To `confirm` which nodes fused kernels hold, what they
    compute is held against the interpreter. Raises the errors of `tracer.errors`.
    """
    from tracer.executors.onnxruntime import profiler
    from tracer.executors.onnxruntime.options import Options

    loaded = open_model(model)
    options = Options(runs, warmup, min_time, threads, optimization, provider)
    roofs = cache(lambda: peaks(threads) if peaks else None)
    analyzed = []
    for size in _batches(batch):
        request = request_for(model, loaded, size, dims, feeds, seed)
        feedset, run = on_sizes_that_run(
            request, lambda fed: profiler.profile(loaded, fed, options, progress)
        )
        found = None
        if confirm:
            found, run = _proved(loaded, request, feedset, run, options, progress)
        if replay:
            run = _replayed(loaded, feedset, run, found, options, replay, progress)
        types, calls = _observe(loaded, feedset, run, options)
        analyzed.append(analyze(loaded, run, types, calls, convention, roofs(), found))
    asked = {"batch": batch, "dims": dims, "feeds": feeds, "seed": seed, "convention": convention}
    return assembled(loaded, analyzed, {**asdict(options), **asked, "replay": replay}, roofs())


def interpret(
    model: Source,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: Feeds | Samples = None,
    seed: int = 0,
    accumulator: int | str | Accumulator | Policy | None = None,
    fixed: str | None = None,
    options: reference.Options | None = None,
    limits: Limits | None = None,
    convention: str = "plain",
    progress: Progress | None = None,
    receive: Receive | None = None,
) -> Trace:
    """Time `model` node by node under the reference interpreter, for one batch size.

    The node table is that of `profile`; feeds are chosen in the same way. With an `accumulator`
    every sum is made in it: a width, a policy as text (`conv1=18,*=17`) or as the path of a TOML
    file, or an object of `tracer.interpreter.arithmetic`; `fixed` are the numbers that floats
    become, as in `8:5/8:7`. The overflow columns are filled then, from one inference on each batch.
    `feeds` may be many .npz files, test_data_set folders, and folders of these; arrays with more
    rows than `batch`, or than the model takes, are cut; or `Samples` of a data set, `batch` (64) at
    a time. `receive` is handed the feeds and the outputs of every batch.

    Raises the errors of `tracer.errors`, among them LimitError for a run beyond `limits`.
    """
    from tracer.executors import narrowed, reference
    from tracer.executors.onnxruntime import observation
    from tracer.interpreter.arithmetic.policy_text import policy

    loaded = open_model(model)
    options = options or reference.Options()
    request = request_for(model, loaded, batch, dims, feeds, seed)
    if accumulator is None:
        feedset = request.feeds()
        run = reference.profile(loaded, feedset, options, limits, progress)
        ran: dict[str, object] = asdict(options)
    else:
        batches = request.batches()
        feedset = next(iter(batches))
        run = narrowed.profile(
            loaded, batches, policy(accumulator, fixed), options.threads, limits, progress, receive
        )
        ran = {"threads": options.threads, "accumulator": accumulator, "fixed": fixed}
    seen = observation.of(loaded, run.kernels)
    types = shapes.infer(loaded, feedset.shapes).updated(seen.types)
    asked = {"batch": batch, "dims": dims, "feeds": feeds, "seed": seed, "convention": convention}
    analyzed = [analyze(loaded, run, types, seen.calls, convention)]
    return assembled(loaded, analyzed, {**ran, **asked})


def feeds_for(
    source: Source,
    loaded: Model,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: Feeds | Samples = None,
    seed: int = 0,
    shrink: int = 1,
) -> inputs.FeedSet:
    """The feeds that a command with these options runs `loaded`, opened from `source`, on.

    Sizes that have to be assumed are divided by `shrink`.
    """
    return request_for(source, loaded, batch, dims, feeds, seed).feeds(shrink)


def count(
    model: Source,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    convention: str = "plain",
) -> Trace:
    """Count the work of every node of `model` from shapes, without running it."""
    from analyzers.cost import cost
    from analyzers.memory import memory
    from analyzers.table import node_table

    loaded = open_model(model)
    chosen, assumed = dimensions.choose(loaded, batch, dims or {})
    types = shapes.infer(loaded, chosen)
    counted = cost(loaded, types, convention=convention)
    table = node_table(loaded, types, [counted.table, memory(loaded, types)])
    table["batch"] = dimensions.batch_of(loaded, chosen)
    return Trace(
        model=ModelInfo.of(loaded, whole(counted.totals["params"])),
        environment=environment.observe(),
        settings={"dims": dict(dims or {}), "convention": convention},
        runs=(),
        nodes=table,
        notes=(*dimensions.notes(assumed), *cost_notes(counted)),
    )


def open_model(source: Source) -> Model:
    """A checked Model from a path, a protobuf, or one that is checked already."""
    if isinstance(source, Model):
        return source
    if isinstance(source, str | Path):
        return loading.load(source)
    return loading.from_proto(source)


def request_for(
    source: Source,
    model: Model,
    batch: int | None,
    dims: Mapping[str, int] | None,
    feeds: Feeds | Samples,
    seed: int,
) -> Request:
    """What to feed `model`, opened from `source`, as commands with these options ask for it."""
    folder = Path(source) if isinstance(source, str | Path) and Path(source).is_dir() else None
    if isinstance(feeds, Samples):
        return Request(model, folder, batch, dims, (), seed, feeds)
    given = [feeds] if isinstance(feeds, str | Path) else feeds or []
    return Request(model, folder, batch, dims, tuple(Path(path) for path in given), seed)


def _batches(batch: int | Sequence[int] | None) -> Sequence[int | None]:
    if batch is None or isinstance(batch, int):
        return [batch]
    if not batch:
        raise UsageError("the list of batch sizes is empty", "Give one or more.")
    return list(dict.fromkeys(batch))  # a size twice would be the same rows twice


def _proved(
    model: Model,
    request: Request,
    feedset: inputs.FeedSet,
    run: Run,
    options: Options,
    progress: Progress | None,
) -> tuple[Evidence | None, Run]:
    """What values tell of fused kernels, and the run; with a note where there is no evidence."""
    from analyzers.attribution import attribute
    from tracer import evidence
    from tracer.executors.onnxruntime.options import is_cpu

    fused = any(len(group) > 1 for group in attribute(model, run.kernels))
    if not fused or not is_cpu(options.provider):
        return None, run
    given = [feedset, *(evidence.another(model, feedset, request.seed) if request.random else ())]
    found, why = evidence.of_options(model, given, options, _PROOF, progress)
    notes = [f"fused kernels are traced back by names alone: {why}"] if found is None else []
    return found, replace(run, notes=(*run.notes, *notes))


def _replayed(
    model: Model,
    feedset: inputs.FeedSet,
    run: Run,
    evidence: Evidence | None,
    options: Options,
    top: int,
    progress: Progress | None,
) -> Run:
    """The run with times of single kernels beside those of the profiler."""
    import numpy as np

    from analyzers.attribution import attribute
    from analyzers.timing import largest, wall
    from tracer.executors.onnxruntime import replay

    chosen = largest(run, attribute(model, run.kernels, evidence), top)
    kernels = [run.kernels[place] for place in chosen]
    found = np.full(len(run.kernels), np.nan)
    shares = replay.shares(model, feedset, kernels, options, progress)
    found[list(chosen)] = shares * wall(run)["mean"]
    return replace(run, replayed_us=found)


def _observe(
    model: Model, feedset: inputs.FeedSet, run: Run, options: Options
) -> tuple[Types, Mapping[str, float] | None]:
    """Types of all tensors and calls of all nodes; from a run where shapes do not tell them."""
    from tracer.executors.onnxruntime import observation, profiler

    types = shapes.infer(model, feedset.shapes)
    if not observation.needed(model, types):
        return types, None
    kernels = profiler.observe(model, feedset, replace(options, optimization="none"))
    seen = observation.of(model, kernels)
    return types.updated(seen.types), seen.calls
