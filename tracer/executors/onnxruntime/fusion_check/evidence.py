"""What values tell of a rewritten graph: gathered where there is room and time, or why not."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tracer.errors import TracerError
from tracer.executors.onnxruntime import all_outputs, profiler
from tracer.executors.onnxruntime.fusion_check import fingerprints
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.model import Model
from tracer.inputs import random
from tracer.inputs.feedset import FeedSet
from tracer.limits import Limits
from tracer.records.tensor_match import Evidence
from tracer.records.trace import Kernel
from tracer.support.progress import Progress


def of_options(
    model: Model,
    given: Sequence[FeedSet],
    options: OrtSettings,
    limits: Limits,
    progress: Progress | None,
) -> tuple[Evidence | None, str]:
    """Evidence from the graph that a session with these options runs, as `of_graph` has it."""
    with tempfile.TemporaryDirectory(prefix="tracer-") as folder:
        try:
            kernels, saved = profiler.rewritten(model, given[0], options, Path(folder))
        except TracerError as error:
            return None, error.what
        return of_graph(model, kernels, saved, given, options.threads, limits, progress)


def of_graph(
    model: Model,
    kernels: Sequence[Kernel],
    saved: Path,
    given: Sequence[FeedSet],
    threads: int,
    limits: Limits,
    progress: Progress | None,
) -> tuple[Evidence | None, str]:
    """Evidence from the graph saved at `saved`, which `kernels` ran, and "", or None and why.

    `limits` are those of the interpreter; all tensors at once may take its live bytes as well.
    """
    try:
        all_outputs.check_room(kernels, limits.live_bytes)
        feeds = [feedset.feeds for feedset in given]
        return fingerprints.evidence(model, saved, feeds, threads, limits, progress), ""
    except TracerError as error:
        return None, error.what


def another(model: Model, first: FeedSet, seed: int) -> Sequence[FeedSet]:
    """Random inputs of the sizes of `first`, from the seed after; none for a model without."""
    if not first.feeds:
        return ()
    return (FeedSet(random.generate(model, first.shapes, seed + 1), first.batch),)
