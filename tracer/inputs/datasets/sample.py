"""One sample from a source that has them one by one, and batches of such samples."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tracer.inputs.datasets.batch import Batch
from tracer.support.types import Array


@dataclass(frozen=True, slots=True)
class Sample:
    """The inputs of one sample by the model's names, without an axis of samples, and its label."""

    inputs: Mapping[str, Array] = field(repr=False)
    label: Array | None = None


def stacked(samples: Iterable[Sample], rows: int) -> Iterator[Batch]:
    """Yields `rows` samples at a time, and fewer before one of other shapes."""
    pending: list[Sample] = []
    for sample in samples:
        if pending and _shapes(sample) != _shapes(pending[0]):
            yield _batch(pending)
            pending = []
        pending.append(sample)
        if len(pending) == rows:
            yield _batch(pending)
            pending = []
    if pending:
        yield _batch(pending)


def _shapes(sample: Sample) -> list[tuple[int, ...]]:
    labels = [] if sample.label is None else [sample.label]
    return [value.shape for value in (*sample.inputs.values(), *labels)]


def _batch(samples: list[Sample]) -> Batch:
    first = samples[0]
    inputs = {name: np.stack([each.inputs[name] for each in samples]) for name in first.inputs}
    labels = [each.label for each in samples if each.label is not None]
    return Batch(inputs, len(samples), np.stack(labels) if labels else None)
