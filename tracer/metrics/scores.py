"""Scores of classifiers, language models and regressions: accuracy, agreement, perplexity, MSE.

Most classifiers have a score for each class, [N, classes]; those of scikit-learn have the number
of the class as their first output, integers [N].
"""

from typing import Any

import numpy as np

from tracer.errors import InputError
from tracer.inputs.datasets.batch import Batch
from tracer.metrics.metric import Outputs, only
from tracer.support.types import Array, FloatArray

_RANK = 3  # [N, tokens, vocabulary]
IMAGE_RANK = 4
_HINT = "Labels are the numbers of the classes, from 0, one for each sample."


def top1(outputs: Outputs, labels: Any) -> FloatArray:
    """Returns 1 for each sample whose label has the highest score, or is the output, else 0.

    Of equal scores the first one counts, as in numpy.argmax. Raises InputError for outputs that
    are no class scores [N, classes] and no numbers of classes [N], and for labels [N] that are no
    classes.
    """
    output, truth = only(outputs), np.asarray(labels)
    if not has_class_numbers(output):
        return _among_best(1, output, truth)
    _check_labels(output, truth)
    return np.asarray(output == truth, np.float64)


def top5(outputs: Outputs, labels: Any) -> FloatArray:
    """Returns 1 for each sample whose label is among the five highest scores, else 0.

    Raises the errors of `top1`, and InputError for fewer than five classes.
    """
    return _among_best(5, only(outputs), np.asarray(labels))


def agreement(outputs: Outputs, reference: Any, axis: int | None = None) -> FloatArray:
    """Returns, for each sample, the share of predictions that equal those of a reference.

    A prediction is the class with the highest score, or a number of a class. [N, classes] and
    integers [N] have one per sample, [N, classes, H, W] one per pixel. `axis` is the axis of the
    classes [default: as in these examples]. Raises InputError for fewer than two classes, for
    three axes without `axis`, and for outputs and a reference of different shapes.
    """
    ours, theirs = only(outputs), only(reference)
    if ours.shape != theirs.shape:
        raise InputError(
            f"the outputs are {list(ours.shape)}, the reference's are {list(theirs.shape)}",
            "Compare the same model on the same data.",
        )
    if axis is None and has_class_numbers(ours):
        return np.asarray(ours == theirs, np.float64)
    axis = _axis_of(ours) if axis is None else axis
    index = axis + ours.ndim if axis < 0 else axis
    if not 0 < index < ours.ndim or ours.shape[index] < 2:
        raise InputError(
            f"agreement needs two or more classes in axis {axis} of the output, which is "
            f"{list(ours.shape)}",
            "Name the axis of the classes, as in agreement@1 or agreement@-1; or give mse, or "
            "FILE.py:NAME.",
        )
    _check_numbers(ours)
    _check_numbers(theirs)
    same = ours.argmax(index) == theirs.argmax(index)
    return np.asarray(same.reshape(len(same), -1).mean(1))


def predictions(outputs: Outputs, axis: int | None = None) -> Array:
    """Returns the number of the class with the highest score, without the axis `axis`."""
    output = only(outputs)
    if axis is None and has_class_numbers(output):
        return output
    return np.asarray(output.argmax(_axis_of(output) if axis is None else axis))


def mse(outputs: Outputs, labels: Any) -> FloatArray:
    """Returns the mean squared error of each sample, over its values, float64 (N,).

    Labels have the shape of the output [N, ...]; [N] fits [N, 1] too. Raises InputError for labels
    of another shape.
    """
    output, truth = only(outputs), np.asarray(labels)
    if truth.dtype.kind not in "buif" or output.size != truth.size or len(output) != len(truth):
        raise InputError(
            f"labels {truth.dtype}{list(truth.shape)} do not fit an output {list(output.shape)}",
            "The mean squared error needs a number for each number of the output.",
        )
    if output.shape != truth.shape and truth.ndim != 1:
        raise InputError(
            f"labels {list(truth.shape)} are not in the shape of the output {list(output.shape)}",
            "Reshape the labels.",
        )
    error = output.astype(np.float64).reshape(truth.shape) - truth.astype(np.float64)
    return np.asarray((error**2).reshape(len(error), -1).mean(1))


def perplexity(outputs: Outputs, labels: Any) -> FloatArray:
    """Returns the mean of -log2 p(next token) over the tokens of each sample, float64 (N,).

    It is the log2 of the perplexity, in bits per token: the cross-entropy of softmax, in base 2.
    The first output has the logits [N, tokens, vocabulary]; labels [N, tokens] are the tokens that
    follow. Raises InputError for outputs and labels that are not.
    """
    logits, tokens = only(outputs), np.asarray(labels)
    if not scores_tokens(logits, tokens):
        raise InputError(
            f"labels {tokens.dtype}{list(tokens.shape)} are not the next tokens of an output "
            f"{list(logits.shape)}",
            "perplexity needs logits [N, tokens, vocabulary] and data such as text:FILE.",
        )
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < logits.shape[2]:
        raise InputError(
            f"the next tokens are {tokens.min()} to {tokens.max()}, and the output has "
            f"{logits.shape[2]} logits",
            "Give text in the tokens of the model; text:FILE has bytes, 0 to 255.",
        )
    pairs = zip(logits, tokens.astype(np.int64), strict=True)
    return np.array([_bits(scores, own) for scores, own in pairs], np.float64)


