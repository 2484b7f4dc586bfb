"""Run an ONNX model in the reference interpreter, with or without narrow accumulators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from analyzers import observed_shapes
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import Policy
from tracer.accumulators.spec.policy_text import policy
from tracer.api._assembly import analyze, assembled
from tracer.executors import registry
from tracer.executors.narrowed.executor import NarrowedSettings, Receive
from tracer.executors.reference.executor import ReferenceSettings
from tracer.graph import shape_inference
from tracer.graph.loading import ModelSource, open_model
from tracer.inputs.request import Feeds, Samples, request_for
from tracer.limits import Limits
from tracer.records.trace import Trace
from tracer.support.progress import Progress, silent


def interpret(
    model: ModelSource,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: Feeds | Samples = None,
    seed: int = 0,
    accumulator: int | str | Accumulator | Policy | None = None,
    fixed: str | None = None,
    options: ReferenceSettings | None = None,
    limits: Limits | None = None,
    convention: str = "plain",
    progress: Progress | None = None,
    receive: Receive | None = None,
) -> Trace:
    """Time `model` node by node under the reference interpreter, for one batch size.

    The node table is that of `profile`; feeds are chosen in the same way. With an `accumulator`
    every sum is made in it: a width, a policy as text (`conv1=18,*=17`) or as the path of a TOML
    file, or an object of `tracer.accumulators`; `fixed` are the numbers that floats
    become, as in `8:5/8:7`. The overflow columns are filled then, from one inference on each batch.
    `feeds` may be many .npz files, test_data_set folders, and folders of these; arrays with more
    rows than `batch`, or than the model takes, are cut; or `Samples` of a data set, `batch` (64) at
    a time. `receive` is handed the feeds and the outputs of every batch.

    Raises the errors of `tracer.errors`, among them LimitError for a run beyond `limits`.
    """
    loaded = open_model(model)
    options = options or ReferenceSettings()
    report = progress or silent
    request = request_for(model, loaded, batch, dims, feeds, seed)
    if accumulator is None:
        feedset = request.feeds()
        settings = replace(options, limits=limits)
        run = registry.find("reference").profile(loaded, feedset, settings, report).run
        ran: dict[str, object] = {n: v for n, v in asdict(options).items() if n != "limits"}
    else:
        batches = request.batches()
        feedset = next(iter(batches))
        chosen = policy(accumulator, fixed)
        narrowed = NarrowedSettings(chosen, options.threads, limits, receive)
        run = registry.find("narrowed").profile(loaded, batches, narrowed, report).run
        ran = {"threads": options.threads, "accumulator": accumulator, "fixed": fixed}
    seen = observed_shapes.of(loaded, run.kernels)
    types = shape_inference.infer(loaded, feedset.shapes).updated(seen.types)
    asked = {"batch": batch, "dims": dims, "feeds": feeds, "seed": seed, "convention": convention}
    analyzed = [analyze(loaded, run, types, seen.calls, convention)]
    return assembled(loaded, analyzed, {**ran, **asked})
