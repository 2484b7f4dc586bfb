"""Shares the batches of a run in narrow accumulators out to the workers of a pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import length_hint
from typing import TypeVar

import numpy as np

from tracer.accumulators.spec.float_accumulator import draws
from tracer.accumulators.spec.policy import Policy
from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums
from tracer.accumulators.statistics.float_tally import FloatTally
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.accumulators.statistics.sample_sums import SampleSums
from tracer.errors import UsageError
from tracer.graph.model import Model
from tracer.graph.stored_weights import WeightFiles, findable
from tracer.inputs.batches import FeedBatches
from tracer.inputs.feedset import FeedSet
from tracer.records.trace import EMULATED, Kernel, Run
from tracer.scaling.collecting import shared_out
from tracer.scaling.pool import Pool
from tracer.scaling.shards import Shard
from tracer.support.progress import Progress
from tracer.support.types import Array

_Sums = TypeVar("_Sums", PartialSums, FloatPartialSums)
RunBatches = Callable[[Model, Iterable[FeedSet], int | None], Run]
"""(model, batches, threads) -> the run of these batches; a function that can be pickled."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The run of a shard, and the seconds that it took."""

    run: Run
    seconds: float


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs shards of the batches."""

    model: Model
    batches: FeedBatches
    threads: int | None
    run_batches: RunBatches

    def run(self, shard: Shard) -> _Part:
        """Runs the batches of a shard."""
        assert shard.count is not None
        began = time.perf_counter()
        batches = self.batches.part(shard.first, shard.count)
        run = self.run_batches(self.model, batches, self.threads)
        return _Part(run, time.perf_counter() - began)


@dataclass(frozen=True, slots=True)
class _RunsJob:
    model: Model = field(repr=False)
    batches: FeedBatches
    run_batches: RunBatches
    weights: WeightFiles | None = None

    def portable(self) -> _RunsJob:
        model = findable(self.model)
        return replace(self, model=model, weights=WeightFiles.of(model))

    def open(self, threads: int | None) -> _Runs:
        if self.weights is not None:
            self.weights.check(self.model)
        return _Runs(self.model, self.batches, threads, self.run_batches)


def shared_run(
    model: Model,
    batches: FeedBatches,
    run_batches: RunBatches,
    pool: Pool,
    progress: Progress,
) -> Run:
    """Returns the run of all batches, put together from the runs of shards."""
    job = _RunsJob(model, batches, run_batches)
    parts = shared_out(pool, job, "run", length_hint(batches), progress)
    return merged([part.run for part in parts])


def refuse_draws(model: Model, policy: Policy) -> None:
    """Raises UsageError for stochastic rounding of floats: it numbers the sums of all the data."""
    for node, rule in policy.assign(model.nodes).items():
        if draws(rule.accumulator):
            raise UsageError(
                f"{model.name}: node '{node}' rounds by random numbers, which depend on the number "
                "of the sum in all the data",
                "Leave out --workers and --scheduler.",
            )


def merged(runs: Sequence[Run]) -> Run:
    """Returns one run of the batches of several, in their order."""
    first = runs[0]
    kernels = _kernels(runs)
    notes = dict.fromkeys(note for run in runs for note in run.notes if note != EMULATED)
    wall = np.concatenate([run.wall_us for run in runs])
    return replace(
        first,
        wall_us=wall,
        instrumented_us=wall,
        samples=np.concatenate([_samples(run, kernels) for run in runs]),
        bias_us=np.zeros(len(kernels)),
        kernels=kernels,
        notes=(*notes, EMULATED),
        sums=merged_by_node([run.sums for run in runs], PartialSums.merged),
        float_sums=merged_by_node([run.float_sums for run in runs], merged_floats),
        sums_by_sample=_by_sample(runs),
    )


def _kernels(runs: Sequence[Run]) -> tuple[Kernel, ...]:
    """The nodes that ran, with the types of the first batch, and the mean of their calls."""
    batches = sum(len(run.wall_us) for run in runs)
    calls: dict[str, int] = {}
    kernels: dict[str, Kernel] = {}
    for number, run in enumerate(runs):
        for kernel in run.kernels:
            untyped = (
                replace(kernel, input_types=(), output_types=(), varying=()) if number else kernel
            )
            kernels.setdefault(kernel.name, untyped)
            own = round(kernel.calls * len(run.wall_us))
            calls[kernel.name] = calls.get(kernel.name, 0) + own
    return tuple(replace(kernel, calls=calls[name] / batches) for name, kernel in kernels.items())


def _samples(run: Run, kernels: Sequence[Kernel]) -> Array:
    """The times of a run in the columns of `kernels`; 0 where a node did not run."""
    columns = {kernel.name: index for index, kernel in enumerate(run.kernels)}
    times = np.zeros((len(run.wall_us), len(kernels)), np.float32)
    for index, kernel in enumerate(kernels):
        if kernel.name in columns:
            times[:, index] = run.samples[:, columns[kernel.name]]
    return times


def merged_by_node(
    sums: Sequence[Sequence[_Sums]], merge: Callable[[Sequence[_Sums]], _Sums]
) -> tuple[_Sums, ...]:
    """Returns the sums of each node, which `merge` puts together from those of several runs."""
    nodes: dict[str, list[_Sums]] = {}
    for own in sums:
        for each in own:
            nodes.setdefault(each.node, []).append(each)
    return tuple(merge(parts) for parts in nodes.values())


def merged_floats(parts: Sequence[FloatPartialSums]) -> FloatPartialSums:
    """Returns the sums of one node in several parts of the data."""
    tallies = [part.tally for part in parts]
    return FloatPartialSums(parts[0].node, reduce(FloatTally.merged, tallies))


def _by_sample(runs: Sequence[Run]) -> SampleSums | None:
    """The samples of all runs, with the nodes numbered as they come."""
    parts = [run.sums_by_sample for run in runs if run.sums_by_sample is not None]
    if not parts:
        return None
    nodes = {node: None for part in parts for node in part.nodes}
    numbers = {node: number for number, node in enumerate(nodes)}
    arrays = {name: [part.arrays()[name] for part in parts] for name in parts[0].arrays()}
    arrays["worst_node"] = [
        np.array([*(numbers[node] for node in part.nodes), -1])[part.worst_node] for part in parts
    ]
    return SampleSums(tuple(nodes), **{n: np.concatenate(each) for n, each in arrays.items()})
