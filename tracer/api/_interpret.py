"""Runs an ONNX model in the reference interpreter: see `tracer.interpret`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tracer.accumulators.spec.policy import Policy, Rule, as_policy
from tracer.analyzers import energy as energy_models
from tracer.analyzers import observed_shapes
from tracer.analyzers.options import DEFAULT_ENERGY_MODEL
from tracer.api._assembly import Pricing, analyze, assembled, configured, energy_settings
from tracer.api.interpret import InterpretArguments
from tracer.containment.activity import silent
from tracer.errors import UsageError
from tracer.executors import registry
from tracer.executors.protocol import Receive
from tracer.exporters.subject import open_subject
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import Request, on_sizes_that_run, request_for, with_overrides
from tracer.limits import Limits, enforced
from tracer.quantization.from_qonnx import runnable_form
from tracer.records.trace import Run, Trace
from tracer.scaling.pool import Pool, opened_pool
from tracer.shapes import infer

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


def interpret(call: InterpretArguments) -> Trace:
    """Times the inferences of one batch, or counts the overflow of all batches."""
    narrowed = None
    if call.accumulator is not None:
        narrowed = as_policy(call.accumulator, call.fixed, call.operands)
    said = {"accumulator": call.accumulator, "fixed": call.fixed, "operands": call.operands}
    energy = call.energy
    if energy is None and narrowed is not None and narrowed.adds_integers:
        energy = DEFAULT_ENERGY_MODEL
    energy_model = None if energy is None else energy_models.find(energy)
    if call.cluster is not None:
        _check_shared(narrowed, call)
    loaded = with_overrides(open_subject(call.model), call.feeds)
    reference = loaded if call.against is None else runnable_form(loaded)
    for receiver in call.receivers:
        receiver.start(loaded)
    batch = 1 if call.by_sample else call.batch
    request = request_for(call.model, loaded, batch, call.dims, call.feeds, call.seed)
    fallback = None
    if call.fallback is not None:
        fallback = registry.find_fallback(call.fallback, call.register)
    callbacks: list[Receive] = [receiver.receive for receiver in call.receivers]
    if call.receive is not None:
        callbacks.insert(0, call.receive)
    progress = call.progress or silent
    general = {
        "threads": call.threads or None, "limits": call.limits, "fallback": fallback,
        "receive": lambda feedset, outputs: [each(feedset, outputs) for each in callbacks],
    }  # fmt: skip

    def done(job: _Job) -> tuple[_Job, Run]:
        measuring = registry.settings_for(job.executor, job.chosen | general)
        profiled = registry.find(job.executor).profile(loaded, job.inputs, measuring, progress)
        return job, configured(profiled.run, measuring)

    def plain(feedset: FeedSet) -> tuple[_Job, Run]:
        return done(_plain(call, reference, feedset))

    with enforced(call.limits or Limits()):
        if narrowed is None:
            _, (job, run) = on_sizes_that_run(request, plain)
        else:
            with opened_pool(call.cluster, call.threads, call.note, _MODULES) as pool:
                job, run = done(_narrow(request, narrowed, call.by_sample, said, pool))
    observation = observed_shapes.of(loaded, run.kernels)
    types, differences = observation.applied(loaded, infer(loaded, job.first.shapes))
    run = replace(run, notes=(*run.notes, *differences))
    counted = (*(sums.node for sums in run.sums), *(sums.node for sums in run.float_sums))
    narrow = {node: job.rules[node] for node in counted}
    pricing = None if energy_model is None else Pricing(energy_model, narrow)
    analyzed = [analyze(loaded, run, types, observation.calls, call.convention, pricing=pricing)]
    recorded = {
        "threads": call.threads, **job.settings, "batch": call.batch, "dims": call.dims,
        "feeds": call.feeds, "fallback": call.fallback,
        "register": [str(path) for path in call.register], "seed": call.seed,
        "convention": call.convention, "energy": energy_settings(energy_model),
    }  # fmt: skip
    return assembled(replace(loaded, notes=reference.notes), analyzed, recorded)


def _check_shared(narrowed: Policy | None, call: InterpretArguments) -> None:
    """Raises UsageError for what workers do not share out."""
    if narrowed is None:
        raise UsageError(
            "workers share out the data of a count of overflows, and one batch is timed here",
            "Give --accumulator, or leave out --workers and --scheduler.",
        )
    if call.receive is not None or call.receivers:
        raise UsageError(
            "workers send statistics, and not the inputs and outputs of every batch",
            "Leave out the .npz, the folder and the certificate, or --workers and --scheduler.",
        )


def _plain(call: InterpretArguments, model: Model, feedset: FeedSet) -> _Job:
    """Times the inferences of one batch."""
    expected = None
    if call.against is not None:  # every tensor, by another executor
        running = {
            "threads": call.threads or None, "optimization": "none",
            "register": call.register or None,
        }  # fmt: skip
        other = registry.settings_for(call.against, running)
        expected = registry.find_tensors(call.against).tensors(model, feedset, other).by_name
    timed: dict[str, object] = {"runs": call.runs, "warmup": call.warmup}
    chosen = timed | {"expected": expected, "tolerance": call.tolerance}
    return _Job(registry.REFERENCE, feedset, feedset, chosen, timed | {"against": call.against})


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
