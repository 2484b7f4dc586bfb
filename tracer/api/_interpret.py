"""Runs an ONNX model in the reference interpreter: see `tracer.interpret`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tracer.accumulators.nodes import rules_of
from tracer.accumulators.spec.policy import Policy, Rule, as_policy
from tracer.analyzers import energy as energy_models
from tracer.analyzers.advice.few_bits import saturation_notes
from tracer.analyzers.cost import typed_model
from tracer.analyzers.options import DEFAULT_ENERGY_MODEL
from tracer.analyzers.table import origins
from tracer.api._assembly import analyze, assembled, configured
from tracer.api.interpret import InterpretArguments
from tracer.executors import registry
from tracer.executors.settings import OrtSettings
from tracer.exporters.subject import open_subject, runnable_form
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import Request, on_sizes_that_run, request_for, with_overrides
from tracer.limits import Limits, enforced
from tracer.records import environment
from tracer.records.trace import Run, Trace
from tracer.scaling.pool import opened_pool
from tracer.shapes import infer
from tracer.whatif import runtime_orders

_MODULES = ("tracer.executors.emulated.executor",)
"""What workers load as they start."""
_OF_SUMS = ("by_sample", "accumulator", "fixed", "operands")
"""Arguments that a trace of sums records."""


def interpret(call: InterpretArguments) -> Trace:
    """Times the inferences of one batch, or counts the overflow of all batches."""
    loaded = with_overrides(open_subject(call.model), call.inputs)
    if call.optimization is None:
        return _trace_of(call, loaded)
    settings = OrtSettings(optimization=call.optimization, register=call.register)
    with registry.find_optimizing("ort").optimized_model(loaded, settings) as made:
        return _trace_of(call, made)


def _trace_of(call: InterpretArguments, loaded: Model) -> Trace:
    narrowed = None
    if call.accumulator is not None:
        narrowed = as_policy(call.accumulator, call.fixed, call.operands)
    energy = call.energy
    if energy is None and narrowed is not None and narrowed.adds_integers:
        energy = DEFAULT_ENERGY_MODEL
    energy_model = None if energy is None else energy_models.find(energy)
    reference = loaded if call.against is None else runnable_form(loaded)
    for receiver in call.receivers:
        receiver.start(loaded)
    batch = 1 if call.by_sample else call.batch
    request = request_for(call.model, loaded, batch, call.dims, call.inputs, call.seed)
    run_in = _runner(call, loaded)
    timed: dict[str, object] = {"runs": call.runs, "warmup": call.warmup}

    def timed_run(feedset: FeedSet) -> Run:
        expected = None
        if call.against is not None:  # every tensor, by another executor
            running = {
                "threads": call.threads or None, "optimization": "none",
                "register": call.register or None,
            }  # fmt: skip
            other = registry.settings_for(call.against, running)
            tensors = registry.find_tensors(call.against).tensors(reference, feedset, other)
            expected = tensors.by_name
        chosen = {**timed, "expected": expected, "tolerance": call.tolerance}
        return run_in(registry.REFERENCE, feedset, chosen)

    rules: Mapping[str, Rule] = {}
    with enforced(call.limits or Limits()):
        if narrowed is None:
            first, run = on_sizes_that_run(request, timed_run)
            if call.against is not None:
                differing = [each.node for each in origins(run.values)]
                doubts = saturation_notes(run.kernels, differing, environment.cpu_flags())
                run = replace(run, notes=(*run.notes, *doubts))
            said = {**timed, "against": call.against}
        else:
            said = {name: getattr(call, name) for name in _OF_SUMS}
            first, rules, run = _narrow_run(call, narrowed, request, run_in)
    observation = typed_model.observe(loaded, run.kernels)
    types, differences = observation.applied(loaded, infer(loaded, first.shapes))
    run = replace(run, notes=(*run.notes, *differences))
    counted = (*(sums.node for sums in run.sums), *(sums.node for sums in run.float_sums))
    narrow = {node: rules[node] for node in counted}
    pricing = None if energy_model is None else energy_models.Pricing(energy_model, narrow)
    analyzed = [analyze(loaded, run, types, observation.calls, call.convention, pricing=pricing)]
    recorded = {
        "threads": call.threads, **said, "batch": call.batch, "dims": call.dims,
        "feeds": call.inputs, "fallback": call.fallback, "optimization": call.optimization,
        "register": [str(path) for path in call.register], "seed": call.seed,
        "convention": call.convention, "energy": energy_model and energy_model.settings,
    }  # fmt: skip
    return assembled(replace(loaded, notes=reference.notes), analyzed, recorded)


def _narrow_run(
    call: InterpretArguments, policy: Policy, request: Request, run_in: Callable[..., Run]
) -> tuple[FeedSet, Mapping[str, Rule], Run]:
    """Returns the first batch, the rules of the nodes by key, and the run of all batches."""
    with opened_pool(call.cluster, call.threads, call.note, _MODULES) as pool:
        batches = request.batches()
        first = next(iter(batches))
        policy, orders = runtime_orders.find_orders(
            policy, request.model, lambda: first.feeds, call.threads,
            lambda kernel: call.report(0, 0, f"revealing {kernel.op_type}"),
        )  # fmt: skip
        chosen = {"by_sample": call.by_sample, "policy": policy, "pool": pool}
        run = run_in(registry.EMULATED, batches, chosen)
    return first, rules_of(policy, request.model), replace(run, notes=(*orders, *run.notes))


def _runner(call: InterpretArguments, model: Model) -> Callable[..., Run]:
    """Returns a function that runs `model` in an executor, on inputs, with its settings."""
    fallback = None
    if call.fallback is not None:
        fallback = registry.find_fallback(call.fallback, call.register)
    callbacks: list[registry.Receive] = [receiver.receive for receiver in call.receivers]
    if call.receive is not None:
        callbacks.insert(0, call.receive)
    general = {
        "threads": call.threads or None, "limits": call.limits, "fallback": fallback,
        "receive": lambda feedset, outputs: [each(feedset, outputs) for each in callbacks],
    }  # fmt: skip

    def run_in(executor: str, inputs: FeedSet | Iterable[FeedSet], chosen: dict[str, Any]) -> Run:
        settings = registry.settings_for(executor, chosen | general)
        running = registry.find(executor)
        profiled = running.profile(model, inputs, settings, call.report)
        return configured(profiled.run, settings)

    return run_in
