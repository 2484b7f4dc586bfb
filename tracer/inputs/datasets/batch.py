"""Samples that go through a model together: cut out of what a data set gives, and joined again."""

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
    """The inputs of one inference, and what is known of the right answers.

    `size` samples are meant. A model with a fixed batch may need more rows than are left: the last
    sample is then repeated in `inputs`, and what the model says of rows from `size` on is to be
    dropped. `labels` [size, ...] and `outputs`, the expected outputs by name, are None where the
    data set has none.
    """

    inputs: Feeds = field(repr=False)
    size: int
    labels: NDArray[Any] | None = field(default=None, repr=False)
    outputs: Mapping[str, Any] | None = field(default=None, repr=False)

    def cut(self, start: int, stop: int, rows: frozenset[str]) -> Batch:
        """The samples from `start` to before `stop`; inputs outside `rows` belong to all."""
        if start == 0 and stop == self.size:
            return self
        part = slice(start, stop)
        return Batch(
            {name: v[part] if name in rows else v for name, v in self.inputs.items()},
            stop - start,
            None if self.labels is None else self.labels[part],
            None if self.outputs is None else {n: v[part] for n, v in self.outputs.items()},
        )

    def padded(self, size: int, rows: frozenset[str]) -> Batch:
        """The same samples, with the last one repeated until the inputs have `size` rows."""
        if self.size >= size:
            return self
        index = np.minimum(np.arange(size), self.size - 1)
        inputs = {name: v[index] if name in rows else v for name, v in self.inputs.items()}
        return replace(self, inputs=inputs)


def regrouped(pieces: Iterable[Batch], size: int, rows: frozenset[str]) -> Iterator[Batch]:
    """The same samples in the same order, `size` at a time; what remains comes last.

    Raises InputError for samples of different shapes that would be in one batch.
    """
    held: list[Batch] = []
    missing = size
    for whole in pieces:
        start = 0
        while whole.size - start >= missing:
            yield _joined([*held, whole.cut(start, start + missing, rows)], rows)
            start, held, missing = start + missing, [], size
        if start < whole.size:
            held.append(whole.cut(start, whole.size, rows))
            missing -= whole.size - start
    if held:
        yield _joined(held, rows)


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
    )


def _concatenated(what: str, arrays: list[NDArray[Any]]) -> NDArray[Any]:
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        told = " and ".join(str(list(shape)) for shape in sorted(shapes)[:2])
        raise InputError(
            f"samples of '{what}' have the shapes {told}, which make no batch",
            "Take one sample at a time: batch 1.",
        )
    return np.concatenate(arrays)