def bits_per_byte(outputs: Outputs, labels: Any, token_bytes: float = 1.0) -> FloatArray:
    """Returns `perplexity` ÷ `token_bytes`, the mean bytes of text in a token, float64 (N,).

    The mean of all samples is the bits of all tokens ÷ the bytes that they stand for, which can be
    compared between tokenizers. Raises the errors of `perplexity`.
    """
    return perplexity(outputs, labels) / token_bytes


def scores_tokens(output: Array, labels: Array) -> bool:
    """Returns whether `labels` may be the tokens that follow those that `output` is of."""
    return output.ndim == _RANK and labels.shape == output.shape[:2] and labels.dtype.kind in "iu"


def has_row_per_token(output: Array, batch: Batch) -> bool:
    """Returns whether `output` is [N, tokens, values], with integers [N, tokens] among the inputs.

    The last axis has the logits of a decoder, or the classes of a tagger, for each token.
    """
    return output.ndim == _RANK and any(
        isinstance(value, np.ndarray)
        and value.dtype.kind in "iu"
        and value.shape[1:] == output.shape[1:2]
        for value in batch.inputs.values()
    )


def _bits(logits: Array, tokens: Array) -> float:
    """Returns the mean bits of one sample; float64 copies of more would be large."""
    numbers = logits.astype(np.float64)
    numbers -= numbers.max(1, keepdims=True)
    own = np.take_along_axis(numbers, tokens[:, None], 1)[:, 0]
    nats = np.log(np.exp(numbers).sum(1)) - own
    return float(nats.mean() / np.log(2))


def has_class_numbers(output: Array) -> bool:
    """Whether an output is the number of a class for each sample, integers [N], not scores."""
    return output.ndim == 1 and output.dtype.kind in "iu"


def _axis_of(output: Array) -> int:
    """Returns the axis of the classes. Raises InputError where the rank does not tell it."""
    if output.ndim == IMAGE_RANK - 1:
        raise InputError(
            f"agreement: the output {list(output.shape)} does not tell which axis has the classes",
            "Give agreement@1 for [N, classes, length], or agreement@2 for [N, tokens, classes].",
        )
    return class_axis(output.ndim)


def class_axis(rank: int) -> int:
    """Returns the axis that the classes most often have in outputs of a rank.

    Images and volumes have channels first in ONNX, [N, C, H, W]. Of three axes it is the last, as
    in [N, tokens, classes], though signals and detectors have [N, classes, length].
    """
    return 1 if rank >= IMAGE_RANK else rank - 1


def lead(output: Array) -> FloatArray:
    """Returns by how much the best class leads the second, float64 (N,).

    It is the least lead of all predictions of a sample; 0 for an output without two classes.
    """
    if (
        output.ndim < 2
        or output.shape[class_axis(output.ndim)] < 2
        or output.dtype.kind not in "iuf"
    ):
        return np.zeros(len(output))
    classes = np.moveaxis(output, class_axis(output.ndim), -1).astype(np.float64)
    second, best = np.moveaxis(np.partition(classes, -2)[..., -2:], -1, 0)
    return np.asarray((best - second).reshape(len(output), -1).min(1))


def _among_best(best: int, scores: Array, labels: Array) -> FloatArray:
    if scores.ndim != 2:
        raise InputError(
            f"the output {list(scores.shape)} is not the scores of classes, [samples, classes]",
            "Give another metric, or a classifier.",
        )
    classes = scores.shape[1]
    _check_labels(scores, labels)
    if classes < best:
        raise InputError(f"top{best} of {classes} classes is always right", "Give top1.")
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise InputError(
            f"a label is {wrong[0]}, but the model has {classes} classes, 0 to {classes - 1}", _HINT
        )
    _check_numbers(scores)
    index = np.arange(len(scores))
    own = scores[index, labels][:, None]
    earlier = np.arange(scores.shape[1]) < labels[:, None]
    ahead = (scores > own) | ((scores == own) & earlier)
    return np.asarray(ahead.sum(1) < best, np.float64)


def _check_labels(outputs: Array, labels: Array) -> None:
    """Raises InputError unless there is the number of a class for each sample."""
    if labels.shape != (len(outputs),) or labels.dtype.kind not in "iu":
        raise InputError(
            f"labels {labels.dtype}{list(labels.shape)} do not fit outputs {list(outputs.shape)}",
            _HINT,
        )


def _check_numbers(scores: Array) -> None:
    """Raises InputError for NaN, which compares as neither more nor less than any score."""
    bad = np.array([np.isnan(sample.astype(np.float64)).any() for sample in scores], bool)
    if bad.any():
        raise InputError(
            f"the output of sample {bad.argmax()} of the batch is not a number (NaN)",
            "Look for NaN in the inputs, then in the model: tracer interpret --against ort.",
        )
