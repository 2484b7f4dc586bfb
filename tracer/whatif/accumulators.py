"""Runs a network in accumulators of several kinds, one after the other, and scores each.

Widths are swept by `whatif.sweep`, which reuses what widths have in common. Accumulators of other
kinds have nothing in common, so that each takes a run over all the data.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np

from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.nodes import rules_of
from tracer.accumulators.spec import kinds
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import Policy, Rule, parse_policy
from tracer.accumulators.statistics import float_partial_sums
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.analyzers.energy import EnergyModel
from tracer.containment import signals
from tracer.containment.activity import Progress
from tracer.executors.emulated.executor import merged_by_node, refuse_draws
from tracer.graph.model import Model
from tracer.graph.operators import adds_integers
from tracer.graph.stored_weights import WeightFiles, findable
from tracer.interpreter.interpreter import Interpreter
from tracer.limits import Limits
from tracer.metrics import Metric
from tracer.records.whatif import REFERENCE_BITS, SweptAccumulator, WideBatch, known_sum
from tracer.scaling.pool import Pool, Shard, run_on_shards
from tracer.support.types import Array
from tracer.whatif import criteria, runtime_orders
from tracer.whatif.options import WhatIfOptions
from tracer.whatif.reuse import StoredBatches

_PLAIN = Accumulator(REFERENCE_BITS)


@dataclass(frozen=True, slots=True)
class AccumulatorTask:
    """What accumulators are tried on.

    `quantized` returns the quantised model for integers, where `model` is one of floats.
    """

    model: Model
    quantized: Callable[[], Model]
    batches: StoredBatches
    metric: Metric
    energy: EnergyModel
    options: WhatIfOptions
    operands: str | None
    pool: Pool
    progress: Progress
    limits: Limits | None
    deadline: criteria.Deadline

    @property
    def addition_convention(self) -> str:
        """How additions are counted."""
        return self.options.addition_convention or "plain"

    def run(self, model: Model, policy: Policy | None) -> "list[_Part]":
        """Runs all the data, which workers share out. Raises OutOfTimeError at the deadline."""
        job = TrialJob(
            model, self.model, policy, self.batches, self.metric, self.limits, self.deadline
        )
        with self.deadline.turning_signals():
            return run_on_shards(
                self.pool, job, "run", self.batches.count, self.progress, self.deadline.check
            )


def try_accumulators(
    task: AccumulatorTask, spellings: tuple[str, ...]
) -> tuple[list[SweptAccumulator], Array, list[str]]:
    """Returns a row for each accumulator, the scores of the model as it is, and notes.

    At the deadline, accumulators that were begun are left out. Raises the errors of
    `parse_policy`, `AccumulatorEmulation` and `Interpreter`.
    """
    policies = {}  # errors come before the runs; formats are for the kind that takes them
    for spelling in spellings:
        is_integer = isinstance(kinds.parse(spelling, _PLAIN).accumulator, Accumulator)
        policies[spelling] = (
            parse_policy(spelling, task.options.fixed)
            if is_integer
            else parse_policy(spelling, operands=task.operands)
        )
    plain = task.run(task.model, None)
    rows, notes = list[SweptAccumulator](), list[str]()
    for spelling, policy in policies.items():
        try:
            row, own = _row(task, spelling, policy)
        except criteria.OutOfTimeError:
            tried = f"{len(rows)} of {len(policies)} accumulators were tried"
            notes.append(f"{task.deadline.end_reason}: {tried}")
            break
        rows.append(row)
        notes += own
        signals.keep(True)
    shown = [batch for part in plain for batch in part.batches]
    notes += criteria.metric_notes(task.metric, shown, task.options.accuracy_budget is not None)
    return rows, np.concatenate([part.scores for part in plain]), notes


def _row(
    task: AccumulatorTask, spelling: str, policy: Policy
) -> tuple[SweptAccumulator, tuple[str, ...]]:
    """Runs all the data in one accumulator, and returns its row and its notes.

    These tell of nodes that are computed as usual, and of operands that were cast.
    """
    model = task.model
    if policy.adds_integers and task.options.fixed is None and not adds_integers(model):
        model = task.quantized()
    policy, orders = runtime_orders.find_orders(policy, model, lambda: next(task.batches()).inputs)
    parts = task.run(model, policy)
    emulation = AccumulatorEmulation(model, policy)
    formats = (str(rule.operands) for rule in emulation.float_rules.values() if rule.operands)
    every = rules_of(policy, model)
    rules: Mapping[str, Rule] = {
        **{key: every[key] for key in emulation.runners}, **emulation.float_rules
    }  # fmt: skip
    cost = criteria.energy_cost(
        model, task.batches.dataset, rules, task.energy, task.addition_convention
    )
    used = [rules[node].accumulator for node in cost.nodes]
    # the energy of floats does not depend on these bits
    bits = [each.bits if isinstance(each, Accumulator) else REFERENCE_BITS for each in used]
    energies = dict(zip(cost.nodes, cost.per_node(bits), strict=True))
    unknown = any(energies[node] is None for node in cost.work.nodes)
    row = SweptAccumulator(
        spelling,
        operands=",".join(dict.fromkeys(formats)) or None,
        score=float(np.concatenate([part.scores for part in parts]).mean()),
        energy=None if unknown else known_sum(energies.values()),
        **_counts(parts, are_integers=bool(emulation.runners)),
    )
    return row, (*orders, *(note for part in parts for note in part.notes))


def _counts(parts: "Sequence[_Part]", are_integers: bool) -> dict[str, Any]:
    """Returns the counts of all nodes together; integers have neither swamped terms nor errors."""
    if are_integers:
        tallies = [each.tally for each in merged_by_node([part.sums for part in parts])]
        over = [tally.overflow().overflow_outputs.sum() for tally in tallies]
        return {
            "outputs": int(sum(tally.outputs.sum() for tally in tallies)),
            "overflow_outputs": int(sum(over)),
            **dict.fromkeys(("swamped_share", "rel_error_p50", "rel_error_p99")),
        }
    floats = [each.tally for each in merged_by_node([part.float_sums for part in parts])]
    total = {
        name: reduce(np.add, (getattr(tally, name) for tally in floats))
        for name in float_partial_sums.SUMMED
    }
    return {
        "outputs": int(total["outputs"]),
        "overflow_outputs": int(total["overflow_outputs"]),
        "swamped_share": float(total["swamped"] / total["terms"]) if total["terms"] else None,
        "rel_error_p50": float_partial_sums.error_percentile(total["error_histogram"], 50),
        "rel_error_p99": float_partial_sums.error_percentile(total["error_histogram"], 99),
    }


@dataclass(frozen=True, slots=True)
class _Part:
    """The run of a shard: scores of its samples, statistics of its sums, and `seconds`.

    `batches` are of the model as it is, without a policy.
    """

    scores: Array
    batches: tuple[WideBatch, ...]
    sums: tuple[PartialSums, ...]
    float_sums: tuple[float_partial_sums.FloatPartialSums, ...]
    notes: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class TrialJob:
    """Runs `model` with the accumulators of `policy`, and scores it beside `plain`.

    That is the model as it is, and without a policy it is scored itself. `deadline` is of the
    process that made the job; `weights` are for other ones.
    """

    model: Model = field(repr=False)
    plain: Model = field(repr=False)
    policy: Policy | None
    batches: StoredBatches
    metric: Metric
    limits: Limits | None
    deadline: criteria.Deadline | None = None
    weights: tuple[WeightFiles, WeightFiles] | None = None

    def portable(self) -> "TrialJob":
        """Returns the job for other processes. Raises UsageError where it draws random numbers."""
        if self.policy is not None:
            refuse_draws(self.model, self.policy)
        model, plain = findable(self.model), findable(self.plain)
        weights = WeightFiles.of(model), WeightFiles.of(plain)
        return replace(self, model=model, plain=plain, deadline=None, weights=weights)

    def open(self, threads: int | None) -> "_Runs":
        """Returns what runs shards. Raises InputError where a model has other weights here."""
        for model, weights in zip((self.model, self.plain), self.weights or (), strict=False):
            weights.check(model)
        return _Runs(self, threads)


class _Runs:
    """Runs shards of the data in the accumulators of a policy."""

    def __init__(self, job: TrialJob, threads: int | None) -> None:
        self._job = job
        self._threads = threads
        self._deadline = job.deadline or criteria.Deadline()
        self._plain = Interpreter(job.plain, limits=job.limits, threads=threads)

    def run(self, shard: Shard) -> _Part:
        """Runs the batches of a shard. Raises OutOfTimeError at the deadline."""
        job, began = self._job, time.perf_counter()
        emulation = None if job.policy is None else AccumulatorEmulation(job.model, job.policy)
        interpreter = self._plain if emulation is None else Interpreter(
            job.model, wrap_kernel=emulation.wrap, fuse=emulation.fuse, limits=job.limits,
            threads=self._threads,
        )  # fmt: skip
        scoring = criteria.scorer(job.model, job.batches.dataset, job.metric)
        summarized = criteria.summary(job.model, job.metric)
        scores, shown = list[Array](), list[WideBatch]()
        with self._deadline.turning_signals():
            for batch in job.batches(shard):
                self._deadline.check()
                outputs = interpreter.run(None, batch.inputs)
                compares = emulation is not None and not job.metric.needs_labels
                reference = self._plain.run(None, batch.inputs) if compares else outputs
                scores.append(scoring(outputs, batch, reference))
                if emulation is None:
                    shown.append(summarized(scores[-1], outputs))
        return _Part(
            np.concatenate(scores),
            tuple(shown),
            () if emulation is None else tuple(emulation.accumulations().values()),
            () if emulation is None else emulation.float_sums,
            () if emulation is None else emulation.notes,
            time.perf_counter() - began,
        )
