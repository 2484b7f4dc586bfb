"""Scores of classifiers, language models and regressions, by labels or by reference outputs.

Most classifiers have a score for each class, [N, classes]; those of scikit-learn have the number
of the class as their first output, integers [N].
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tracer.errors import InputError
from tracer.inputs.datasets.batch import Batch
from tracer.metrics.metric import Metric, Outputs, only
from tracer.support.types import Array, FloatArray
from tracer.text import plural

ChannelSquares: TypeAlias = Mapping[tuple[str, int], FloatArray]
"""Sums of squares (channels,) by the name of an output and the axis of its channels."""
_UNLIKE = 16
"""Ratio of the values of two channels from which the noise of one hides the other's: 24 dB."""
ClassCounts: TypeAlias = tuple[Array, Array]
"""Classes, and how often each is predicted."""
_NEARLY_ALL = 0.95
"""Share of the commonest class from which other predictions are too few to judge by."""
PROVES_LITTLE = "proves little here"
"""Marks the note that a metric hardly tells models apart."""
_FEWEST_AXES = 3
"""Axes of an output whose channels have several values in each sample."""
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
    if truth.dtype.kind in "OSU":
        raise InputError("the labels are text", "Give numbers of classes, from 0.")
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

    It is the least lead of all predictions of a sample; 0 for an output without two classes, for
    two infinite best classes, and where a score is not a number.
    """
    if (
        output.ndim < 2
        or output.shape[class_axis(output.ndim)] < 2
        or output.dtype.kind not in "iuf"
    ):
        return np.zeros(len(output))
    classes = np.moveaxis(output, class_axis(output.ndim), -1).astype(np.float64)
    second, best = np.moveaxis(np.partition(classes, -2)[..., -2:], -1, 0)
    leads = np.subtract(best, second, out=np.zeros_like(best), where=best > second)
    return np.asarray(leads.reshape(len(output), -1).min(1))


def noise(outputs: Outputs, reference: Any) -> FloatArray:
    """Returns sum (x - q)^2 / sum x^2 of each sample, at most 1, float64 (N,).

    x are the outputs of the reference; -10 log10 of the result is the SQNR in dB. The noisiest of
    several outputs counts, so that large values of one do not hide the loss of another; an output
    with another number of rows than the first has no samples, and does not count. Raises
    InputError for outputs without numbers, or of other shapes than the reference's.
    """
    pairs = _pairs(outputs, reference)
    shares = [_share(_rows(ours), _rows(theirs))[:, 0] for ours, theirs in pairs]
    return np.asarray(np.max(shares, axis=0))


def channel_noise(outputs: Outputs, reference: Any, axis: int | None = None) -> FloatArray:
    """Returns the `noise` of each sample in its noisiest channel, float64 (N,).

    `axis` is the axis of the channels [default: 1]. Large values of one channel do not hide the
    loss of another. Raises InputError for three axes without `axis`, for channels that have one
    value in each sample, and the errors of `noise`.
    """
    shares = []
    for ours, theirs in _pairs(outputs, reference):
        place = _channel_axis(ours, axis)
        apart = (np.moveaxis(each, place, 1) for each in (ours, theirs))
        shares.append(_share(*(each.reshape(*each.shape[:2], -1) for each in apart)).max(1))
    return np.asarray(np.max(shares, axis=0))


def reference_mse(outputs: Outputs, reference: Any) -> FloatArray:
    """Returns the mean squared error of each sample against a reference, float64 (N,).

    The output with the largest error counts. Raises the errors of `noise`.
    """
    pairs = _pairs(outputs, reference)
    errors = [((_rows(theirs) - _rows(ours)) ** 2).mean((1, 2)) for ours, theirs in pairs]
    return np.asarray(np.max(errors, axis=0))


def channel_axes(rank: int) -> tuple[int, ...]:
    """Returns the axes that may be those of the channels in tensors of a rank; axis 0 has samples.

    Images have channels first in ONNX, [N, C, H, W], and rows have them last, [N, C]. A rank of 3
    does not tell: signals and detectors are [N, C, length], texts [N, tokens, C]. Axis 1 and axis 2
    are then both looked at.
    """
    if rank < 2:
        return ()
    return (1, 2) if rank == IMAGE_RANK - 1 else (1,)


def squares_along(axis: int, values: Array) -> FloatArray:
    """Returns the sum of the squares of each slice of float64 `values` along an axis."""
    before, after = values.shape[:axis], values.shape[axis + 1 :]
    split = values.reshape(math.prod(before), values.shape[axis], math.prod(after))
    return np.asarray(np.einsum("bca,bca->c", split, split))


def channel_squares(metric: Metric, outputs: Outputs) -> ChannelSquares:
    """Returns the sums of the squares of the channels of a batch, float64, by name and axis.

    Outputs of three or more axes have several values in each channel of a sample. There are none
    for a metric that does not sum channels.
    """
    if not metric.sums_channels:
        return {}
    return {
        (name, axis): squares_along(axis, value.astype(np.float64))
        for name, value in outputs.items()
        for axis in (channel_axes(value.ndim) if value.ndim >= IMAGE_RANK - 1 else ())
    }


def unlike_channels_note(metric: Metric, batches: Iterable[ChannelSquares]) -> str | None:
    """Returns a note where small channels of an output do not count in `metric`, else None.

    `batches` has the squares of the outputs of the reference, from `channel_squares`; they are
    added in the order of the batches.
    """
    squares: dict[tuple[str, int], list[FloatArray]] = defaultdict(list)
    for batch in batches:
        for place, sums in batch.items():
            squares[place].append(sums)
    unlike = [(_ratio(sums), name, axis) for (name, axis), sums in squares.items()]
    ratio, name, axis = max(unlike, default=(0.0, "", 0))
    if ratio < _UNLIKE:
        return None
    return (
        f"the values of some channels of output '{name}' (axis {axis}) are {ratio:,.0f} times "
        f"those of others, whose loss {metric.name} does not show. "
        f"Give --metric channel-noise@{axis}"
    )


def _ratio(sums: list[FloatArray]) -> float:
    """Returns the greatest RMS of a channel ÷ the least above 0; 0 where it is not known."""
    if len({each.shape for each in sums}) > 1:  # a length, then
        return 0.0
    total = np.sum(sums, axis=0)
    total = total[(total > 0) & np.isfinite(total)]
    return float(np.sqrt(total.max() / total.min())) if total.size else 0.0


def class_counts(metric: Metric, outputs: Outputs) -> ClassCounts:
    """Returns the classes that are predicted for a batch, int64, and the number of each.

    Both are empty for a metric that makes no predictions.
    """
    if metric.predictions is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    classes, counts = np.unique(metric.predictions(outputs), return_counts=True)
    return classes, counts


def one_class_note(metric: Metric, batches: Iterable[ClassCounts]) -> str | None:
    """Returns a note where 95 % or more of the predictions are one class, else None.

    `batches` has the classes that the reference predicts in each batch, from `class_counts`. A
    metric that makes no predictions has no note.
    """
    if metric.predictions is None:
        return None
    numbers, counted = (np.concatenate(each) for each in zip(*batches, strict=True))
    classes, places = np.unique(numbers, return_inverse=True)
    counts = np.zeros(len(classes), np.int64)
    np.add.at(counts, places, counted)
    share = counts.max() / counts.sum()
    if share < _NEARLY_ALL:
        return None
    return (
        f"{share:.1%} of the {counts.sum():,} predictions of the reference are class "
        f"{classes[counts.argmax()]}, which any other model gets right too: {metric.name} "
        f"{PROVES_LITTLE}. Give more varied samples, or --metric noise"
    )


def no_hit_note(metric: Metric, scores: Array) -> str | None:
    """Returns a note where the reference, whose `scores` (N,) these are, predicts nothing right."""
    if metric.predictions is None or not metric.higher_is_better or scores.any():
        return None
    return (
        f"the reference is right in 0 of {plural(len(scores), 'sample')}: {metric.name} "
        f"{PROVES_LITTLE}. Check the labels, or take the metric noise"
    )


def large_budget_note(metric: Metric, score: float) -> str | None:
    """Returns a note where the budget of a metric without unit exceeds the reference's `score`."""
    if metric.unit or abs(score) >= metric.budget:
        return None
    return (
        f"the default budget of {metric.budget:g} exceeds the {metric.name} of the reference, "
        f"{score:.4g}: it {PROVES_LITTLE}. Set --budget, or take --metric noise"
    )


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
    if not scores.size:
        return
    with np.errstate(invalid="ignore"):  # NaN is the largest of numbers among which it is
        bad = np.isnan(scores.reshape(len(scores), -1).max(1))
    if bad.any():
        raise InputError(
            f"the output of sample {bad.argmax()} of the batch is not a number (NaN)",
            "Look for NaN in the inputs, then in the model: tracer interpret --against ort.",
        )


