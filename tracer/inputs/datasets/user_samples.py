"""Reads samples that the user's own code yields: FILE.py:NAME."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tracer.errors import InputError
from tracer.graph.model import Model
from tracer.graph.tensor_type import TensorType
from tracer.inputs.datasets import images
from tracer.inputs.datasets.batch import Fields, Sample, SampleReader, choose_fields
from tracer.support import imports
from tracer.support.types import Array

SPEC = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)")
_SHARD = 256
"""Samples of a shard, at most: so many are passed over before a part begins."""
_INPUT, _LABEL = "x", "label"
"""Fields of a sample without names."""
_FORM = (
    "NAME is, or returns, samples that can be read again: a list, an object with __len__ and "
    "__getitem__, or an iterable. A sample is an input, (input, label), or a dict of inputs and "
    "a label, each without an axis of samples."
)


@runtime_checkable
class _Sharded(Protocol):
    """Yields shard `i` of `n`: samples i·len÷n to (i + 1)·len÷n - 1, rounded down."""

    def __len__(self) -> int: ...

    def shard(self, i: int, n: int) -> Iterable[Any]: ...


@dataclass(frozen=True, slots=True)
class UserSamples(SampleReader):
    """The samples of `make()`, which is called for each reading; see `open_user_samples`.

    `samples` is the length of what it returns; None if that has none.
    """

    spec: str
    file: Path
    make: Callable[[], Any] = field(repr=False)
    samples: int | None
    fields: Fields

    def read_samples(self, rows: int, first: int) -> Iterator[Sample]:
        """Yields samples; those before `first` are read and dropped if only that finds it."""
        with imports.naming_user_code(f"data {self.spec}", self.file):
            for number, sample in enumerate(_values(self.spec, self.make(), first), first):
                where, values = f"{self.spec}: sample {number:,}", _by_field(sample)
                missing = [name for name in self.fields.names if name not in values]
                if missing:
                    raise InputError(f"{where} has no {missing[0]}, as the first one has", _FORM)
                inputs = {
                    name: _input(where, values[own], self.fields.types[name])
                    for name, own in self.fields.inputs.items()
                }
                label = self.fields.label
                yield Sample(inputs, None if label is None else _array(where, values[label]))


def open_user_samples(spec: str, model: Model, home: Path) -> UserSamples:
    """Returns the samples of FILE.py:NAME; runs the code of the file, from the folder `home`.

    NAME is an object, or a function or class that returns one when it is called without arguments.
    An object with `__len__` and `__getitem__` is read by number. One with `__len__` and
    `shard(i, n)` yields samples i·len÷n to (i + 1)·len÷n - 1, rounded down, for any n. Any other is
    iterated. The first sample decides its fields. Raises InputError for code that fails, for an
    iterator that can be read once only, and for samples that do not fit the model.
    """
    match = SPEC.fullmatch(spec)
    assert match is not None
    file = home / match["file"]
    named = imports.from_user_file(file, match["name"], _FORM)
    if named is None:
        raise InputError(f"{file} has no '{match['name']}'", _FORM)
    # an object that can be called may be a data set itself, but no class of one
    has_samples = hasattr(named, "__iter__") or _is_by_number(named)
    is_maker = callable(named) and (isinstance(named, type) or not has_samples)
    make = named if is_maker else lambda: named
    with imports.naming_user_code(f"data {spec}", file):
        made = make()
        if isinstance(made, Iterator) and made is make():
            raise InputError(f"{spec}: an iterator, which can be read only once", _FORM)
        samples = len(made) if hasattr(made, "__len__") else None
        first = next(iter(_values(spec, made, 0)), None)
    if first is None:
        raise InputError(f"{spec}: holds no samples", _FORM)
    chosen = choose_fields(f"{spec}: the first sample", _by_field(first), model)
    return UserSamples(spec, file, make, samples, chosen)


def _is_by_number(made: Any) -> bool:
    """Whether samples are read by number; an IterableDataset of torch only inherits that."""
    names = {base.__name__ for base in type(made).__mro__}
    return (
        hasattr(made, "__len__")
        and hasattr(made, "__getitem__")
        and not names & {"IterableDataset", "dict"}
    )


def _values(spec: str, made: Any, first: int) -> Iterator[Any]:
    """Yields what the user's object has, from sample `first` on."""
    if _is_by_number(made):
        return (made[number] for number in range(first, len(made)))
    if isinstance(made, _Sharded):
        return _of_shards(spec, made, first)
    if not isinstance(made, Iterable):
        raise InputError(f"{spec}: a {type(made).__name__}, which holds no samples", _FORM)
    return itertools.islice(iter(made), first, None)


def _of_shards(spec: str, made: _Sharded, first: int) -> Iterator[Any]:
    """Yields samples from the shard on that has sample `first`."""
    length = len(made)
    count = -(-length // _SHARD)
    for shard in range(count):
        begin, end = shard * length // count, (shard + 1) * length // count
        if end <= first:
            continue
        values = list(itertools.islice(made.shard(shard, count), end - begin + 1))
        if len(values) != end - begin:
            raise InputError(
                f"{spec}: shard({shard}, {count}) has {len(values)} samples, not {end - begin}",
                f"Shard i of n has samples i·{length}÷n to (i + 1)·{length}÷n - 1, rounded down.",
            )
        yield from values[max(0, first - begin) :]


def _by_field(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple) and len(value) == 2:
        return {_INPUT: value[0], _LABEL: value[1]}
    return {_INPUT: value}


def _input(where: str, value: Any, declared: TensorType | None) -> Array:
    """Returns an array, or the pixels [C, H, W] of an image of Pillow in the input's sizes."""
    if hasattr(value, "convert") and hasattr(value, "mode"):
        return np.asarray(images.fit_declared(images.pixels_of(value), declared)[0])
    array = _array(where, value)
    is_image = array.dtype == np.uint8 and array.ndim == 3
    if is_image and declared is not None and declared.dtype.startswith("float"):
        return np.asarray(images.fit_declared(array[None], declared)[0])
    return array


def _array(where: str, value: Any) -> Array:
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise InputError(f"{where} has a {type(value).__name__}, which is no array", _FORM)
    return array
