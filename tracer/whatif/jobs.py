"""The jobs of a what-if: what a worker opens to run shards of the data."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic

import numpy as np

from tracer.interpreter.values import Value
from tracer.metrics import Metric
from tracer.scaling.shards import Shard
from tracer.support.progress import Progress
from tracer.support.types import Array
from tracer.whatif.deadline import Deadline
from tracer.whatif.metric_scores import WideBatch, scorer, summary
from tracer.whatif.shard_runs import Arithmetic, B, Scoring, ShardRuns
from tracer.whatif.stored_batches import AnyBatch, StoredBatches


@dataclass(frozen=True, slots=True)
class EvaluationJob:
    """Scores a model by a metric on batches of a data set.

    `progress` and `deadline` are of the process that made the job.
    """

    arithmetic: Arithmetic
    batches: StoredBatches
    metric: Metric
    progress: Progress | None = field(default=None, repr=False)
    deadline: Deadline | None = None

    def portable(self) -> "EvaluationJob":
        """Returns the job for other processes."""
        return replace(self, progress=None, deadline=None)

    def open(self, threads: int | None) -> ShardRuns[AnyBatch]:
        """Returns the prepared model. Raises the errors of `ShardRuns`."""
        model = self.arithmetic.model
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
