"""A metric: a function that scores each sample against labels or a reference."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tracer.errors import InputError, TracerError
from tracer.inputs.datasets.batch import Batch
from tracer.support import imports
from tracer.support.types import Array, FloatArray

_USER_FORM = "A metric is a function(outputs, labels) that returns one number for each sample."


Outputs = Mapping[str, Array]
"""A model's outputs by name, in its order; axis 0 of each counts the samples."""

Score = Callable[[Outputs, Any], Array]
"""(outputs, truth) of N samples -> their scores (N,)."""

Predictions = Callable[[Outputs], Array]
"""outputs -> the numbers of the classes that they predict, of any shape."""

PERCENT = "%"


@dataclass(frozen=True, slots=True)
class Metric:
    """A measure of outputs: the mean of the scores of all samples.

    `function` scores samples against labels; without `needs_labels`, against the outputs of a
    reference. Scores of a metric in % lie between 0 and 1. `where` names the user's code in errors.
    `unlabelled` scores data without labels against a reference. `predictions` are the classes that
    outputs stand for, where the metric is about classes. With `sums_channels` the channels with the
    largest values decide. `budget` is the loss, in `unit`, that a what-if allows by default.
    """

    name: str
    function: Score = field(repr=False)
    needs_labels: bool = True
    higher_is_better: bool = True
    unit: str = PERCENT
    where: str = ""
    unlabelled: Score | None = field(default=None, repr=False)
    predictions: Predictions | None = field(default=None, repr=False)
    sums_channels: bool = False
    budget: float = 1.0

    @property
    def scale(self) -> float:
        """The factor from a mean of scores to `unit`."""
        return 100.0 if self.unit == PERCENT else 1.0

    def scores(self, outputs: Outputs, truth: Any) -> FloatArray:
        """Returns the score of every sample, float64 (N,).

        `truth` is the labels, or the outputs of a reference by name. Raises InputError where
        `truth` does not fit the outputs, or a score is not a number.
        """
        count = len(next(iter(outputs.values())))
        with np.errstate(all="ignore"):  # a score that is not a number is told below
            scores = np.asarray(self.function(outputs, truth))
        if scores.shape != (count,) or scores.dtype.kind not in "buif":
            raise InputError(
                f"metric {self.name} returned {scores.dtype}{list(scores.shape)} for {count} "
                f"samples{self.where}",
                f"A metric returns one number for each sample: shape ({count},).",
            )
        scores = scores.astype(np.float64)
        bad = np.flatnonzero(np.isnan(scores))
        if len(bad):
            raise InputError(
                f"metric {self.name}: the score of sample {bad[0]} of the batch is not a number"
                f"{self.where}",
                "Look at the model's outputs for this sample.",
            )
        return scores

    def value(self, scores: FloatArray) -> float:
        """Returns the mean of scores, in `unit`."""
        return float(scores.mean()) * self.scale

    def labels(self, batch: Batch, dataset: str) -> Array:
        """Returns the labels of `batch`. Raises InputError where the data set has none."""
        if batch.labels is None:
            raise InputError(
                f"metric {self.name} needs labels, which {dataset} does not have",
                "Give them as 'labels' or 'y' in an .npz; noise, mse and agreement need none.",
            )
        return batch.labels


def only(outputs: Outputs) -> Array:
    """Returns the first output, by which classifiers and regressions are scored."""
    return next(iter(outputs.values()))


def load_user_metric(spec: str) -> Metric:
    """Returns the metric `spec`, FILE.py:NAME. Runs the code of the file.

    NAME is a function (outputs, labels). Outputs are an array [N, ...], or a dict of arrays by
    name where the model has several. The function may have attributes: `needs_labels = False`
    (labels are None then), `higher_is_better = False`, `unit = "dB"`. Raises InputError where
    there is no such function, or the code of the file fails.
    """
    path, _, name = spec.rpartition(":")
    file = Path(path)
    function = imports.from_user_file(file, name, _USER_FORM)
    if not callable(function):
        raise InputError(f"{path} has no function '{name}'", _USER_FORM)
    code = getattr(function, "__code__", None)
    line = f", line {code.co_firstlineno}" if code else ""
    return Metric(
        spec,
        _Guarded(spec, file, function),
        bool(getattr(function, "needs_labels", True)),
        bool(getattr(function, "higher_is_better", True)),
        str(getattr(function, "unit", "")),
        f" ({file}{line})",
    )


@dataclass(frozen=True, slots=True)
class _Guarded:
    """Calls the function with the arguments it expects; its exceptions name file and line.

    Pickled, it is the name of the function: another process reads the file again.
    """

    spec: str
    file: Path
    function: Callable[..., Any]

    def __call__(self, outputs: Outputs, truth: Any) -> Any:
        argument = next(iter(outputs.values())) if len(outputs) == 1 else dict(outputs)
        needs_labels = getattr(self.function, "needs_labels", True)
        try:
            return self.function(argument, truth if needs_labels else None)
        except TracerError:  # already names the problem
            raise
        except (Exception, SystemExit) as error:
            raise imports.user_code_error(f"metric {self.spec}", self.file, error) from error

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        name = self.spec.rpartition(":")[2]
        return _reloaded, (f"{self.file.resolve()}:{name}",)


def _reloaded(spec: str) -> Any:
    return load_user_metric(spec).function
