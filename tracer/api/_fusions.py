"""Maps the kernels that a runtime runs to the nodes of the model: see `tracer.fusions`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tracer.analyzers.fusions import Fusions, mapped
from tracer.api._pipeline import matched
from tracer.errors import TracerError
from tracer.executors import registry
from tracer.exporters.subject import Subject, open_subject
from tracer.inputs.request import on_sizes_that_run, request_for, with_overrides
from tracer.limits import Limits, fair_share
from tracer.quantization.from_qonnx import runnable_form
from tracer.records import environment
from tracer.records.model_info import ModelInfo
from tracer.support.progress import Progress, silent

_COMPARED_BYTES = 4 << 30


def fusions(
    model: Subject,
    batch: int | None,
    dims: Mapping[str, int],
    feeds: str | Path | Sequence[str | Path] | None,
    seed: int,
    threads: int,
    optimization: str,
    register: Sequence[str | Path],
    progress: Progress | None,
    executor: str,
    limits: Limits | None,
) -> Fusions:
    """Runs the model and matches tensors of its optimised graph with its own."""
    loaded = runnable_form(with_overrides(open_subject(model), feeds))
    runtime = registry.find_optimizing(executor)
    settings = registry.settings_for(
        executor,
        {"threads": threads or None, "optimization": optimization, "register": register or None},
    )
    paths = [feeds] if isinstance(feeds, str | Path) else list(feeds or ())
    requests = [request_for(model, loaded, batch, dims, path, seed) for path in paths or (None,)]
    first, graph = on_sizes_that_run(
        requests[0], lambda feedset: runtime.optimize(loaded, feedset, settings)
    )
    feed_sets = [first, *(request.feeds() for request in requests[1:])]
    feed_sets += requests[0].further_feeds(first)
    most = limits or Limits(live_bytes=min(_COMPARED_BYTES, fair_share()))
    matches = matched(graph, feed_sets, most, progress or silent)
    failure = matches if isinstance(matches, TracerError) else None
    notes = (f"values were not compared: {failure.what}",) if failure else ()
    return mapped(
        loaded,
        graph.kernels,
        None if isinstance(matches, TracerError) else matches,
        info=ModelInfo.of(loaded),
        environment=environment.observe(),
        settings={
            "batch": batch,
            "dims": dict(dims),
            "feeds": [str(path) for path in paths],
            "seed": seed,
            "threads": threads,
            "optimization": optimization,
            "register": [str(path) for path in register],
        },
        notes=(*loaded.notes, *first.notes, *notes),
    )
