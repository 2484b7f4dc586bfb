"""Run an ONNX model in the reference interpreter, with or without narrow accumulators."""

from collections.abc import Mapping
from typing import Literal

from analyzers import observed_shapes
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import Policy
from tracer.accumulators.spec.policy_text import policy
from tracer.api._assembly import analyze, assembled
from tracer.errors import UsageError
from tracer.executors import registry
from tracer.executors.narrowed.executor import NarrowedSettings
from tracer.executors.onnxruntime.all_outputs import tensors
from tracer.executors.reference.executor import Receive, ReferenceSettings
from tracer.graph import shape_inference
from tracer.graph.loading import ModelSource, open_model
from tracer.inputs.request import InputPaths, Samples, request_for
from tracer.limits import Limits
from tracer.records.trace import Trace
from tracer.support.progress import Progress, silent
from tracer.support.tolerance import Tolerance


def interpret(
    model: ModelSource,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: InputPaths | Samples = None,
    seed: int = 0,
    runs: int = 5,
    warmup: int = 1,
    threads: int = 0,
    against: Literal["ort"] | None = None,
    tolerance: Tolerance | None = None,
    accumulator: int | str | Accumulator | Policy | None = None,
    fixed: str | None = None,
    limits: Limits | None = None,
    convention: str = "plain",
    progress: Progress | None = None,
    receive: Receive | None = None,
) -> Trace:
    """Runs `model` node by node in the reference interpreter, for one batch size.

    The node table has the columns of `profile`, and statistics of each node's values. With
    `against="ort"`, it has the differences from onnxruntime without optimisation; `run.values`
    says which nodes exceed `tolerance`. `runs` inferences are timed after `warmup` others.

    With an `accumulator`, sums are computed in narrow accumulators, in one inference for each
    batch, and the overflow columns are filled instead. An accumulator is a width, a policy as text
    (`conv1=18,*=17`), the path of a TOML file, or an object of `tracer.accumulators`; `fixed` are
    the fixed-point formats of float operands, as in `8:5/8:7`.

    `feeds` are chosen as in `profile`. With an `accumulator`, they may be many .npz files and
    test_data_set folders, which are split into batches of `batch` rows, or `Samples` of a data set
    in batches of `batch` (64). `receive` is called with the feeds and the outputs of every batch.

    Raises the errors of `tracer.errors`, among them LimitError for a run beyond `limits`.
    """
    if against is not None and accumulator is not None:
        raise UsageError("a narrow accumulator differs from onnxruntime", "Leave out one of them.")
    loaded = open_model(model)
    request = request_for(model, loaded, batch, dims, feeds, seed)
    settings: dict[str, object] = {"threads": threads}
    if accumulator is None:
        feedset = request.feeds()
        expected = None if against is None else tensors(loaded, feedset.feeds, threads)
        chosen = ReferenceSettings(
            runs, warmup, threads, limits, receive, expected, tolerance or Tolerance()
        )
        run = registry.find("reference").profile(loaded, feedset, chosen, progress or silent).run
        settings |= {"runs": runs, "warmup": warmup, "against": against}
    else:
        batches = request.batches()
        feedset = next(iter(batches))
        narrowed = NarrowedSettings(policy(accumulator, fixed), threads, limits, receive)
        run = registry.find("narrowed").profile(loaded, batches, narrowed, progress or silent).run
        settings |= {"accumulator": accumulator, "fixed": fixed}
    observation = observed_shapes.of(loaded, run.kernels)
    types = shape_inference.infer(loaded, feedset.shapes).updated(observation.types)
    settings |= {
        "batch": batch, "dims": dims, "feeds": feeds, "seed": seed, "convention": convention
    }  # fmt: skip
    analyzed = [analyze(loaded, run, types, observation.calls, convention)]
    return assembled(loaded, analyzed, settings)
