"""Runs a network in accumulators of several kinds, one after the other, and scores each.

Widths are swept by `whatif.sweep`, which reuses what widths have in common. Accumulators of other
kinds have nothing in common, so that each takes a run over all the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from analyzers.energy import EnergyModel
from tracer.accumulators.narrowed_model import Narrowing
from tracer.accumulators.spec import kinds
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import Policy, Rule
from tracer.accumulators.spec.policy_text import read
from tracer.accumulators.statistics import error_bins
from tracer.accumulators.statistics.float_tally import SUMMED
from tracer.graph.model import Model
from tracer.graph.quantized import adds_integers
from tracer.inputs.datasets.dataset import Dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.values import Value
from tracer.limits import Limits
from tracer.metrics import Metric
from tracer.records.accumulator_sweep import SweptAccumulator
from tracer.records.whatif import REFERENCE_BITS, known_sum
from tracer.support.types import Array
from tracer.whatif.array_spill import ArraySpill
from tracer.whatif.deadline import Deadline, OutOfTimeError
from tracer.whatif.energy_cost import energy_cost
from tracer.whatif.metric_scores import scorer
from tracer.whatif.options import WhatIfOptions
from tracer.whatif.stored_batches import AnyBatch, StoredBatches

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
    threads: int
    limits: Limits | None
    deadline: Deadline

    @property
    def addition_convention(self) -> str:
        """How additions are counted."""
        return self.options.addition_convention or "plain"


@dataclass(frozen=True, slots=True)
class Tried:
    """The rows, the score of the model as it is, its samples, and notes."""

    rows: tuple[SweptAccumulator, ...]
    score: float
    samples: int
    notes: tuple[str, ...]


def tried(task: AccumulatorTask, spellings: tuple[str, ...], batches: StoredBatches) -> Tried:
    """Returns a row for each accumulator; at the deadline, those that were begun are left out.

    Raises the errors of `policy_text.read`, `Narrowing` and `Interpreter`.
    """
    policies = {spelling: _policy(task, spelling) for spelling in spellings}  # errors come first
    reference = _Reference(task, batches)
    rows, notes = [], list[str]()
    for spelling, policy in policies.items():
        try:
            trial = _Trial(task, policy, reference, batches)
            rows.append(trial.row(spelling))
        except OutOfTimeError:
            notes.append(
                f"{task.deadline.ended}: {len(rows)} of {len(policies)} accumulators were tried"
            )
            break
        notes += trial.notes
    scores = reference.scores
    return Tried(tuple(rows), float(scores.mean()), len(scores), tuple(dict.fromkeys(notes)))


def _policy(task: AccumulatorTask, spelling: str) -> Policy:
    """Returns the policy of one accumulator; formats are for the kind that takes them."""
    if isinstance(kinds.parse(spelling, _PLAIN).accumulator, Accumulator):
        return read(spelling, task.options.fixed)
    return read(spelling, operands=task.operands)


class _Reference:
    """The model as it is: the scores of its samples, and its outputs for metrics that need them."""

    def __init__(self, task: AccumulatorTask, batches: StoredBatches) -> None:
        self._task = task
        self._outputs = ArraySpill()
        interpreter = Interpreter(task.model, limits=task.limits, threads=task.threads or None)
        scoring = scorer(task.model, task.dataset, task.metric)
        scores = []
        for batch, outputs in _runs(task, interpreter, batches):
            self._outputs.append(outputs)
            scores.append(scoring(outputs, batch, outputs))
        self.scores: Array = np.concatenate(scores)

    def outputs(self, number: int) -> list[Array]:
        """Returns the outputs of a batch."""
        return self._outputs.read(number)


@dataclass(frozen=True)
class _Trial:
    """One accumulator for all nodes that sum."""

    task: AccumulatorTask
    policy: Policy
    reference: _Reference
    batches: StoredBatches

    @cached_property
    def _model(self) -> Model:
        needs = self.policy.adds_integers and self.task.options.fixed is None
        if needs and not adds_integers(self.task.model):
            return self.task.quantized()
        return self.task.model

    @cached_property
    def _narrowing(self) -> Narrowing:
        return Narrowing(self._model, self.policy)

    @property
    def notes(self) -> tuple[str, ...]:
        """Nodes that are computed as usual, and operands that were cast."""
        return self._narrowing.notes

    def row(self, spelling: str) -> SweptAccumulator:
        """Runs all the data."""
        score = self._score()
        counts = self._integer_counts() if self._narrowing.runners else self._float_counts()
        rules = self._narrowing.float_rules.values()
        formats = dict.fromkeys(str(rule.operands) for rule in rules if rule.operands)
        operands = ",".join(formats) or None
        return SweptAccumulator(spelling, operands, score, energy=self._energy(), **counts)

    def _score(self) -> float:
        task, narrowing = self.task, self._narrowing
        interpreter = Interpreter(
            self._model, around=narrowing.kernel, fuse=narrowing.fuse, limits=task.limits,
            threads=task.threads or None,
        )  # fmt: skip
        scoring = scorer(self._model, task.dataset, task.metric)
        runs = enumerate(_runs(task, interpreter, self.batches))
        scores = [
            scoring(outputs, batch, self.reference.outputs(number))
            for number, (batch, outputs) in runs
        ]
        return float(np.concatenate(scores).mean())

    def _integer_counts(self) -> dict[str, Any]:
        tallies = [sums.tally for sums in self._narrowing.accumulations().values()]
        over = [tally.overflow(tally.accumulator.bits).overflow_outputs.sum() for tally in tallies]
        return {
            "outputs": int(sum(tally.outputs.sum() for tally in tallies)),
            "overflow_outputs": int(sum(over)),
            **dict.fromkeys(("swamped_share", "rel_error_p50", "rel_error_p99")),
        }

    def _float_counts(self) -> dict[str, Any]:
        tallies = [sums.tally for sums in self._narrowing.float_sums]
        total = {
            name: reduce(np.add, (getattr(tally, name) for tally in tallies)) for name in SUMMED
        }
        return {
            "outputs": int(total["outputs"]),
            "overflow_outputs": int(total["overflow_outputs"]),
            "swamped_share": float(total["swamped"] / total["terms"]) if total["terms"] else None,
            "rel_error_p50": error_bins.percentile(total["error_histogram"], 50),
            "rel_error_p99": error_bins.percentile(total["error_histogram"], 99),
        }

    def _energy(self) -> float | None:
        """Returns the energy per sample; None where a node that multiplies has no figures."""
        narrowing, task = self._narrowing, self.task
        every = self.policy.assign(self._model.nodes)
        integers = {key: every[key] for key in narrowing.runners}
        rules: Mapping[str, Rule] = integers | dict(narrowing.float_rules)
        cost = energy_cost(self._model, task.dataset, rules, task.energy, task.addition_convention)
        energies = dict(zip(cost.nodes, cost.per_node([_bits(rules[n]) for n in cost.nodes]),
                            strict=True))  # fmt: skip
        if any(energies[node] is None for node in cost.work.nodes):
            return None
        return known_sum(energies.values())


def _bits(rule: Rule) -> int:
    """Bits of an accumulator of integers; the energy of floats does not depend on them."""
    return rule.accumulator.bits if isinstance(rule.accumulator, Accumulator) else REFERENCE_BITS


def _runs(
    task: AccumulatorTask, interpreter: Interpreter, batches: StoredBatches
) -> Iterator[tuple[AnyBatch, list[Value]]]:
    """Yields each batch with its outputs. Raises OutOfTimeError at the deadline."""
    with task.deadline.reached():
        for batch in batches():
            task.deadline.check()
            yield batch, interpreter.run(None, batch.inputs)
