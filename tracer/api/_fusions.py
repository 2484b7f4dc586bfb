"""Maps the kernels that a runtime runs to the nodes of the model: see `tracer.fusions`."""

from pathlib import Path

from tracer.analyzers.fusions import Fusions, mapped
from tracer.api._pipeline import matched
from tracer.api.fusions import FusionsArguments
from tracer.containment.activity import silent
from tracer.errors import TracerError
from tracer.executors import registry
from tracer.exporters.subject import open_subject
from tracer.inputs.request import on_sizes_that_run, request_for, with_overrides
from tracer.limits import Limits, fair_share
from tracer.quantization.from_qonnx import runnable_form
from tracer.records import environment
from tracer.records.model_info import ModelInfo

_COMPARED_BYTES = 4 << 30


def fusions(call: FusionsArguments) -> Fusions:
    """Runs the model and matches tensors of its optimised graph with its own."""
    loaded = runnable_form(with_overrides(open_subject(call.model), call.feeds))
    runtime = registry.find_optimizing(call.executor)
    settings = registry.settings_for(
        call.executor,
        {
            "threads": call.threads or None,
            "optimization": call.optimization,
            "register": call.register or None,
        },
    )
    paths = [call.feeds] if isinstance(call.feeds, str | Path) else list(call.feeds or ())
    requests = [
        request_for(call.model, loaded, call.batch, call.dims or {}, path, call.seed)
        for path in paths or (None,)
    ]
    first, graph = on_sizes_that_run(
        requests[0], lambda feedset: runtime.optimize(loaded, feedset, settings)
    )
    feed_sets = [first, *(request.feeds() for request in requests[1:])]
    feed_sets += requests[0].further_feeds(first)
    most = call.limits or Limits(live_bytes=min(_COMPARED_BYTES, fair_share()))
    matches = matched(graph, feed_sets, most, call.progress or silent)
    failure = matches if isinstance(matches, TracerError) else None
    notes = (f"values were not compared: {failure.what}",) if failure else ()
    return mapped(
        loaded,
        graph.kernels,
        None if isinstance(matches, TracerError) else matches,
        info=ModelInfo.of(loaded),
        environment=environment.observe(),
        settings={
            "batch": call.batch,
            "dims": dict(call.dims or {}),
            "feeds": [str(path) for path in paths],
            "seed": call.seed,
            "threads": call.threads,
            "optimization": call.optimization,
            "register": [str(path) for path in call.register],
        },
        notes=(*loaded.notes, *first.notes, *notes),
    )
