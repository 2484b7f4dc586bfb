"""Is the right class among the most likely ones?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError
from tracer.metrics.metric import Outputs, only

_IMAGES = 4  # the rank of images
_HINT = "Labels are the numbers of the classes, from 0, one for each sample."


def top1(outputs: Outputs, labels: Any) -> NDArray[np.float64]:
    """1 where the label is the class of the highest score, else 0.

    Of equal scores the first counts, as in numpy.argmax. Raises InputError for outputs that are
    no class scores [N, classes], and for labels [N] that are no classes.
    """
    return _among_best(1, only(outputs), np.asarray(labels))


def top5(outputs: Outputs, labels: Any) -> NDArray[np.float64]:
    """1 where the label is one of the five classes of the highest scores, else 0; else as `top1`.

    Raises InputError where there are fewer than five classes.
    """
    return _among_best(5, only(outputs), np.asarray(labels))


def agreement(outputs: Outputs, reference: Any, axis: int | None = None) -> NDArray[np.float64]:
    """The share of a sample's choices for which a reference has its highest score for the same.

    A sample of [N, classes] is one choice; [N, tokens, classes] has one for each token,
    [N, classes, H, W] one for each pixel. `axis` says where the classes are, unless that is it.
    Raises InputError where there are no classes to choose from, or shapes differ.
    """
    ours, theirs = only(outputs), only(reference)
    if ours.shape != theirs.shape:
        raise InputError(
            f"the outputs are {list(ours.shape)}, but those of the reference {list(theirs.shape)}",
            "Compare the same model on the same data.",
        )
    asked = class_axis(ours.ndim) if axis is None else axis
    place = asked + ours.ndim if asked < 0 else asked
    if not 0 < place < ours.ndim or ours.shape[place] < 2:
        raise InputError(
            f"agreement is about the likeliest of several classes, axis {asked} of the output; "
            f"this one is {list(ours.shape)}",
            "Say where the classes are, as in agreement@1 or agreement@-1; or give mse, or "
            "FILE.py:NAME.",
        )
    _check_numbers(ours)
    _check_numbers(theirs)
    same = ours.argmax(place) == theirs.argmax(place)
    return np.asarray(same.reshape(len(same), -1).mean(1))


def class_axis(rank: int) -> int:
    """The axis of the classes in outputs of a rank.

    ONNX has channels first in images and volumes, [N, C, H, W]; language models put out
    [N, tokens, classes].
    """
    return 1 if rank >= _IMAGES else rank - 1


def _among_best(best: int, scores: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
    _check(best, scores, labels)
    index = np.arange(len(scores))
    own = scores[index, labels][:, None]
    earlier = np.arange(scores.shape[1]) < labels[:, None]
    ahead = (scores > own) | ((scores == own) & earlier)
    return np.asarray(ahead.sum(1) < best, np.float64)


def _check(best: int, scores: NDArray[Any], labels: NDArray[Any]) -> None:
    if scores.ndim != 2:
        raise InputError(
            f"the output {list(scores.shape)} is not the scores of classes, [samples, classes]",
            "Give another metric, or a classifier.",
        )
    count, classes = scores.shape
    if labels.shape != (count,) or labels.dtype.kind not in "iu":
        raise InputError(
            f"labels {labels.dtype}{list(labels.shape)} do not fit outputs {list(scores.shape)}",
            _HINT,
        )
    if classes < best:
        raise InputError(f"there are {classes} classes: the {best} best are all", "Give top1.")
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise InputError(
            f"a label is {wrong[0]}, but the model has {classes} classes, 0 to {classes - 1}", _HINT
        )
    _check_numbers(scores)


def _check_numbers(scores: NDArray[Any]) -> None:
    """NaN is neither more nor less than any score: nothing would be wrong of it."""
    bad = np.isnan(scores.astype(np.float64)).reshape(len(scores), -1).any(1)
    if bad.any():
        raise InputError(
            f"the output of sample {bad.argmax()} of the batch is not a number (NaN)",
            "Look at the model, for example with: tracer interpret --against ort.",
        )
