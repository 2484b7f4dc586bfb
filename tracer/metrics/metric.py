"""What a metric is: a score for every sample, from the model's outputs and the right answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError
from tracer.inputs.datasets import Batch

Outputs = Mapping[str, NDArray[Any]]
"""A model's outputs by name, in its order; axis 0 of each counts the samples."""

Score = Callable[[Outputs, Any], NDArray[Any]]
"""Outputs and the truth of N samples to their scores (N,)."""

PERCENT = "%"


@dataclass(frozen=True, slots=True)
class Metric:
    """A measure of outputs that is the mean of what each sample contributes to it.

    `function` scores samples against labels, or, unless `needs_labels`, against the outputs of a
    reference. Scores of a metric in % are between 0 and 1.
    """

    name: str
    function: Score = field(repr=False)
    needs_labels: bool = True
    higher_is_better: bool = True
    unit: str = PERCENT
    where: str = ""

    @property
    def scale(self) -> float:
        """What a mean of scores is multiplied with to be in `unit`."""
        return 100.0 if self.unit == PERCENT else 1.0

    def scores(self, outputs: Outputs, truth: Any) -> NDArray[np.float64]:
        """The score of every sample, float64 (N,).

        `truth` is the labels, or the outputs of a reference by name. Raises InputError where it
        does not fit the outputs, or a score is not a number.
        """
        count = len(next(iter(outputs.values())))
        found = np.asarray(self.function(outputs, truth))
        if found.shape != (count,) or found.dtype.kind not in "buif":
            raise InputError(
                f"metric {self.name} gave {found.dtype}{list(found.shape)} for {count} samples"
                f"{self.where}",
                f"It returns one number for each sample: shape ({count},).",
            )
        scores = found.astype(np.float64)
        bad = np.flatnonzero(np.isnan(scores))
        if len(bad):
            raise InputError(
                f"metric {self.name}: the score of sample {bad[0]} of the batch is not a number"
                f"{self.where}",
                "Look at the model's outputs for this sample.",
            )
        return scores

    def value(self, scores: NDArray[np.float64]) -> float:
        """The metric over samples with these scores: their mean, in `unit`."""
        return float(scores.mean()) * self.scale

    def labels(self, batch: Batch, dataset: str) -> NDArray[Any]:
        """The labels of `batch`. Raises InputError where the data set has none."""
        if batch.labels is None:
            raise InputError(
                f"metric {self.name} needs labels, which {dataset} does not have",
                "Give them as 'labels' or 'y' in an .npz; agreement needs none.",
            )
        return batch.labels


def only(outputs: Outputs) -> NDArray[Any]:
    """The first output, which is what a classifier or a regression is judged by."""
    return next(iter(outputs.values()))
