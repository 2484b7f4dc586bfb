"""The Python door to fusions: which nodes of a model each kernel of onnxruntime stands for."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from analyzers.fusions import Fusions, mapped
from tracer.executors.onnxruntime import profiler
from tracer.executors.onnxruntime.fusion_check import evidence
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.loading import Source, open_model
from tracer.inputs.request import on_sizes_that_run, request_for
from tracer.limits import Limits
from tracer.records import environment
from tracer.records.trace import ModelInfo
from tracer.support.progress import Progress

_LIMITS = Limits(live_bytes=4 << 30)


def fusions(
    model: Source,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: str | Path | Sequence[str | Path] | None = None,
    seed: int = 0,
    threads: int = 0,
    optimization: str = "all",
    progress: Progress | None = None,
) -> Fusions:
    """Map the kernels that onnxruntime runs for `model` to its nodes, and confirm it by values.

    `feeds` are .npz files or test_data_set folders, one inference each; without them inputs are
    random, with `seed` and with the next one. What the rewritten graph computes on them is held
    against what the interpreter computes of the model; where that cannot be done, a note says why,
    and nothing is confirmed. Raises the errors of `tracer.errors` for a model or inputs that
    onnxruntime does not run.
    """
    loaded = open_model(model)
    options = OrtSettings(1, 0, None, threads, optimization)
    paths = [feeds] if isinstance(feeds, str | Path) else list(feeds or ())
    requests = [request_for(model, loaded, batch, dims, path, seed) for path in paths or (None,)]
    with tempfile.TemporaryDirectory(prefix="tracer-") as folder:
        first, (kernels, saved) = on_sizes_that_run(
            requests[0], lambda fed: profiler.rewritten(loaded, fed, options, Path(folder))
        )
        given = [first, *(request.feeds() for request in requests[1:])]
        if requests[0].random:
            given += evidence.another(loaded, first, seed)
        found, why = evidence.of_graph(loaded, kernels, saved, given, threads, _LIMITS, progress)
    asked = {"batch": batch, "dims": dict(dims or {}), "feeds": [str(path) for path in paths]}
    settings = {**asked, "seed": seed, "threads": threads, "optimization": optimization}
    notes = [f"values were not compared: {why}"] if found is None else []
    return mapped(
        loaded,
        kernels,
        found,
        info=ModelInfo.of(loaded),
        environment=environment.observe(),
        settings=settings,
        notes=(*first.notes, *notes),
    )