def _pairs(outputs: Outputs, reference: Any) -> list[tuple[Array, Array]]:
    """Float outputs and those of the reference, as float64 arrays; integers without floats."""
    count = len(next(iter(outputs.values())))
    numeric = [
        name
        for name, value in outputs.items()
        if value.dtype.kind in "buif" and value.size and len(value) == count
    ]
    floats = [name for name in numeric if outputs[name].dtype.kind == "f"]
    if not numeric:
        raise InputError("no output has numbers to compare", "Give FILE.py:NAME.")
    pairs = []
    for name in floats or numeric:
        ours, theirs = outputs[name], reference[name]
        if ours.shape != theirs.shape:
            raise InputError(
                f"output '{name}' is {list(ours.shape)}, the reference's is {list(theirs.shape)}",
                "Compare the same model on the same data, or one output, as in noise@NAME.",
            )
        pairs.append((ours.astype(np.float64), theirs.astype(np.float64)))
    return pairs


def _share(ours: Array, theirs: Array) -> FloatArray:
    """Returns noise / signal, at most 1, float64 (N, rows), of arrays (N, rows, values)."""
    lost, signal = ((theirs - ours) ** 2).sum(2), (theirs**2).sum(2)
    share = np.divide(lost, signal, out=np.sign(lost), where=signal > 0)
    return np.asarray(np.minimum(share, 1.0))


def _rows(value: Array) -> Array:
    return value.reshape(len(value), 1, -1)


def _channel_axis(output: Array, axis: int | None) -> int:
    """Returns the axis of the channels of an output. Raises InputError where it has none."""
    if axis is None and len(channel_axes(output.ndim)) > 1:
        raise InputError(
            f"channel-noise: the output {list(output.shape)} does not tell which axis has the "
            "channels",
            "Give channel-noise@1 for [N, C, length], or channel-noise@2 for [N, tokens, C].",
        )
    index = 1 if axis is None else axis
    index += output.ndim if index < 0 else 0
    if output.ndim < _FEWEST_AXES or not 0 < index < output.ndim:
        raise InputError(
            f"channel-noise needs channels of several values in each sample, in axis {index} of "
            f"the output, which is {list(output.shape)}",
            "Give noise, or the axis of the channels, as in channel-noise@1.",
        )
    return index
