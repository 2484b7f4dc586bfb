"""The jobs of a what-if: what a worker opens to run shards of the data."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic

import numpy as np

from tracer.graph.stored_weights import WeightFiles, findable
from tracer.interpreter.values import Value
from tracer.metrics import Metric
from tracer.scaling.shards import Shard
from tracer.support.progress import Progress
from tracer.support.types import Array
from tracer.whatif.deadline import Deadline
from tracer.whatif.metric_scores import WideBatch, checked_metric, scorer, summary
from tracer.whatif.shard_runs import Arithmetic, B, Scoring, ShardRuns
from tracer.whatif.stored_batches import AnyBatch, StoredBatches


@dataclass(frozen=True, slots=True)
class MetricJob:
    """Chooses the metric of a data set, and tries it on one sample; `spec` is what a user named."""

    batches: StoredBatches
    spec: str | None
    weights: WeightFiles | None = None

    def portable(self) -> "MetricJob":
        """Returns the job for other processes."""
        return replace(self, weights=WeightFiles.of(self.batches.dataset.model))

    def open(self, threads: int | None) -> "MetricJob":
        """Returns the job. Raises InputError where the model has other weights here."""
        if self.weights is not None:
            self.weights.check(self.batches.dataset.model)
        return self

    def metric(self) -> Metric:
        """Returns the metric. Raises the errors of `checked_metric`."""
        dataset = self.batches.dataset
        return checked_metric(dataset.model, dataset, self.spec)


@dataclass(frozen=True, slots=True)
class EvaluationJob:
    """Scores a model by a metric on batches of a data set.

    `progress` and `deadline` are of the process that made the job; `weights` are for other ones.
    """

    arithmetic: Arithmetic
    batches: StoredBatches
    metric: Metric
    progress: Progress | None = field(default=None, repr=False)
    deadline: Deadline | None = None
    weights: WeightFiles | None = None

    def portable(self) -> "EvaluationJob":
        """Returns the job for other processes."""
        model = findable(self.arithmetic.model)
        arithmetic = replace(self.arithmetic, model=model)
        weights = WeightFiles.of(model)
        return EvaluationJob(arithmetic, self.batches, self.metric, weights=weights)

    def open(self, threads: int | None) -> ShardRuns[AnyBatch]:
        """Returns the prepared model.

        Raises the errors of `ShardRuns`, and InputError where the model has other weights here.
        """
        model = self.arithmetic.model
        if self.weights is not None:
            self.weights.check(model)
        return ShardRuns(
            self.arithmetic,
            self._batches,
            scorer(model, self.batches.dataset, self.metric),
            summary(model, self.metric),
            threads=threads,
            progress=self.progress,
            deadline=self.deadline,
        )

    def _batches(self, shard: Shard) -> Iterable[AnyBatch]:
        return self.batches() if shard.count is None else self.batches.shard(shard)


@dataclass(frozen=True, slots=True)
class BatchesJob(Generic[B]):
    """Scores a model by a function, on all batches that `data` returns."""

    arithmetic: Arithmetic
    data: Callable[[], Iterable[B]]
    scoring: Scoring[B]

    def portable(self) -> "BatchesJob[B]":
        """Returns the job itself."""
        return self

    def open(self, threads: int | None) -> ShardRuns[B]:
        """Returns the prepared model. Raises the errors of `ShardRuns`."""
        return ShardRuns(self.arithmetic, self._all, self.scoring, _scores, threads=threads)

    def _all(self, shard: Shard) -> Iterable[B]:
        return self.data()


def _scores(scores: Array, outputs: Sequence[Value]) -> WideBatch:
    none = np.zeros(0, np.int64)
    return WideBatch(scores, np.zeros(len(scores)), (none, none), {})
