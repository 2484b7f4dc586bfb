"""Runs a network in accumulators of several kinds, one after the other, and scores each.

Widths are swept by `whatif.sweep`, which reuses what widths have in common. Accumulators of other
kinds have nothing in common, so that each takes a run over all the data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec import kinds
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import Policy, Rule, parse_policy
from tracer.accumulators.statistics import bins
from tracer.accumulators.statistics.float_partial_sums import SUMMED, FloatPartialSums
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.analyzers.energy import EnergyModel
from tracer.executors.emulated.executor import merged_by_node, merged_floats, refuse_draws
from tracer.graph.model import Model
from tracer.graph.operators import adds_integers
from tracer.graph.stored_weights import WeightFiles, findable
from tracer.inputs.datasets.dataset import Dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.limits import Limits
from tracer.metrics import Metric
from tracer.records.whatif import REFERENCE_BITS, SweptAccumulator, known_sum
from tracer.scaling.pool import Pool
from tracer.scaling.shards import Shard, run_on_shards
from tracer.support.progress import Progress
from tracer.support.types import Array
from tracer.whatif.criteria import energy_cost, scorer
from tracer.whatif.deadline import Deadline, OutOfTimeError
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
    dataset: Dataset
    metric: Metric
    energy: EnergyModel
    options: WhatIfOptions
    operands: str | None
    pool: Pool
    progress: Progress
    limits: Limits | None
    deadline: Deadline

    @property
    def addition_convention(self) -> str:
        """How additions are counted."""
        return self.options.addition_convention or "plain"


@dataclass(frozen=True, slots=True)
class TriedAccumulators:
    """The rows, the score of the model as it is, its samples, and notes."""

    rows: tuple[SweptAccumulator, ...]
    score: float
    samples: int
    notes: tuple[str, ...]


def try_accumulators(
    task: AccumulatorTask, spellings: tuple[str, ...], batches: StoredBatches
) -> TriedAccumulators:
    """Returns a row for each accumulator; at the deadline, those that were begun are left out.

    Raises the errors of `policy_text.read`, `AccumulatorEmulation` and `Interpreter`.
    """
    policies = {spelling: _policy(task, spelling) for spelling in spellings}  # errors come first
    plain = _shared(task, task.model, None, batches)
    rows, notes = [], list[str]()
    for spelling, policy in policies.items():
        try:
            trial = _Trial(task, policy, batches)
            rows.append(trial.row(spelling))
        except OutOfTimeError:
            tried = f"{len(rows)} of {len(policies)} accumulators were tried"
            notes.append(f"{task.deadline.end_reason}: {tried}")
            break
        notes += trial.notes
    scores = np.concatenate([part.scores for part in plain])
    return TriedAccumulators(
        tuple(rows), float(scores.mean()), len(scores), tuple(dict.fromkeys(notes))
    )


def _policy(task: AccumulatorTask, spelling: str) -> Policy:
    """Returns the policy of one accumulator; formats are for the kind that takes them."""
    if isinstance(kinds.parse(spelling, _PLAIN).accumulator, Accumulator):
        return parse_policy(spelling, task.options.fixed)
    return parse_policy(spelling, operands=task.operands)


@dataclass(frozen=True, slots=True)
class _Part:
    """The run of a shard: scores of its samples, statistics of its sums, and `seconds`."""

    scores: Array
    sums: tuple[PartialSums, ...]
    float_sums: tuple[FloatPartialSums, ...]
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
    deadline: Deadline | None = None
    weights: tuple[WeightFiles, WeightFiles] | None = None

    def portable(self) -> TrialJob:
        """Returns the job for other processes. Raises UsageError where it draws random numbers."""
        if self.policy is not None:
            refuse_draws(self.model, self.policy)
        model, plain = findable(self.model), findable(self.plain)
        weights = WeightFiles.of(model), WeightFiles.of(plain)
        return replace(self, model=model, plain=plain, deadline=None, weights=weights)

    def open(self, threads: int | None) -> _Runs:
        """Returns what runs shards. Raises InputError where a model has other weights here."""
        for model, weights in zip((self.model, self.plain), self.weights or (), strict=False):
            weights.check(model)
        return _Runs(self, threads)


class _Runs:
    """Runs shards of the data in the accumulators of a policy."""

    def __init__(self, job: TrialJob, threads: int | None) -> None:
        self._job = job
        self._threads = threads
        self._deadline = job.deadline or Deadline()
        self._plain = Interpreter(job.plain, limits=job.limits, threads=threads)

    def run(self, shard: Shard) -> _Part:
        """Runs the batches of a shard. Raises OutOfTimeError at the deadline."""
        job, began = self._job, time.perf_counter()
        emulation = None if job.policy is None else AccumulatorEmulation(job.model, job.policy)
        interpreter = self._plain if emulation is None else Interpreter(
            job.model, wrap_kernel=emulation.wrap, fuse=emulation.fuse, limits=job.limits,
            threads=self._threads,
        )  # fmt: skip
        scoring = scorer(job.model, job.batches.dataset, job.metric)
        scores = []
        with self._deadline.turning_signals():
            for batch in job.batches() if shard.count is None else job.batches.shard(shard):
                self._deadline.check()
                outputs = interpreter.run(None, batch.inputs)
                compares = emulation is not None and not job.metric.needs_labels
                reference = self._plain.run(None, batch.inputs) if compares else outputs
                scores.append(scoring(outputs, batch, reference))
        return _Part(
            np.concatenate(scores),
            () if emulation is None else tuple(emulation.accumulations().values()),
            () if emulation is None else emulation.float_sums,
            () if emulation is None else emulation.notes,
            time.perf_counter() - began,
        )


@dataclass(frozen=True)
class _Trial:
    """One accumulator for all nodes that sum."""

    task: AccumulatorTask
    policy: Policy
    batches: StoredBatches

    @cached_property
    def _model(self) -> Model:
        needs = self.policy.adds_integers and self.task.options.fixed is None
        if needs and not adds_integers(self.task.model):
            return self.task.quantized()
        return self.task.model

    @cached_property
    def _emulation(self) -> AccumulatorEmulation:
        return AccumulatorEmulation(self._model, self.policy)

    @cached_property
    def _parts(self) -> list[_Part]:
        return _shared(self.task, self._model, self.policy, self.batches)

    @property
    def notes(self) -> tuple[str, ...]:
        """Nodes that are computed as usual, and operands that were cast."""
        return tuple(dict.fromkeys(note for part in self._parts for note in part.notes))

    def row(self, spelling: str) -> SweptAccumulator:
        """Runs all the data."""
        score = float(np.concatenate([part.scores for part in self._parts]).mean())
        counts = self._integer_counts() if self._emulation.runners else self._float_counts()
        rules = self._emulation.float_rules.values()
        formats = dict.fromkeys(str(rule.operands) for rule in rules if rule.operands)
        operands = ",".join(formats) or None
        return SweptAccumulator(spelling, operands, score, energy=self._energy(), **counts)

    def _integer_counts(self) -> dict[str, Any]:
        sums = merged_by_node([part.sums for part in self._parts], PartialSums.merged)
        tallies = [each.tally for each in sums]
        over = [tally.overflow(tally.accumulator.bits).overflow_outputs.sum() for tally in tallies]
        return {
            "outputs": int(sum(tally.outputs.sum() for tally in tallies)),
            "overflow_outputs": int(sum(over)),
            **dict.fromkeys(("swamped_share", "rel_error_p50", "rel_error_p99")),
        }

    def _float_counts(self) -> dict[str, Any]:
        sums = merged_by_node([part.float_sums for part in self._parts], merged_floats)
        tallies = [each.tally for each in sums]
        total = {
            name: reduce(np.add, (getattr(tally, name) for tally in tallies)) for name in SUMMED
        }
        return {
            "outputs": int(total["outputs"]),
            "overflow_outputs": int(total["overflow_outputs"]),
            "swamped_share": float(total["swamped"] / total["terms"]) if total["terms"] else None,
            "rel_error_p50": bins.error_percentile(total["error_histogram"], 50),
            "rel_error_p99": bins.error_percentile(total["error_histogram"], 99),
        }

    def _energy(self) -> float | None:
        """Returns the energy per sample; None where a node that multiplies has no figures."""
        emulation, task = self._emulation, self.task
        every = self.policy.assign(self._model.nodes)
        integers = {key: every[key] for key in emulation.runners}
        rules: Mapping[str, Rule] = integers | dict(emulation.float_rules)
        cost = energy_cost(self._model, task.dataset, rules, task.energy, task.addition_convention)
        used = [rules[node].accumulator for node in cost.nodes]
        # the energy of floats does not depend on these bits
        bits = [each.bits if isinstance(each, Accumulator) else REFERENCE_BITS for each in used]
        energies = dict(zip(cost.nodes, cost.per_node(bits), strict=True))
        if any(energies[node] is None for node in cost.work.nodes):
            return None
        return known_sum(energies.values())


def _shared(
    task: AccumulatorTask, model: Model, policy: Policy | None, batches: StoredBatches
) -> list[_Part]:
    """Runs all the data; workers share it out. Raises OutOfTimeError at the deadline."""
    job = TrialJob(model, task.model, policy, batches, task.metric, task.limits, task.deadline)
    with task.deadline.turning_signals():
        return run_on_shards(
            task.pool, job, "run", batches.count, task.progress, task.deadline.check
        )
