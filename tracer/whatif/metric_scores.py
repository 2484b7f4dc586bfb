"""Chooses the metric of a what-if, scores batches with it, and finds the hardest samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer import metrics
from tracer.errors import InputError, ModelError, UsageError
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Dataset
from tracer.interpreter.interpreter import Interpreter
from tracer.metrics import Metric, channels, default_metric, suited, variety
from tracer.metrics.ranking import lead
from tracer.records.whatif import Judgement
from tracer.support.types import Array


def checked_metric(model: Model, dataset: Dataset, spec: str | None) -> Metric:
    """Returns the metric `spec`, or a default for the outputs and the labels, tried on one sample.

    Raises UsageError where no metric fits, ModelError for an output that is one number for all
    samples, and the error of a metric that does not fit.
    """
    sample = next(dataset.batches(1))
    outputs = Interpreter(model).run(None, sample.inputs)
    metric = default_metric(sample, outputs[0]) if spec is None else metrics.find(spec)
    if metric is None:
        labels = "no labels" if sample.labels is None else f"labels {_type(sample.labels)}"
        raise UsageError(
            f"no metric fits an output {_type(outputs[0])} of {model.name} and {labels} of "
            f"{dataset.name}",
            f"Give --metric: {', '.join(metrics.METRICS)}, or FILE.py:NAME.",
        )
    metric = suited(metric, sample, outputs[0])
    if any(isinstance(value, np.ndarray) and not value.ndim for value in outputs):
        raise ModelError(
            f"{model.name}: an output is one number, not one for each sample",
            "Metrics take outputs whose first axis is that of the samples.",
        )
    try:
        scorer(model, dataset, metric)(outputs, sample, outputs)
    except InputError as error:
        raise InputError(f"{model.name}: {error.what}", error.hint) from error
    return metric


def judgement(metric: Metric, budget: float | None) -> Judgement:
    """Returns the metric and the accuracy budget [default: the metric's] as results have them."""
    allowed = float(metric.budget if budget is None else budget)
    return Judgement(metric.name, metric.unit, metric.higher_is_better, allowed)


def scorer(
    model: Model, dataset: Dataset, metric: Metric
) -> Callable[[Sequence[Any], Any, Sequence[Any]], Any]:
    """Returns a function (outputs, batch, outputs in wide accumulators) -> scores of the samples.

    Scores are in the unit of the metric.
    """
    names = [value.name for value in model.graph.output]

    def by_name(outputs: Sequence[Any], size: int) -> dict[str, Any]:
        """The outputs of the first `size` samples: a fixed batch may be padded."""
        return {name: value[:size] for name, value in zip(names, outputs, strict=True)}

    def score(outputs: Sequence[Any], batch: Any, wide: Sequence[Any]) -> Any:
        truth = (
            metric.labels(batch, dataset.name) if metric.needs_labels else by_name(wide, batch.size)
        )
        return np.asarray(metric.scores(by_name(outputs, batch.size), truth)) * metric.scale

    return score


@dataclass(frozen=True, slots=True)
class WideBatch:
    """What notes and `hardest` need of a batch in wide accumulators, without its outputs.

    `scores` and `leads` (samples,) are float64: a lead is by how much the best class leads.
    """

    scores: Array
    leads: Array
    classes: variety.ClassCounts
    squares: channels.ChannelSquares


def summary(model: Model, metric: Metric) -> Callable[[Array, Sequence[Any]], WideBatch]:
    """Returns a function (scores, outputs in wide accumulators) -> what is kept of the batch."""
    names = [value.name for value in model.graph.output]

    def summarized(scores: Array, outputs: Sequence[Any]) -> WideBatch:
        own = {name: v[: len(scores)] for name, v in zip(names, outputs, strict=True)}
        return WideBatch(
            scores,
            lead(outputs[0][: len(scores)]),
            variety.class_counts(metric, own),
            channels.channel_squares(metric, own),
        )

    return summarized


def metric_notes(metric: Metric, batches: Sequence[WideBatch]) -> tuple[str, ...]:
    """Returns notes on what the metric does not show of the outputs in wide accumulators."""
    notes = (
        variety.one_class_note(metric, (batch.classes for batch in batches)),
        channels.unlike_channels_note(metric, (batch.squares for batch in batches)),
    )
    return tuple(filter(None, notes))


def hardest(metric: Metric, batches: Sequence[WideBatch], count: int) -> Array:
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
