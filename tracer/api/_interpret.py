"""Runs an ONNX model in the reference interpreter: see `tracer.interpret`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tracer.accumulators.spec.any_accumulator import AnyAccumulator
from tracer.accumulators.spec.policy import Policy, Rule, as_policy
from tracer.analyzers import energy as energy_models
from tracer.analyzers import observed_shapes
from tracer.analyzers.options import DEFAULT_ENERGY_MODEL
from tracer.api._assembly import Pricing, analyze, assembled, configured, energy_settings
from tracer.api.interpret import Receiver
from tracer.errors import UsageError
from tracer.executors import registry
from tracer.executors.protocol import Receive
from tracer.exporters.subject import Subject, open_subject
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import (
    InputPaths,
    Request,
    Samples,
    on_sizes_that_run,
    request_for,
    with_overrides,
)
from tracer.limits import Limits, enforced
from tracer.quantization.from_qonnx import runnable_form
from tracer.records.trace import Run, Trace
from tracer.scaling.pool import Note, Pool, opened_pool
from tracer.shapes import infer
from tracer.support.progress import Progress
from tracer.support.tolerance import Tolerance

_MODULES = ("tracer.executors.emulated.executor",)
"""What workers load as they start."""


@dataclass(frozen=True, slots=True)
class _Job:
    """What an executor runs, and how; `first` are the first of its inputs.

    `chosen` are settings of the executor, `settings` are what the trace says of them, and `rules`
    are the accumulators of the nodes by key.
    """

    executor: str
    inputs: FeedSet | Iterable[FeedSet]
    first: FeedSet
    chosen: dict[str, object]
    settings: dict[str, object]
    rules: Mapping[str, Rule] = field(default_factory=dict)


def interpret(
    model: Subject,
    batch: int | None,
    dims: Mapping[str, int] | None,
    feeds: InputPaths | Samples,
    seed: int,
    runs: int,
    warmup: int | None,
    threads: int,
    against: str | None,
    fallback: str | None,
    register: Sequence[str | Path],
    tolerance: Tolerance | None,
    accumulator: int | str | AnyAccumulator | Policy | None,
    fixed: str | None,
    operands: str | None,
    by_sample: bool,
    limits: Limits | None,
    convention: str,
    energy: str | None,
    progress: Progress,
    receive: Receive | None,
    receivers: Sequence[Receiver],
    cluster: Any,
    note: Note | None,
) -> Trace:
    """Times the inferences of one batch, or counts the overflow of all batches."""
    narrowed = None if accumulator is None else as_policy(accumulator, fixed, operands)
    said = {"accumulator": accumulator, "fixed": fixed, "operands": operands}
    if energy is None and narrowed is not None and narrowed.adds_integers:
        energy = DEFAULT_ENERGY_MODEL
    energy_model = None if energy is None else energy_models.find(energy)
    if cluster is not None:
        _check_shared(narrowed, receive, receivers)
    loaded = with_overrides(open_subject(model), feeds)
    reference = loaded if against is None else runnable_form(loaded)
    for receiver in receivers:
        receiver.start(loaded)
    request = request_for(model, loaded, 1 if by_sample else batch, dims, feeds, seed)
    general = {
        "threads": threads or None, "limits": limits, "receive": _to_all(receive, receivers),
        "fallback": None if fallback is None else registry.find_fallback(fallback, register),
    }  # fmt: skip

    def done(job: _Job) -> tuple[_Job, Run]:
        measuring = registry.settings_for(job.executor, job.chosen | general)
        profiled = registry.find(job.executor).profile(loaded, job.inputs, measuring, progress)
        return job, configured(profiled.run, measuring)

    def plain(feedset: FeedSet) -> tuple[_Job, Run]:
        return done(_plain(reference, feedset, runs, warmup, threads, against, register, tolerance))

    with enforced(limits or Limits()):
        if narrowed is None:
            _, (job, run) = on_sizes_that_run(request, plain)
        else:
            with opened_pool(cluster, threads, note, _MODULES) as pool:
                job, run = done(_narrow(request, narrowed, by_sample, said, pool))
    observation = observed_shapes.of(loaded, run.kernels)
    types, differences = observation.applied(loaded, infer(loaded, job.first.shapes))
    run = replace(run, notes=(*run.notes, *differences))
    counted = (*(sums.node for sums in run.sums), *(sums.node for sums in run.float_sums))
    narrow = {node: job.rules[node] for node in counted}
    pricing = None if energy_model is None else Pricing(energy_model, narrow)
    analyzed = [analyze(loaded, run, types, observation.calls, convention, pricing=pricing)]
    recorded = {
        "threads": threads, **job.settings, "batch": batch, "dims": dims, "feeds": feeds,
        "fallback": fallback, "register": [str(path) for path in register], "seed": seed,
        "convention": convention,
        "energy": energy_settings(energy_model),
    }  # fmt: skip
    return assembled(replace(loaded, notes=reference.notes), analyzed, recorded)


def _check_shared(
    narrowed: Policy | None, receive: Receive | None, receivers: Sequence[Receiver]
) -> None:
    """Raises UsageError for what workers do not share out."""
    if narrowed is None:
        raise UsageError(
            "workers share out the data of a count of overflows, and one batch is timed here",
            "Give --accumulator, or leave out --workers and --scheduler.",
        )
    if receive is not None or receivers:
        raise UsageError(
            "workers send statistics, and not the inputs and outputs of every batch",
            "Leave out the .npz, the folder and the certificate, or --workers and --scheduler.",
        )


def _plain(
    model: Model, feedset: FeedSet, runs: int, warmup: int | None, threads: int,
    against: str | None, register: Sequence[str | Path], tolerance: Tolerance | None,
) -> _Job:  # fmt: skip
    """Times the inferences of one batch."""
    expected = None if against is None else _tensors(against, model, feedset, threads, register)
    timed: dict[str, object] = {"runs": runs, "warmup": warmup}
    chosen = timed | {"expected": expected, "tolerance": tolerance}
    return _Job(registry.REFERENCE, feedset, feedset, chosen, timed | {"against": against})


def _narrow(
    request: Request, narrowed: Policy, by_sample: bool, said: Mapping[str, object], pool: Pool
) -> _Job:
    """Counts the overflow of all batches; `said` are the arguments of the policy."""
    batches = request.batches()
    counted: dict[str, object] = {"by_sample": by_sample}
    chosen = counted | {"policy": narrowed, "pool": pool}
    return _Job(
        registry.EMULATED, batches, next(iter(batches)), chosen,
        {**counted, **said}, narrowed.assign(request.model.nodes),
    )  # fmt: skip


def _tensors(
    name: str, model: Model, feedset: FeedSet, threads: int, register: Sequence[str | Path]
) -> Mapping[str, Any]:
    """Returns every tensor of the nodes of `model`, computed by the executor `name`."""
    running = {"threads": threads or None, "optimization": "none", "register": register or None}
    chosen = registry.settings_for(name, running)
    return registry.find_tensors(name).tensors(model, feedset, chosen).by_name


def _to_all(receive: Receive | None, receivers: Sequence[Receiver]) -> Receive:
    callbacks = [*([receive] if receive else []), *(receiver.receive for receiver in receivers)]
    return lambda feedset, outputs: [callback(feedset, outputs) for callback in callbacks]
