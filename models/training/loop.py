"""The training loop; the order of images depends on the seed and the epoch alone."""

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from models.data import LabelledImages, Split, Text
from models.data.text import TextSplit
from models.training.learner import Learner
from models.training.settings import TrainSettings
from tracer.containment.activity import Progress
from tracer.errors import TracerError

SCORING_BATCH = 256


@dataclass(frozen=True, slots=True)
class Epoch:
    """Means over the images of an epoch; losses in nats, `seconds` of both passes together.

    `loading_ms` and `learning_ms` are means over the batches of training images: the time to cut a
    batch out of the data set, and the time of its step. None in logs of older versions.
    """

    epoch: int
    loss: float
    accuracy: float
    validation_loss: float
    validation_accuracy: float
    seconds: float
    loading_ms: float | None = None
    learning_ms: float | None = None

    def to_json(self) -> dict[str, float]:
        """Returns plain values by field name."""
        return asdict(self)


def from_json(saved: object) -> Epoch:
    """Returns the epoch of a `to_json` object. Raises TypeError for any other object."""
    if not isinstance(saved, dict):
        raise TypeError(f"{saved!r} is no epoch")
    for name, value in saved.items():
        kinds = int if name == "epoch" else (int, float)
        if value is None and name in ("loading_ms", "learning_ms"):
            continue
        if isinstance(value, bool) or not isinstance(value, kinds):
            raise TypeError(f"{name} is {value!r}")
    return Epoch(**saved)


def train(
    learner: Learner,
    dataset: LabelledImages | Text,
    settings: TrainSettings,
    done: int,
    progress: Progress,
) -> Iterator[Epoch]:
    """Trains the epochs after `done` up to `settings.epochs`; each is yielded as it ends.

    `dataset` has the model's input shape. `progress` counts the images of an epoch. Raises
    TracerError if a loss is not finite.
    """
    for epoch in range(done + 1, settings.epochs + 1):
        start = time.perf_counter()
        loss, accuracy, batch_ms = _learn(learner, dataset.train, settings, epoch, progress)
        _require_finite(loss, f"the loss of epoch {epoch}")
        validation_loss, validation_accuracy = evaluate(learner, dataset.test)
        _require_finite(validation_loss, f"the validation loss of epoch {epoch}")
        seconds = time.perf_counter() - start
        yield Epoch(
            epoch, loss, accuracy, validation_loss, validation_accuracy, seconds,
            *batch_ms,
        )  # fmt: skip


def batches(count: int, size: int) -> list[slice]:
    """Returns the batches of an epoch, as slices of its order.

    A single last image joins the previous batch: batch normalisation cannot learn from one value.
    """
    starts = list(range(0, count, size))
    if count % size == 1 and size > 1 and len(starts) > 1:
        starts.pop()
    return [slice(*ends) for ends in zip(starts, [*starts[1:], count], strict=True)]


def evaluate(learner: Learner, split: Split | TextSplit) -> tuple[float, float]:
    """Returns the mean loss in nats and accuracy over a split."""
    scores = [
        learner.score(*split.batch(slice(start, start + SCORING_BATCH)))
        for start in range(0, len(split), SCORING_BATCH)
    ]
    return _mean(scores, len(split))


def order(seed: int, epoch: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Returns the order of the `count` images of an epoch, which needs no saving to resume."""
    return np.random.default_rng([seed, epoch]).permutation(count)


def _learn(
    learner: Learner,
    split: Split | TextSplit,
    settings: TrainSettings,
    epoch: int,
    progress: Progress,
) -> tuple[float, float, tuple[float, float]]:
    """Returns mean loss and accuracy, and the mean ms to load a batch and to learn from it."""
    indices = order(settings.seed, epoch, len(split))
    task = f"epoch {epoch}/{settings.epochs}"
    scores, times = [], []
    progress(0, len(split), task)
    for part in batches(len(split), settings.batch):
        begun = time.perf_counter()
        images, classes = split.batch(indices[part])
        loaded = time.perf_counter()
        scores.append(learner.step(images, classes))
        times.append((loaded - begun, time.perf_counter() - loaded))
        progress(part.stop, len(split), task)
    loading, learning = np.mean(times, axis=0) * 1e3
    return *_mean(scores, len(split)), (float(loading), float(learning))


def _require_finite(loss: float, name: str) -> None:
    if not math.isfinite(loss):
        raise TracerError(f"training diverged: {name} is {loss}", "Lower --lr.")


def _mean(scores: list[tuple[float, float]], count: int) -> tuple[float, float]:
    losses, correct = zip(*scores, strict=True)
    return sum(losses) / count, sum(correct) / count
