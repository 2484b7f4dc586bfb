"""One epoch after the other, in an order that follows from the seed and the epoch alone."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from models.data import LabelledImages, Split
from models.training.learner import Learner
from models.training.settings import Settings
from tracer.errors import TracerError
from tracer.support.progress import Progress

SCORING_BATCH = 256


@dataclass(frozen=True, slots=True)
class Epoch:
    """Means over the images of an epoch; losses in nats, `seconds` of both passes together."""

    epoch: int
    loss: float
    accuracy: float
    validation_loss: float
    validation_accuracy: float
    seconds: float

    def to_json(self) -> dict[str, float]:
        """Plain values under the fields' names."""
        return asdict(self)


def from_json(saved: object) -> Epoch:
    """What `to_json` gave. Raises TypeError for anything else."""
    if not isinstance(saved, dict):
        raise TypeError(f"{saved!r} is no epoch")
    for name, value in saved.items():
        kinds = int if name == "epoch" else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise TypeError(f"{name} is {value!r}")
    return Epoch(**saved)


def train(
    learner: Learner, dataset: LabelledImages, settings: Settings, done: int, progress: Progress
) -> Iterator[Epoch]:
    """Trains the epochs after `done` up to `settings.epochs`; each comes out as it ends.

    `dataset` is already of the model's input shape. `progress` is called with (images done, images
    of the epoch, what is going on). Raises TracerError where a loss is no longer finite.
    """
    for epoch in range(done + 1, settings.epochs + 1):
        start = time.perf_counter()
        loss, accuracy = _learn(learner, dataset.train, settings, epoch, progress)
        _require_finite(loss, f"the loss of epoch {epoch}")
        validation_loss, validation_accuracy = judge(learner, dataset.test)
        _require_finite(validation_loss, f"the validation loss of epoch {epoch}")
        seconds = time.perf_counter() - start
        yield Epoch(epoch, loss, accuracy, validation_loss, validation_accuracy, seconds)


def batches(count: int, size: int) -> list[slice]:
    """Which places of an epoch's order are learned from at once.

    A last image that would be alone goes with those before it: batch normalisation cannot learn
    from a single value.
    """
    starts = list(range(0, count, size))
    if count % size == 1 and size > 1 and len(starts) > 1:
        starts.pop()
    return [slice(*ends) for ends in zip(starts, [*starts[1:], count], strict=True)]


def judge(learner: Learner, split: Split) -> tuple[float, float]:
    """Returns the mean loss in nats and accuracy over a split."""
    scores = [
        learner.score(*split.batch(slice(start, start + SCORING_BATCH)))
        for start in range(0, len(split), SCORING_BATCH)
    ]
    return _mean(scores, len(split))


def order(seed: int, epoch: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """In which order an epoch sees its `count` images: nothing else needs saving to resume."""
    return np.random.default_rng([seed, epoch]).permutation(count)


def _learn(
    learner: Learner, split: Split, settings: Settings, epoch: int, progress: Progress
) -> tuple[float, float]:
    chosen = order(settings.seed, epoch, len(split))
    what = f"epoch {epoch}/{settings.epochs}"
    scores = []
    progress(0, len(split), what)
    for places in batches(len(split), settings.batch):
        scores.append(learner.step(*split.batch(chosen[places])))
        progress(places.stop, len(split), what)
    return _mean(scores, len(split))


def _require_finite(loss: float, what: str) -> None:
    if not math.isfinite(loss):
        raise TracerError(f"training diverged: {what} is {loss}", "Lower --lr.")


def _mean(scores: list[tuple[float, int]], count: int) -> tuple[float, float]:
    losses, correct = zip(*scores, strict=True)
    return sum(losses) / count, sum(correct) / count
