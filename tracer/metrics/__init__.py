"""Metrics of a model's outputs, scored sample by sample: by name, or FILE.py:NAME."""

import re
from dataclasses import replace
from functools import partial
from typing import Any

from tracer.errors import InputError, UsageError
from tracer.inputs.datasets.batch import Batch
from tracer.metrics import scores
from tracer.metrics.metric import Metric, Outputs, Score, load_user_metric
from tracer.support.types import Array
from tracer.text import suggest

_BITS = 0.05  # bits of a token that a what-if may lose: 3.5 % of the perplexity

METRICS = {
    metric.name: metric
    for metric in (
        Metric("top1", scores.top1, predictions=scores.predictions),
        Metric("top5", scores.top5, predictions=scores.predictions),
        Metric("mse", scores.mse, higher_is_better=False, unit="", unlabelled=scores.reference_mse,
               sums_channels=True),
        Metric("noise", scores.noise, needs_labels=False, higher_is_better=False,
               sums_channels=True),
        Metric("channel-noise", scores.channel_noise, needs_labels=False, higher_is_better=False),
        Metric("agreement", scores.agreement, needs_labels=False, predictions=scores.predictions),
        Metric("perplexity", scores.perplexity, higher_is_better=False, unit="bits", budget=_BITS),
        Metric("bits-per-byte", scores.bits_per_byte, higher_is_better=False, unit="bits",
               budget=_BITS),
    )
}  # fmt: skip

_IN_ANY_AXIS = {"agreement": scores.agreement, "channel-noise": scores.channel_noise}
_AXIS = re.compile(r"(agreement|channel-noise)@(-?[1-9])")
_OUTPUT = re.compile(r"(noise|mse)@(.+)")
_LAST = 2  # axis of the vocabulary in [N, tokens, vocabulary]


def find(spec: str) -> Metric:
    """Returns the metric called `spec`, or the user's function FILE.py:NAME.

    `agreement@1` has the classes in axis 1, and `channel-noise@1` the channels; `noise@boxes` and
    `mse@boxes` compare the output `boxes` with the reference's. Raises UsageError for an unknown
    name, InputError for a file without such a function.
    """
    if spec in METRICS:
        return METRICS[spec]
    axis, output = _AXIS.fullmatch(spec), _OUTPUT.fullmatch(spec)
    if axis is not None:
        return _along(axis[1], int(axis[2]), spec)
    if output is not None:
        score = {"noise": scores.noise, "mse": scores.reference_mse}[output[1]]
        alone = partial(_score_of_one, score, output[2])
        return replace(
            METRICS[output[1]], name=spec, function=alone, needs_labels=False, unlabelled=None
        )
    file, colon, _ = spec.rpartition(":")
    if colon and file.endswith(".py"):
        return load_user_metric(spec)
    raise UsageError(
        f"there is no metric '{spec}'",
        f"{suggest(spec, METRICS)}There are {', '.join(METRICS)}; or give FILE.py:NAME. noise is "
        "the SQNR as a share: 1 % is 20 dB.",
    )


def _along(name: str, axis: int, spec: str) -> Metric:
    metric = METRICS[name]
    score = partial(_IN_ANY_AXIS[name], axis=axis)
    classes = None if metric.predictions is None else partial(scores.predictions, axis=axis)
    return replace(metric, name=spec, function=score, predictions=classes)


def _score_of_one(score: Score, output: str, outputs: Outputs, reference: Any) -> Array:
    """The scores by one output alone. Raises InputError where there is none of this name."""
    if output not in outputs:
        hint = f"{suggest(output, outputs)}It has {', '.join(outputs)}."
        raise InputError(f"the model has no output '{output}'", hint)
    return score({output: outputs[output]}, reference)


def suited(metric: Metric, batch: Batch, output: Array) -> Metric:
    """Returns the metric for data like `batch`, with `output` as the first output of a model.

    Without labels it scores by `unlabelled`. Where the output has a row for each token, classes and
    channels are those of the last axis. Raises InputError for bits per byte of data other than
    text.
    """
    if metric.name in _IN_ANY_AXIS and scores.has_row_per_token(output, batch):
        return _along(metric.name, _LAST, metric.name)
    if metric.name == "bits-per-byte":
        if batch.token_bytes is None:
            raise InputError(
                f"{metric.name} needs the bytes of a text, which these data do not have",
                "Give text:FILE, or the metric perplexity, in bits per token.",
            )
        return replace(
            metric, function=partial(scores.bits_per_byte, token_bytes=batch.token_bytes)
        )
    if batch.labels is not None or metric.unlabelled is None:
        return metric
    return replace(metric, function=metric.unlabelled, needs_labels=False)


def default_metric(batch: Batch, output: Array) -> Metric | None:
    """Returns a metric whose labels fit the output, else None; agreement or noise without labels.

    It is top1, mse, or perplexity for the next tokens of [N, tokens, vocabulary].

    An output with more than two axes does not say which of them has the classes, so it gets noise,
    unless it has a row for each token.
    """
    classes = (output.ndim == 2 and output.shape[1] > 1) or scores.has_class_numbers(output)
    labels = batch.labels
    if labels is None:
        return METRICS[
            "agreement" if classes or scores.has_row_per_token(output, batch) else "noise"
        ]
    if classes and labels.dtype.kind in "iu" and labels.ndim == 1:
        return METRICS["top1"]
    if scores.scores_tokens(output, labels):
        return METRICS["perplexity"]
    return METRICS["mse"] if labels.size == output.size else None


__all__ = ["METRICS", "Metric", "default_metric", "find", "suited"]
