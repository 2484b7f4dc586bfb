"""Batches of samples: cut, padded, and regrouped to a batch size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError
from tracer.inputs.feedset import Feeds


@dataclass(frozen=True, slots=True)
class Batch:
    """The inputs of one inference, with labels and expected outputs where known.

    `inputs` may have more rows than `size` samples for a model with a fixed batch: they repeat the
    last sample, and the model's results for them must be dropped. `labels` [size, ...] and
    `outputs`, the expected outputs by name, are None if the data set has none. `token_bytes` are
    the bytes of text in a label, as a mean over the data set; None for labels other than tokens.
    """

    inputs: Feeds = field(repr=False)
    size: int
    labels: NDArray[Any] | None = field(default=None, repr=False)
    outputs: Mapping[str, Any] | None = field(default=None, repr=False)
    token_bytes: float | None = None

    def cut(self, start: int, stop: int, rows: frozenset[str]) -> Batch:
        """Returns samples `start` to `stop` - 1; inputs outside `rows` belong to all samples."""
        if start == 0 and stop == self.size:
            return self
        return self._of(slice(start, stop), stop - start, rows)

    def chosen(self, numbers: NDArray[np.int64], rows: frozenset[str]) -> Batch:
        """Returns the samples of these numbers, as `cut` does."""
        return self._of(numbers, len(numbers), rows)

    def _of(self, part: slice | NDArray[np.int64], size: int, rows: frozenset[str]) -> Batch:
        return Batch(
            {name: v[part] if name in rows else v for name, v in self.inputs.items()},
            size,
            None if self.labels is None else self.labels[part],
            None if self.outputs is None else {n: v[part] for n, v in self.outputs.items()},
            self.token_bytes,
        )

    def padded(self, size: int, rows: frozenset[str]) -> Batch:
        """Returns the batch with its last sample repeated until the inputs have `size` rows."""
        if self.size >= size:
            return self
        index = np.minimum(np.arange(size), self.size - 1)
        inputs = {name: v[index] if name in rows else v for name, v in self.inputs.items()}
        return replace(self, inputs=inputs)


def regrouped(pieces: Iterable[Batch], size: int, rows: frozenset[str]) -> Iterator[Batch]:
    """Yields the same samples in order, `size` at a time; the last batch may be smaller.

    Raises InputError for samples of different shapes in one batch.
    """
    pending: list[Batch] = []
    missing = size
    for piece in pieces:
        start = 0
        while piece.size - start >= missing:
            yield _joined([*pending, piece.cut(start, start + missing, rows)], rows)
            start, pending, missing = start + missing, [], size
        if start < piece.size:
            pending.append(piece.cut(start, piece.size, rows))
            missing -= piece.size - start
    if pending:
        yield _joined(pending, rows)


def _joined(pieces: list[Batch], rows: frozenset[str]) -> Batch:
    first = pieces[0]
    if len(pieces) == 1:
        return first
    inputs = {
        name: _concatenated(name, [p.inputs[name] for p in pieces]) if name in rows else value
        for name, value in first.inputs.items()
    }
    labels = [p.labels for p in pieces if p.labels is not None]
    outputs = [p.outputs for p in pieces if p.outputs is not None]
    return Batch(
        inputs,
        sum(piece.size for piece in pieces),
        _concatenated("the labels", labels) if labels else None,
        {n: _concatenated(n, [o[n] for o in outputs]) for n in outputs[0]} if outputs else None,
        first.token_bytes,
    )


def _concatenated(name: str, arrays: list[NDArray[Any]]) -> NDArray[Any]:
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        text = " and ".join(str(list(shape)) for shape in sorted(shapes)[:2])
        raise InputError(
            f"samples of '{name}' have the shapes {text}, which do not fit in one batch",
            "Use batch 1.",
        )
    return np.concatenate(arrays)
