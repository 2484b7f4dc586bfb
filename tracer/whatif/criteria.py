"""What a what-if goes by: the score of a metric, the energy of a sample, and its deadline."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from tracer import metrics
from tracer.accumulators.spec.policy import Rule
from tracer.analyzers.cost import cost, operands
from tracer.analyzers.cost.typed_model import TypedModel
from tracer.analyzers.energy import EnergyModel, Work
from tracer.analyzers.overflow import coverage
from tracer.containment import signals
from tracer.errors import ModelError, UsageError, locate_errors
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.feedset import FeedSet
from tracer.interpreter.interpreter import Interpreter
from tracer.metrics import scores as scoring
from tracer.records.whatif import Coverage, Judgement, NodeWork, WideBatch, known_sum
from tracer.shapes import infer
from tracer.support.types import Array


def checked_metric(model: Model, dataset: Dataset, spec: str | None) -> metrics.Metric:
    """Returns the metric `spec`, or a default for the outputs and the labels, tried on one sample.

    Raises UsageError where no metric fits, ModelError for an output that is one number for all
    samples, and the error of a metric that does not fit.
    """
    sample = next(dataset.batches(1))
    outputs = Interpreter(model).run(None, sample.inputs)
    metric = metrics.default_metric(sample, outputs[0]) if spec is None else metrics.find(spec)
    if metric is None:
        labels = "no labels" if sample.labels is None else f"labels {_type(sample.labels)}"
        raise UsageError(
            f"no metric fits an output {_type(outputs[0])} of {model.name} and {labels} of "
            f"{dataset.name}",
            f"Give --metric: {', '.join(metrics.METRICS)}, or FILE.py:NAME.",
        )
    metric = metrics.suited(metric, sample, outputs[0])
    if any(isinstance(value, np.ndarray) and not value.ndim for value in outputs):
        raise ModelError(
            f"{model.name}: an output is one number, not one for each sample",
            "Metrics take outputs whose first axis is that of the samples.",
        )
    with locate_errors(model.name):
        scorer(model, dataset, metric)(outputs, sample, outputs)
    return metric


def judgement(metric: metrics.Metric, budget: float | None) -> Judgement:
    """Returns the metric and the accuracy budget [default: the metric's] as results have them."""
    allowed = float(metric.budget if budget is None else budget)
    return Judgement(metric.name, metric.unit, metric.higher_is_better, allowed)


def scorer(
    model: Model, dataset: Dataset, metric: metrics.Metric
) -> Callable[[Sequence[Any], Any, Sequence[Any]], Any]:
    """Returns a function (outputs, batch, outputs in wide accumulators) -> scores of the samples.

    Scores are in the unit of the metric.
    """

    def score(outputs: Sequence[Any], batch: Any, wide: Sequence[Any]) -> Any:
        truth: Mapping[str, Any] | Array = (
            metric.labels(batch, dataset.name)
            if metric.needs_labels
            else _by_name(model, wide, batch.size)
        )
        with locate_errors(dataset.name):
            scores = metric.scores(_by_name(model, outputs, batch.size), truth)
        return scores * metric.scale

    return score


def _by_name(model: Model, outputs: Sequence[Any], size: int) -> dict[str, Any]:
    """The outputs of the first `size` samples: a fixed batch may be padded."""
    names = (value.name for value in model.graph.output)
    return {name: value[:size] for name, value in zip(names, outputs, strict=True)}


def summary(model: Model, metric: metrics.Metric) -> Callable[[Array, Sequence[Any]], WideBatch]:
    """Returns a function (scores, outputs in wide accumulators) -> what is kept of the batch."""

    def summarized(scores: Array, outputs: Sequence[Any]) -> WideBatch:
        own = _by_name(model, outputs, len(scores))
        return WideBatch(
            scores,
            scoring.lead(outputs[0][: len(scores)]),
            scoring.class_counts(metric, own),
            scoring.channel_squares(metric, own),
        )

    return summarized


def metric_notes(
    metric: metrics.Metric, batches: Sequence[WideBatch], has_budget: bool = True
) -> tuple[str, ...]:
    """Returns notes on what the metric does not show of the outputs in wide accumulators.

    Without a budget of the user's, also on whether that of the metric fits its scores.
    """
    scores = np.concatenate([batch.scores for batch in batches])
    notes = (
        scoring.one_class_note(metric, (batch.classes for batch in batches)),
        scoring.no_hit_note(metric, scores),
        None if has_budget else scoring.large_budget_note(metric, float(scores.mean())),
        scoring.unlike_channels_note(metric, (batch.squares for batch in batches)),
    )
    return tuple(filter(None, notes))


def hardest(metric: metrics.Metric, batches: Sequence[WideBatch], count: int) -> Array:
    """Returns the numbers of the `count` samples that a small change endangers most, ascending.

    Samples with the worst scores come first, of equal scores those whose best class leads by least.
    """
    scores = np.concatenate([batch.scores for batch in batches])
    leads = np.concatenate([batch.leads for batch in batches])
    order = np.lexsort((leads, scores if metric.higher_is_better else -scores))
    return np.sort(order[:count])


def _type(array: Any) -> str:
    """Element type and shape of one sample: `float32[10]`."""
    return f"{array.dtype}{list(array.shape[1:])}"


@dataclass(frozen=True, slots=True)
class EnergyCost:
    """Energies per sample of the narrow `nodes`.

    None for nodes that multiply nothing, and for nodes of unknown work. `coverage` tells how much
    of the model's products these nodes add.
    """

    nodes: tuple[str, ...]
    model: EnergyModel
    work: Work = field(repr=False)
    notes: tuple[str, ...] = ()
    coverage: Coverage | None = None

    def __call__(self, widths: Sequence[int]) -> float:
        """Returns the energy of all nodes together; `widths` in the order of `nodes`."""
        return known_sum(self.per_node(widths))

    def per_node(self, widths: Sequence[int]) -> tuple[float | None, ...]:
        """Returns the energy of each node. Raises InputError for a width the model lacks."""
        bits = dict(zip(self.nodes, widths, strict=True))
        energies = self.model.per_node(self.work, {node: bits[node] for node in self.work.nodes})
        return tuple(energies.get(node) for node in self.nodes)

    def by_width(self, widths: Iterable[int]) -> dict[int, tuple[float | None, ...]]:
        """Returns the energy of each node, for each width that all nodes share."""
        return {bits: self.per_node((bits,) * len(self.nodes)) for bits in sorted(set(widths))}


def energy_cost(
    model: Model,
    dataset: Dataset,
    rules: Mapping[str, Rule],
    energy: EnergyModel,
    addition_convention: str,
    summed: Collection[str] | None = None,
) -> EnergyCost:
    """Counts the work of the nodes with `rules` on the shapes of one sample of a model.

    A model with a fixed batch is counted with that batch, and the work divided by its size. Of the
    nodes, those that are `summed` are covered [default: all]: a branch that no sample takes has no
    widths.
    """
    sample = next(dataset.batches(1))
    typed = TypedModel(model, infer(model, FeedSet(sample.inputs, None).shapes))
    counts = cost(typed, convention=addition_convention).table
    own = counts.loc[counts.index.isin(list(rules))]
    work = Work.of(own, operands(typed, rules))
    batch = dataset.layout.batch or 1
    per_sample = replace(work, muls=work.muls / batch, adds=work.adds / batch)
    counted = {*work.nodes, *own.index[(own["macs"] == 0).fillna(False)]}
    unknown = [node for node in rules if node not in counted]
    notes = (f"energies exclude nodes of unknown work: {', '.join(unknown)}",) if unknown else ()
    types = pd.Series({node.key: node.op_type for node in model.nodes}, dtype=object)
    every = counts.assign(op_type=types)
    covered = list(rules if summed is None else summed)
    narrow = pd.Series(counts.index.isin(covered), counts.index)
    return EnergyCost(tuple(rules), energy, per_sample, notes, coverage(every, narrow))


def node_work(model: Model, cost: EnergyCost) -> tuple[NodeWork, ...]:
    """Returns the work of each narrow node."""
    nodes = {node.key: node for node in model.nodes}
    work = cost.work
    columns = zip(work.muls, work.adds, work.operand_bits, work.weight_bits, strict=True)
    known = {node: map(float, own) for node, own in zip(work.nodes, columns, strict=True)}
    return tuple(
        NodeWork(node, nodes[node].op_type, nodes[node].module, *known.get(node, (None,) * 4))
        for node in cost.nodes
    )


_RESERVE, _STEPS_IN_PROGRESS = 0.1, 2
"""Share of the seconds, and steps, that are kept back for batches in progress and the result.

The limit of the process itself ends what takes longer.
"""


class OutOfTimeError(Exception):
    """No evaluation can be made any more; those that were made still answer."""


class Deadline:
    """The end of a what-if that may take so many seconds from now; None is without end."""

    def __init__(self, seconds: float | None = None) -> None:
        self._ends = math.inf if seconds is None else time.monotonic() + seconds
        self._reserve = _RESERVE * (seconds or 0)
        self._checked: float | None = None
        self._ended = ""

    def part(self, share: float) -> "Deadline":
        """Returns a deadline after this share of the time that is left."""
        if math.isinf(self._ends):
            return Deadline()
        return Deadline(share * max(self._ends - time.monotonic(), 0.0))

    @property
    def end_reason(self) -> str:
        """What ended the what-if; '' where nothing did, or it ended by itself."""
        return self._ended

    def check(self) -> None:
        """Raises OutOfTimeError where a batch would end too late, or a signal has arrived."""
        now = time.monotonic()
        if self._checked is not None:
            self._reserve = max(self._reserve, _STEPS_IN_PROGRESS * (now - self._checked))
        self._checked = now
        if not self._ended and now > self._ends - self._reserve:
            self._ended = "out of time"
        self._ended = self._ended or signals.ending()
        if self._ended:
            raise OutOfTimeError(self._ended)

    @contextmanager
    def turning_signals(self) -> Iterator[None]:
        """Raises OutOfTimeError in place of the exception of a signal that arrives inside."""
        try:
            yield
        except signals.ENDINGS as error:
            self._ended = signals.ending()
            if not self._ended:  # a caller handles signals its own way
                raise
            raise OutOfTimeError(self._ended) from error
