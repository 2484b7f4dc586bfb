"""Evaluate LeNet in the accumulators of the original experiment, for experiment 5."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tracer
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.orders import named
from tracer.accumulators.spec.policy import Policy
from tracer.analyzers.energy import Work, find
from tracer.graph.model import Model
from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.request import Samples
from tracer.metrics import METRICS
from tracer.records.trace import Trace
from tracer.records.whatif import Answer
from tracer.whatif.criteria import Deadline
from tracer.whatif.evaluation import EvaluationCache, Evaluator, local
from tracer.whatif.sweep import SweepPlan, sweep_and_search

ACCUMULATOR = Accumulator(32, order=named("channelwise"), bias="last", convention="magnitude")
"""The original: each channel's window first, then the channels; B bits hold -2^B to 2^B - 1."""
BATCH = 60


@dataclass(frozen=True, slots=True)
class Sums:
    """Sweep, search and sums of each layer, by module; `images` are widths (images,)."""

    answer: Answer
    layers: tuple[str, ...]
    images: Any


def work_of(model: Model) -> Work:
    """Returns the operations of an image, with additions in the original order."""
    return Work.of(tracer.count(model, batch=1, convention="channelwise").nodes.set_index("node"))


def answered(
    model: Model, dataset: Dataset, work: Work, widths: Sequence[int], budget: float
) -> Sums:
    """Returns the sweep, the searches, and the width that each image needs."""
    evaluator = evaluated(model, dataset, ACCUMULATOR, BATCH)
    question = SweepPlan(
        widths=widths,
        energy=lambda bits: find("lab").total(work, dict(zip(evaluator.nodes, bits, strict=True))),
        allowed=lambda score, wide: score >= wide - budget,
        better=lambda score: score,
    )
    cache = EvaluationCache(evaluator.nodes, evaluator)
    modules = {node.key: node.module or node.key for node in model.nodes}
    samples = by_image(model, dataset, ACCUMULATOR).runs[0].sums_by_sample
    assert samples is not None
    return Sums(
        sweep_and_search(evaluator.baseline, ACCUMULATOR, question, cache, Deadline()),
        tuple(modules[key] for key in evaluator.nodes),
        samples.bits_observed,
    )


def by_image(model: Model, dataset: Dataset, accumulator: Accumulator) -> Trace:
    """Returns a trace with statistics of each image."""
    return tracer.interpret(
        model,
        accumulator=Policy.of(accumulator),
        inputs=Samples(dataset.name, dataset.limit),
        by_sample=True,
    )


def evaluated(model: Model, dataset: Dataset, accumulator: Accumulator, batch: int) -> Evaluator:
    """Returns an evaluator of top-1 accuracy on all data, with this accumulator."""
    outputs = [value.name for value in model.graph.output]

    def score(values: Sequence[Any], part: Batch, wide: Sequence[Any]) -> Any:
        named_values = dict(zip(outputs, values, strict=True))
        return METRICS["top1"].scores(named_values, part.labels)

    def batches() -> Iterator[Batch]:
        return dataset.batches(batch)

    return local(model, Policy.of(accumulator), batches, score)
