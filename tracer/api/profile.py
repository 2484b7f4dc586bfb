"""Profile an ONNX model under onnxruntime: one row a node, in one Trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np

from analyzers import observed_shapes
from analyzers.attribution import attribute
from analyzers.timing import largest, wall
from tracer.api._assembly import analyze, assembled
from tracer.executors.onnxruntime import profiler, replay
from tracer.executors.onnxruntime.fusion_check import evidence
from tracer.executors.onnxruntime.settings import OrtSettings, is_cpu
from tracer.graph import shape_inference
from tracer.graph.loading import Source, open_model
from tracer.graph.model import Model
from tracer.graph.shape_inference import Types
from tracer.inputs.dims import batch_sizes
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import Request, on_sizes_that_run, request_for
from tracer.limits import Limits
from tracer.records.environment import Peaks
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Run, Trace
from tracer.support.progress import Progress

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
    dimensions by name. `runs` to `provider` are those of `executors.onnxruntime.settings`.
    `convention` says how additions are counted (see `analyzers.cost`). `peaks` is asked,
    after the runs, what the machine can do with `threads`, as `tracer.host.peaks` tells it, which
    kernels are compared with. The kernels of the `replay` rows that take the most time are run
    alone as well, without the profiler. To `confirm` which nodes fused kernels hold, what they
    compute is held against the interpreter. Raises the errors of `tracer.errors`.
    """
    loaded = open_model(model)
    options = OrtSettings(runs, warmup, min_time, threads, optimization, provider)
    roofs = cache(lambda: peaks(threads) if peaks else None)
    analyzed = []
    for size in batch_sizes(batch):
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


def _proved(
    model: Model,
    request: Request,
    feedset: FeedSet,
    run: Run,
    options: OrtSettings,
    progress: Progress | None,
) -> tuple[Evidence | None, Run]:
    """What values tell of fused kernels, and the run; with a note where there is no evidence."""
    fused = any(len(group) > 1 for group in attribute(model, run.kernels))
    if not fused or not is_cpu(options.provider):
        return None, run
    given = [feedset, *(evidence.another(model, feedset, request.seed) if request.random else ())]
    found, why = evidence.of_options(model, given, options, _PROOF, progress)
    notes = [f"fused kernels are traced back by names alone: {why}"] if found is None else []
    return found, replace(run, notes=(*run.notes, *notes))


def _replayed(
    model: Model,
    feedset: FeedSet,
    run: Run,
    evidence: Evidence | None,
    options: OrtSettings,
    top: int,
    progress: Progress | None,
) -> Run:
    """The run with times of single kernels beside those of the profiler."""
    chosen = largest(run, attribute(model, run.kernels, evidence), top)
    kernels = [run.kernels[place] for place in chosen]
    found = np.full(len(run.kernels), np.nan)
    shares = replay.shares(model, feedset, kernels, options, progress)
    found[list(chosen)] = shares * wall(run)["mean"]
    return replace(run, replayed_us=found)


def _observe(
    model: Model, feedset: FeedSet, run: Run, options: OrtSettings
) -> tuple[Types, Mapping[str, float] | None]:
    """Types of all tensors and calls of all nodes; from a run where shapes do not tell them."""
    types = shape_inference.infer(model, feedset.shapes)
    if not observed_shapes.needed(model, types):
        return types, None
    kernels = profiler.observe(model, feedset, replace(options, optimization="none"))
    seen = observed_shapes.of(model, kernels)
    return types.updated(seen.types), seen.calls
