"""`tracer.fusions`: maps the kernels that a runtime runs to the nodes of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.api import _calls
from tracer.support.arguments import option

if TYPE_CHECKING:
    from tracer.analyzers.fusions import Fusions
    from tracer.exporters.subject import ModelSource

_COMPARED_BYTES = 4 << 30
"""What comparing tensors may hold, unless the limits say otherwise."""


@dataclass(frozen=True)
class FusionsArguments(_calls.Contained):
    """The arguments of `fusions`."""

    model: ModelSource
    _: KW_ONLY
    batch: int | None = _calls.batch("1")
    dims: Mapping[str, int] | None = _calls.dims()
    inputs: str | Path | Sequence[str | Path] | None = option(
        "Input values to compare on: an .npz file or a test_data_set folder. Repeatable.  "
        "[default: random, twice]",
        None, group=_calls.INPUT, reads=("path",), multiple=True, common=True,
    )  # fmt: skip
    seed: int = _calls.seed()
    optimization: str = _calls.optimization("all", common=True)
    threads: int = _calls.threads(common=True)
    register: Sequence[str | Path] = _calls.register()
    executor: str = "onnxruntime"


@_calls.contained(FusionsArguments)
def fusions(call: FusionsArguments) -> Fusions:
    """Returns which nodes each kernel of `model` contains, checked by comparing tensor values.

    `inputs` are .npz files or test_data_set folders, one inference each. The default is two sets of
    random inputs, from `seed` and the next seed. Tensors of the optimised graph are compared with
    tensors that the interpreter computes; where this is impossible, a note says why and no kernel
    is confirmed. `register` are libraries of custom operators for onnxruntime.

    The model runs in a child process, within `seconds` and `process_bytes` of `limits`, or with
    `in_process` in this one. The interpreter keeps to the other `limits` [default: 4 GiB of live
    values]. Raises the errors of `tracer.errors` for a model or inputs that cannot run.

    >>> import tracer
    >>> rows = tracer.fusions("models/lenet/lenet.onnx").to_pandas().set_index("node")
    >>> bool(rows["kernel"]["node_relu"] == rows["kernel"]["node_Conv_22"])
    True
    """
    from tracer.analyzers.fusions import mapped
    from tracer.api._assembly import matched
    from tracer.errors import TracerError
    from tracer.executors import registry
    from tracer.exporters.subject import open_subject, runnable_form
    from tracer.inputs.request import on_sizes_that_run, request_for, with_overrides
    from tracer.limits import Limits, fair_share
    from tracer.records import environment
    from tracer.records.model_info import ModelInfo

    loaded = runnable_form(with_overrides(open_subject(call.model), call.inputs))
    runtime = registry.find_optimizing(call.executor)
    chosen = {
        "threads": call.threads or None, "optimization": call.optimization,
        "register": call.register or None,
    }  # fmt: skip
    settings = registry.settings_for(call.executor, chosen)
    paths = [call.inputs] if isinstance(call.inputs, str | Path) else list(call.inputs or ())
    requests = [
        request_for(call.model, loaded, call.batch, call.dims, path, call.seed)
        for path in paths or (None,)
    ]
    first, graph = on_sizes_that_run(
        requests[0], lambda feedset: runtime.optimize(loaded, feedset, settings),
        registry.try_feeds(call.executor, loaded, settings), call.report,
    )  # fmt: skip
    feed_sets = [first, *(request.feeds() for request in requests[1:])]
    feed_sets += requests[0].further_feeds(first)
    most = call.limits or Limits(live_bytes=min(_COMPARED_BYTES, fair_share()))
    matches = matched(graph, feed_sets, most, call.report)
    failure = matches if isinstance(matches, TracerError) else None
    notes = (f"values were not compared: {failure.what}",) if failure else ()
    return mapped(
        loaded, graph.kernels, None if isinstance(matches, TracerError) else matches,
        info=ModelInfo.of(loaded), environment=environment.observe(),
        settings={
            "batch": call.batch, "dims": dict(call.dims or {}), "feeds": [*map(str, paths)],
            "seed": call.seed, "threads": call.threads, "optimization": call.optimization,
            "register": [str(path) for path in call.register],
        },
        notes=(*loaded.notes, *first.notes, *notes),
    )  # fmt: skip
