"""Batches of samples: cut, padded, and regrouped to a batch size."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.inputs.feedset import Feeds
from tracer.inputs.sizes import batch_axes, leading_axes
from tracer.support.types import Array

_Source = TypeVar("_Source")
LABELS = ("labels", "label", "y", "cls")
"""Names of a label, best first."""
_ONLY_INPUT = ("x", "image", "img")
"""Names of the field for the only input of a model, beside that of the input."""
_IMAGE_RANK = 4
"""Axes of images: [N, C, H, W]."""


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

    def part(self, start: int, stop: int, rows: frozenset[str]) -> "Batch":
        """Returns samples `start` to `stop` - 1; inputs outside `rows` belong to all samples."""
        if start == 0 and stop == self.size:
            return self
        return self._of(slice(start, stop), stop - start, rows)

    def chosen(self, numbers: NDArray[np.int64], rows: frozenset[str]) -> "Batch":
        """Returns the samples of these numbers, as `part` does."""
        return self._of(numbers, len(numbers), rows)

    def _of(self, part: slice | NDArray[np.int64], size: int, rows: frozenset[str]) -> "Batch":
        return Batch(
            {name: v[part] if name in rows else v for name, v in self.inputs.items()},
            size,
            None if self.labels is None else self.labels[part],
            None if self.outputs is None else {n: v[part] for n, v in self.outputs.items()},
            self.token_bytes,
        )

    def padded(self, size: int, rows: frozenset[str]) -> "Batch":
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
            yield _concatenate([*pending, piece.part(start, start + missing, rows)], rows)
            start, pending, missing = start + missing, [], size
        if start < piece.size:
            pending.append(piece.part(start, piece.size, rows))
            missing -= piece.size - start
    if pending:
        yield _concatenate(pending, rows)


class SampleSource(Protocol):
    """Yields samples; reading twice yields the same samples in the same order."""

    @property
    def samples(self) -> int | None:
        """The number of samples; None if only reading them tells."""

    def pieces(self, rows: int, first: int = 0) -> Iterator[Batch]:
        """Yields samples from number `first` on, about `rows` at a time.

        Memory holds one batch. `first` is 0 where inputs cannot be cut into samples.
        Raises InputError for samples that cannot be read.
        """


@dataclass(frozen=True, slots=True)
class Sample:
    """The inputs of one sample by the model's names, without an axis of samples, and its label."""

    inputs: Mapping[str, Array] = field(repr=False)
    label: Array | None = None

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the inputs, and of the label."""
        labels = [] if self.label is None else [self.label]
        return [value.shape for value in (*self.inputs.values(), *labels)]


class SampleReader(ABC):
    """A source that reads one sample after the other."""

    __slots__ = ()

    @abstractmethod
    def read_samples(self, rows: int, first: int) -> Iterator[Sample]:
        """Yields samples from number `first` on, of which memory may hold `rows`."""

    def pieces(self, rows: int, first: int = 0) -> Iterator[Batch]:
        """Yields `rows` samples at a time, and fewer before one of other shapes."""
        pending: list[Sample] = []
        for sample in self.read_samples(rows, first):
            if pending and sample.shapes != pending[0].shapes:
                yield _stack(pending)
                pending = []
            pending.append(sample)
            if len(pending) == rows:
                yield _stack(pending)
                pending = []
        if pending:
            yield _stack(pending)


@dataclass(frozen=True, slots=True)
class SampleLayout:
    """`rows` are the inputs whose axis 0 counts samples; other inputs belong to all samples.

    `batch` is the fixed number of rows, None if any is allowed. Without `rows` the inputs cannot
    be cut into samples.
    """

    rows: frozenset[str]
    batch: int | None = None

    @classmethod
    def of(cls, model: Model) -> "SampleLayout":
        """Derives the layout from the declared inputs and outputs."""

        def is_fixed(lead: tuple[tensor_type.Dim, ...]) -> bool:  # a fixed number of rows, or none
            return not lead or isinstance(lead[0], int)

        inputs = tensor_type.declared_shapes(model.inputs)
        axes = batch_axes(model, inputs)
        kinds = tensor_type.declared_types(model.inputs)
        unknown = {name for name, kind in kinds.items() if kind and kind.shape is None}
        results = tensor_type.declared_types(model.graph.output).values()
        outputs = [kind.shape[:1] for kind in results if kind and kind.shape is not None]
        if axes or unknown:
            cuts = set(axes.values()) <= {0} and not any(map(is_fixed, outputs))
            return cls(frozenset({*axes, *unknown} if cuts else ()))
        leads = leading_axes(model, inputs)
        leading = {shape[0] for name, shape in inputs.items() if len(shape) > 1}
        if (
            any(leads.values())
            or len(leading) != 1
            or any(lead != tuple(leading) for lead in filter(is_fixed, outputs))
        ):
            return cls(frozenset())
        (batch,) = leading
        if not isinstance(batch, int) or batch < 1:
            return cls(frozenset())
        return cls(frozenset(n for n, shape in inputs.items() if shape[:1] == (batch,)), batch)


@dataclass(frozen=True, slots=True)
class Fields:
    """The field of each input by its name, the field of the label, and the types of the inputs."""

    inputs: Mapping[str, str]
    label: str | None
    types: Mapping[str, tensor_type.TensorType | None]

    @property
    def names(self) -> list[str]:
        """The fields that a sample needs: those of the inputs, then that of the label."""
        return [*self.inputs.values(), *([] if self.label is None else [self.label])]


def choose_fields(
    where: str, present: Iterable[str], model: Model, extra: Iterable[str] = ()
) -> Fields:
    """Returns which fields of those `present` the model takes.

    The only input of a model takes x, image or img as well, or one called as in `extra`. Raises
    InputError, which begins with `where`, for an input without a field, and for a model whose
    inputs cannot be cut into samples.
    """
    layout, names = SampleLayout.of(model), list(present)
    shared = [value.name for value in model.inputs if value.name not in layout.rows]
    if shared:
        raise InputError(
            f"{where}: holds samples, and input '{shared[0]}' of {model.name} has no row for each",
            "Name an .npz file with an array for each input.",
        )
    others = (*_ONLY_INPUT, *extra) if len(model.inputs) == 1 else ()
    inputs = {
        value.name: next((n for n in (value.name, *others) if n in names), "")
        for value in model.inputs
    }
    missing = [name for name, field in inputs.items() if not field]
    if missing:
        known = ", ".join((missing[0], *others))
        raise InputError(
            f"{where} has no field for input '{missing[0]}' of {model.name}; it has "
            f"{', '.join(names) or 'none'}",
            f"Name the field {known}.",
        )
    types = tensor_type.declared_types(model.inputs)
    free = [name for name in LABELS if name in names and name not in inputs.values()]
    return Fields(inputs, next(iter(free), None), types)


def image_input(name: str, model: Model) -> str:
    """Returns the input of `model` that takes the images called `name`.

    Raises InputError for a model with several inputs, or whose input is not an image.
    """
    if len(model.inputs) != 1:
        inputs = ", ".join(value.name for value in model.inputs) or "none"
        raise InputError(
            f"{name} are images for a model with one input; those of {model.name} are {inputs}",
            "Name an .npz file with an array for each input.",
        )
    (value,) = model.inputs
    declared = tensor_type.from_type_proto(value.type)
    kind, shape = ("uint8", None) if declared is None else (declared.dtype, declared.shape)
    takes_pixels = kind == "uint8" or kind.startswith("float")
    if not takes_pixels or (shape is not None and len(shape) != _IMAGE_RANK):
        raise InputError(
            f"{name} are images, [N, C, H, W]; input '{value.name}' of {model.name} is {declared}",
            "Name an .npz file with an array for it.",
        )
    return value.name


def parts_from(first: int, sources: Iterable[tuple[_Source, int]]) -> Iterator[tuple[_Source, int]]:
    """Yields what holds sample `first`, with its place there, and what follows, with 0.

    `sources` come with the number of their samples.
    """
    for source, size in sources:
        if first < max(size, 1):
            yield source, first
        first = max(0, first - size)


def _stack(samples: list[Sample]) -> Batch:
    first = samples[0]
    inputs = {name: np.stack([each.inputs[name] for each in samples]) for name in first.inputs}
    labels = [each.label for each in samples if each.label is not None]
    return Batch(inputs, len(samples), np.stack(labels) if labels else None)


def _concatenate(pieces: list[Batch], rows: frozenset[str]) -> Batch:
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
