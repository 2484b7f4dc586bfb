"""Evaluates a network on data at many widths: merges what runs of its shards tell.

A pool runs the shards, `shard_runs` what happens in one. Counts are added and extremes folded. The
scores of all samples are put in the order of the samples, and their mean is taken of that: so a
result does not depend on the shards, on the workers, or on who is first.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from itertools import chain
from operator import add
from typing import Any

import numpy as np

from tracer.accumulators.engine.sum_runner import Counts
from tracer.accumulators.spec.policy import Policy
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.containment.activity import Progress, silent
from tracer.graph.model import Model
from tracer.records.whatif import Evaluation, NodeOverflows, ShardBaseline, WideBatch, Widths
from tracer.scaling import pool as pools
from tracer.storage.whatif_file import BASELINE, EVERY, SIZE, KeptShards, WhatIfFile, evaluation_of
from tracer.support.types import Array
from tracer.whatif import shard_runs
from tracer.whatif.criteria import Deadline
from tracer.whatif.reuse import AnyBatch

_Begun = dict[int, "tuple[pools.Task, Future[shard_runs.ShardEvaluation]]"]
"""An evaluation whose shards run: the task of each shard that changes, by its number."""
_QUEUED = 2
"""Tasks for each worker while evaluations are sure to be asked for: one runs, one waits."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The run in accumulators that hold every sum: its score, and the sums of each node.

    `needed` (batches, nodes), int64, are the widths that hold all partial sums of a batch.
    """

    score: float
    samples: int
    needed: Array
    accumulations: Mapping[str, PartialSums]

    def overflow_share(self, node: str, bits: int) -> float:
        """The share of the sums of a node that leave `bits` bits while all others are wide."""
        if node not in self.accumulations:
            return 0.0
        counts = self.accumulations[node].tally.overflow(bits)
        return float(counts.overflow_outputs.sum() / max(counts.outputs.sum(), 1))


class Evaluator:
    """Evaluates a model on shards of data; `job` opens as `ShardRuns`.

    `batches` is their number; None where only reading the data tells, which then are one shard.
    After the `deadline` an evaluation that changes a batch raises OutOfTimeError. `kept` holds the
    results of shards for a further run. Raises the errors of `ShardRuns` and of the pool.
    """

    def __init__(
        self,
        job: pools.Job,
        pool: pools.Pool,
        batches: int | None = None,
        *,
        deadline: Deadline | None = None,
        progress: Progress = silent,
        kept: KeptShards | None = None,
    ) -> None:
        self._pool = pool
        self._deadline = deadline or Deadline()
        self._progress = progress
        self._kept = kept or KeptShards()
        self._job = pool.share(job)
        weakref.finalize(self, pool.forget, self._job)
        self._begun: dict[tuple[Widths, bool], _Begun] = {}
        self._expected: list[tuple[Widths, bool]] = []
        self._asked: Sequence[Future[Any]] = ()
        # one where tasks run in this process
        self._shards: tuple[pools.Shard, ...] = (pools.Shard(),)
        if pool.workers and batches is not None and batches > 1:
            size = self._kept.read(EVERY, SIZE, int)
            if size is None:
                size = pools.equal_size(pool, self._job, "measure", batches, progress)
                self._kept.keep(EVERY, SIZE, size)
            self._shards = pools.cut_shards(batches, size)
        parts, sums = self._measured()
        self._widths = dict(parts[0].widths)
        self._node_steps = parts[0].steps
        self._altered = np.concatenate([part.altered for part in parts])
        self.wide_batches: tuple[WideBatch, ...] = tuple(b for part in parts for b in part.batches)
        scores = np.concatenate([batch.scores for batch in self.wide_batches])
        self.baseline = Baseline(
            float(scores.mean()),
            len(scores),
            np.concatenate([part.needed for part in parts]),
            {key: sums[key] for key in self._widths if key in sums},
        )
        self.notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))

    @property
    def nodes(self) -> tuple[str, ...]:
        """Keys of the narrow nodes, in the order of the model."""
        return tuple(self._widths)

    def evaluate(self, bits: Mapping[str, int]) -> Evaluation:
        """Scores the model with the nodes of `bits` at these widths, others as in the policy.

        The result equals a run over all the data, bit for bit.
        """
        return self._evaluation(self._widths | dict(bits), counted=True)

    def score(self, bits: Mapping[str, int], near: Mapping[str, int] | None = None) -> Evaluation:
        """Returns the evaluation without overflows: the score of `evaluate`, in less time.

        `near` are widths that the next evaluations differ little from; what was computed in other
        widths is forgotten where memory is short.
        """
        near = near and self._widths | dict(near)
        return self._evaluation(self._widths | dict(bits), counted=False, near=near)

    def ahead(self, bits: Iterable[Mapping[str, int]], counted: bool) -> None:
        """Lets idle workers begin evaluations that may be asked next, the likeliest first.

        Others that were begun so are cancelled. No result depends on it; without other processes
        nothing is done, and `bits` is not read.
        """
        if not self._pool.workers:
            return
        self._expected = [(tuple((self._widths | dict(each)).values()), counted) for each in bits]
        for key in self._begun.keys() - {*self._expected}:
            for _, future in self._begun.pop(key).values():
                future.cancel()
        self._begin_expected()

    def _evaluation(
        self, widths: Mapping[str, int], counted: bool, near: Mapping[str, int] | None = None
    ) -> Evaluation:
        key = tuple(widths.values()), counted
        begun = self._begun.pop(key, None)
        if begun is None:
            begun = self._begin(widths, counted, near, urgent=True)
        # tasks that still wait run before those that nobody waits for
        for number, (task, future) in begun.items():
            if not task.urgent and future.cancel():
                begun[number] = task, self._pool.submit(replace(task, urgent=True))
        self._expected = [each for each in self._expected if each != key]
        self._asked = [future for _, future in begun.values()]
        numbers = [*begun]

        def keep(index: int, result: shard_runs.ShardEvaluation) -> shard_runs.ShardEvaluation:
            self._kept.keep(self._shards[numbers[index]], evaluation_of(*key), result)
            return result

        with self._deadline.turning_signals():
            results = self._collected(self._asked, keep)
        parts = dict(zip(numbers, results, strict=True))
        scores, mean = [batch.scores for batch in self.wide_batches], self.baseline.score
        for number, part in parts.items():
            for batch, changed in part.scores.items():
                scores[self._shards[number].first + batch] = changed
        if any(part.scores for part in parts.values()):
            # numpy adds in a tree that depends on the number of samples alone
            mean = float(np.concatenate(scores).mean())
        return Evaluation(widths, mean, self._overflows(parts) if counted else None)

    def _begin(
        self,
        widths: Mapping[str, int],
        counted: bool,
        near: Mapping[str, int] | None = None,
        urgent: bool = False,
    ) -> _Begun:
        """Submits the shards that these widths change."""
        own = np.array(list(widths.values()))
        question = evaluation_of(tuple(widths.values()), counted)
        begun: _Begun = {}
        for number, shard in enumerate(self._shards):
            needed = self.baseline.needed[shard.batches]
            if not (needed > own).any():
                continue
            request = shard_runs.ShardRequest(widths, needed, counted, near)
            task = pools.Task(self._job, "evaluate", (shard, request), number, urgent)
            stored = self._kept.read(shard, question, shard_runs.ShardEvaluation)
            if stored is None:
                begun[number] = task, self._pool.submit(task)
            else:
                begun[number] = task, Future[shard_runs.ShardEvaluation]()
                begun[number][1].set_result(stored)
        return begun

    def _begin_expected(self) -> None:
        """Begins expected evaluations while workers have nothing that was asked for.

        A guess that is wrong costs the time of a shard, so it is begun on an idle worker alone. The
        rows of a sweep, which count, are no guesses.
        """
        while self._expected:
            widths, counted = key = self._expected[0]
            ahead = (future for begun in self._begun.values() for _, future in begun.values())
            running = sum(not future.done() for future in chain(self._asked, ahead))
            if running >= self._pool.workers * (_QUEUED if counted else 1):
                return
            self._expected.pop(0)
            if key not in self._begun:
                bits = dict(zip(self.nodes, widths, strict=True))
                self._begun[key] = self._begin(bits, counted)

    def _collected(
        self, futures: "Sequence[Future[Any]]", keep: Callable[[int, Any], Any]
    ) -> list[Any]:
        progress = self._progress if self._pool.workers else silent  # one process tells of batches

        def check() -> None:
            self._deadline.check()
            self._begin_expected()

        return pools.collect_results(futures, progress, keep, check)

    def _overflows(
        self, parts: Mapping[int, shard_runs.ShardEvaluation]
    ) -> dict[str, NodeOverflows]:
        """Adds the counts of the baseline where its sums were reused.

        Those sums do not overflow, but reduced-width products may have changed them.
        """
        reused = np.full(self.baseline.needed.shape, True)
        for number, part in parts.items():
            for batch, start in part.starts.items():
                reused[self._shards[number].first + batch] = self._node_steps < start
        altered = (self._altered * reused[:, :, None]).sum(0)
        indices = {key: index for index, key in enumerate(self.nodes)}
        overflows = {}
        for key, sums in self.baseline.accumulations.items():
            events, changed = map(int, altered[indices[key]])
            reused_counts = Counts(saturation_events=events, outputs_changed=changed)
            counts = reduce(add, (part.counts[key] for part in parts.values()), reused_counts)
            overflows[key] = NodeOverflows(int(sums.tally.outputs.sum()), **asdict(counts))
        return overflows

    def _measured(self) -> tuple[list[ShardBaseline], dict[str, PartialSums]]:
        """Runs all shards in wide accumulators, and adds up their sums as they come.

        The sums of a shard are as large as those of all: memory holds those of some at a time.
        """
        sums: dict[str, PartialSums] = {}

        def folded(part: ShardBaseline) -> ShardBaseline:
            for key, each in part.sums.items():
                sums[key] = PartialSums.merged([sums[key], each]) if key in sums else each
            return replace(part, sums={})

        def keep(index: int, part: ShardBaseline) -> ShardBaseline:
            self._kept.keep(self._shards[missing[index]], BASELINE, part)
            return folded(part)

        parts: dict[int, ShardBaseline] = {}
        for number, shard in enumerate(self._shards):
            stored = self._kept.read(shard, BASELINE, ShardBaseline)
            if stored is not None:
                parts[number] = folded(stored)
        missing = [number for number in range(len(self._shards)) if number not in parts]
        tasks = [pools.Task(self._job, "measure", (self._shards[each],), each) for each in missing]
        measured = self._collected([self._pool.submit(task) for task in tasks], keep)
        parts.update(zip(missing, measured, strict=True))
        return [parts[number] for number in range(len(parts))], sums


def local(
    model: Model,
    policy: Policy,
    data: Callable[[], Iterable[AnyBatch]],
    scoring: shard_runs.Scoring,
    *,
    memory: int = shard_runs.MEMORY,
    threads: int | None = None,
) -> Evaluator:
    """Returns an evaluator in this process; each call of `data` returns the same batches."""
    job = shard_runs.BatchesJob(shard_runs.Arithmetic(model, policy, memory=memory), data, scoring)
    return Evaluator(job, pools.SerialPool(threads))


class EvaluationCache:
    """Evaluations of one variant by the widths of `nodes`, in the order they were requested.

    An evaluation that is in neither the cache nor `file` is computed by `evaluator`, and written to
    `file` under the key `variant`. `free` are the indices of the nodes that are not `pinned`.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        evaluator: Evaluator,
        *,
        pinned: Mapping[str, int] | None = None,
        file: WhatIfFile | None = None,
        variant: str = "",
        progress: Progress = silent,
    ) -> None:
        self.nodes = tuple(nodes)
        self.pinned = pinned or {}
        self.free = tuple(n for n, node in enumerate(self.nodes) if node not in self.pinned)
        self._evaluator = evaluator
        self._file = file
        self._variant = variant
        self._progress = progress
        self._purpose, self._requests, self._expected = "", 0, 0
        self._evaluations: dict[Widths, Evaluation] = {}

    def begin(self, purpose: str, expected: int = 0) -> None:
        """Reports the next requests as steps of `purpose`, `expected` in total (0: unknown)."""
        self._purpose, self._requests, self._expected = purpose, 0, expected

    def __call__(self, widths: Widths, near: Widths | None = None) -> Evaluation:
        """Returns the evaluation at these widths, perhaps without overflows; reports progress.

        The next requests are about widths `near`.
        """
        if widths not in self._evaluations:
            about = None if near is None else self._bits(near)
            score = partial(self._evaluator.score, near=about)
            found = self._find_or_compute(widths, score, counted=False)
            # Whether an earlier run counted must not change the result of this one.
            self._evaluations[widths] = replace(found, overflows=None)
        return self._requested(widths)

    def counted(self, widths: Widths) -> Evaluation:
        """Returns the evaluation at these widths with its overflows; reports progress."""
        self._evaluations[widths] = self._find_or_compute(
            widths, self._evaluator.evaluate, counted=True
        )
        return self._requested(widths)

    def expect(self, widths: Iterable[Widths], counted: bool = False) -> None:
        """Lets idle workers begin with requests that may come next, the likeliest first.

        They are no part of the cache until they are requested, so that no answer depends on them.
        """
        unknown = (each for each in widths if self._find(each, counted) is None)
        self._evaluator.ahead(map(self._bits, unknown), counted)

    def uniform_widths(self, bits: int) -> Widths:
        """The widths with `bits` bits in all nodes that are not pinned."""
        return tuple(self.pinned.get(node, bits) for node in self.nodes)

    def uniform(self, bits: int) -> Evaluation:
        """Returns the counted evaluation with `bits` bits in all nodes that are not pinned."""
        return self.counted(self.uniform_widths(bits))

    def __len__(self) -> int:
        return len(self._evaluations)

    def __iter__(self) -> Iterator[tuple[Widths, Evaluation]]:
        return iter(self._evaluations.items())

    def _requested(self, widths: Widths) -> Evaluation:
        self._requests += 1
        self._progress(self._requests, self._expected, self._purpose)
        return self._evaluations[widths]

    def _bits(self, widths: Widths) -> dict[str, int]:
        return dict(zip(self.nodes, widths, strict=True))

    def _find_or_compute(
        self, widths: Widths, compute: Callable[[Mapping[str, int]], Evaluation], counted: bool
    ) -> Evaluation:
        evaluation = self._find(widths, counted)
        if evaluation is None:
            evaluation = compute(self._bits(widths))
            if self._file is not None:
                self._file.store(self._variant, evaluation)
        return evaluation

    def _find(self, widths: Widths, counted: bool) -> Evaluation | None:
        """The evaluation that is known, if it has the overflows that are asked."""
        known = self._evaluations.get(widths)
        if self._file is not None and (known is None or (counted and known.overflows is None)):
            known = self._file.find(self._variant, self._bits(widths))
        return None if known is None or (counted and known.overflows is None) else known
