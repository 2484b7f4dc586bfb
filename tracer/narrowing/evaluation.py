"""Runs a model in narrow accumulators: its score, and what its sums need."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.spec.policy import Policy
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.metrics import Metric
from tracer.support.progress import Progress
from tracer.support.types import Array
from tracer.whatif.criteria import scorer
from tracer.whatif.reuse import ArraySpill


@dataclass(frozen=True, slots=True)
class Sums:
    """The mean score on a data set, in the unit of the metric, and the sums of the nodes by key."""

    score: float
    sums: Mapping[str, PartialSums]
    notes: tuple[str, ...]


class Evaluation:
    """Scores models on all samples of a data set, against the outputs of `wide`.

    `before` are the score and the sums of `wide` in the accumulators of `policy`, which must be
    wide enough for all of them. Raises the errors of the metric, and of `AccumulatorEmulation`.
    """

    def __init__(
        self,
        wide: Model,
        policy: Policy,
        dataset: Dataset,
        metric: Metric,
        batch: int,
        progress: Progress,
    ) -> None:
        self._dataset = dataset
        self._metric = metric
        self._batch = batch
        self._progress = progress
        self._outputs = ArraySpill()
        self.samples = 0
        self.before = self._run(wide, policy, "scoring in wide accumulators", self._keep)

    def of(self, model: Model, policy: Policy, task: str) -> Sums:
        """Runs `model` in the accumulators of `policy`."""
        return self._run(model, policy, task, lambda outputs, size: None)

    def _keep(self, outputs: Sequence[Array], size: int) -> None:
        self._outputs.append(outputs)
        self.samples += size

    def _run(
        self,
        model: Model,
        policy: Policy,
        task: str,
        keep: Callable[[Sequence[Array], int], None],
    ) -> Sums:
        emulation = AccumulatorEmulation(model, policy)
        interpreter = Interpreter(model, wrap_kernel=emulation.wrap, fuse=emulation.fuse)
        score = scorer(model, self._dataset, self._metric)
        scores: list[Array] = []
        done, total = 0, self._dataset.samples
        for number, part in enumerate(self._dataset.batches(self._batch)):
            outputs = interpreter.run(None, part.inputs)
            keep(outputs, part.size)
            scores.append(score(outputs, part, self._outputs.read(number)))
            done += part.size
            self._progress(done, total or done, task)
        mean = float(np.concatenate(scores).mean())
        return Sums(mean, emulation.accumulations(), emulation.notes)
