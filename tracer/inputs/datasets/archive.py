"""Reads samples from stored inputs: an .npz file, or test_data_set folders of protobufs.

An .npz file may have labels (`y` or `labels`) and expected outputs as well. The folders are ONNX's
format for test data.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracer.errors import InputError
from tracer.graph import tensor_type
from tracer.graph.model import Model
from tracer.inputs import feedset
from tracer.inputs.datasets.batch import Batch, SampleLayout, parts_from
from tracer.inputs.sizes import batch_of
from tracer.text import suggest

_DIMS = 0x08
"""The tag of field 1 as a number, in the wire format of protobuf."""
_MORE = 0x80
"""Bit of a byte that another byte of the same number follows."""
_SIZE_BYTES = 11
"""A tag and the 10 bytes that a number has at most."""
_LABELS = ("labels", "y")
_ONLY_INPUT = "x"  # name in an archive for the only input of a model
_HELD_OUT = "_test"  # suffix of held-out arrays, as x_test and y_test


@dataclass(frozen=True, slots=True)
class Archive:
    """Members by the model's names; `shared` inputs have no rows and belong to all samples."""

    path: Path
    model: Model
    inputs: Mapping[str, feedset.Member]
    shared: Mapping[str, feedset.Member]
    outputs: Mapping[str, feedset.Member]
    labels: feedset.Member | None

    @property
    def samples(self) -> int:
        """The number of rows; an archive without rows is one sample."""
        return next((member.shape[0] for member in self.inputs.values()), 1)

    def pieces(self, rows: int, first: int = 0) -> Iterator[Batch]:
        """Yields `rows` rows of all members at a time, each member from its own stream."""
        shared = list(self.shared.values())
        with feedset.npz_opened(self.path, shared) as streams:
            arrays = [m.read_all(stream) for m, stream in zip(shared, streams, strict=True)]
        common = dict(zip(self.shared, arrays, strict=True))
        if not self.inputs:
            shapes = feedset.FeedSet(common, None).shapes
            yield Batch(common, batch_of(self.model, shapes) or 1)
            return
        members = self._with_rows()
        with feedset.npz_opened(self.path, members, first) as streams:
            readers = zip(members, streams, strict=True)
            for arrays in zip(*(m.rows(s, rows, first) for m, s in readers), strict=True):
                count = len(self.inputs)
                inputs = dict(zip(self.inputs, arrays, strict=False))
                outputs = dict(zip(self.outputs, arrays[count:], strict=False))
                labels = None if self.labels is None else arrays[-1]
                yield Batch({**inputs, **common}, len(arrays[0]), labels, outputs or None)

    def _with_rows(self) -> list[feedset.Member]:
        labels = [] if self.labels is None else [self.labels]
        return [*self.inputs.values(), *self.outputs.values(), *labels]


def open_archive(path: Path, model: Model, layout: SampleLayout, split: str) -> Archive:
    """Returns the arrays of `path` that `model` takes; the split "test" uses `<input>_test`.

    An archive without `_test` arrays serves both splits. Raises InputError if an input is
    missing, or if members have different numbers of rows.
    """
    members = feedset.npz_members(path)
    names = [value.name for value in model.inputs]
    held_out = {f"{name}{_HELD_OUT}" for name in (*names, _ONLY_INPUT)} & set(members)
    suffix = _HELD_OUT if split == "test" and held_out else ""
    by_name = {name: members.get(name + suffix) for name in names}
    if len(names) == 1:
        by_name[names[0]] = by_name[names[0]] or members.get(_ONLY_INPUT + suffix)
    missing = [name for name, member in by_name.items() if member is None]
    if missing:
        raise InputError(
            f"{path} has no '{missing[0]}{suffix}' for {model.name}; it has {', '.join(members)}",
            f"The model's inputs are {', '.join(names)}.",
        )
    present = {name: member for name, member in by_name.items() if member is not None}
    # expected outputs and labels: integers of rank 1 called `y` are always labels
    ranks = {
        name: len(kind.shape)
        for name, kind in tensor_type.declared_types(model.graph.output).items()
        if kind is not None and kind.shape is not None
    }
    free = {n: members[n + suffix] for n in (*ranks, *_LABELS) if n + suffix in members}
    free = {n: member for n, member in free.items() if member not in present.values()}
    outputs, labels = dict(free), None
    for name in _LABELS:
        if name in free and labels is None:
            rank, is_integer = ranks.get(name), free[name].dtype.kind in "iu"
            vector = len(free[name].shape) == 1 and is_integer
            if rank is None or (rank != 1 and vector):
                labels = outputs.pop(name)
    outputs = {name: member for name, member in outputs.items() if name in ranks}
    inputs = {name: member for name, member in present.items() if name in layout.rows}
    archive = Archive(
        path,
        model,
        inputs,
        {name: member for name, member in present.items() if name not in layout.rows},
        outputs if inputs else {},
        labels if inputs else None,
    )
    with_rows = archive._with_rows()
    scalars = [member.name for member in with_rows if not member.shape]
    if scalars:
        raise InputError(f"{path}: '{scalars[0]}' is a scalar, it has no rows")
    rows = {member.name: member.shape[0] for member in with_rows}
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"'{name}' has {count:,}" for name, count in rows.items())
        raise InputError(
            f"{path}: different numbers of rows: {counts}", "A sample is one row of each."
        )
    return archive


def refuse_unknown(path: Path, model: Model) -> None:
    """Raises InputError for an array of `path` that is no input, expected output or label."""
    names = [value.name for value in model.inputs]
    known = {*names, *(value.name for value in model.graph.output), *_LABELS}
    known |= {_ONLY_INPUT} if len(names) == 1 else set()
    known |= {f"{name}{_HELD_OUT}" for name in known}
    unknown = [name for name in feedset.npz_members(path) if name not in known]
    if unknown:
        raise InputError(
            f"{path}: {model.name} has no input '{unknown[0]}'",
            f"{suggest(unknown[0], names)}The model's inputs are {', '.join(names) or 'none'}.",
        )


@dataclass(frozen=True, slots=True)
class TestDataFolders:
    """The test_data_set folders `paths`, each with `input_K.pb` and optional `output_K.pb`.

    `sizes` are the samples of each folder; None if inputs cannot be cut into samples.
    """

    model: Model
    paths: tuple[Path, ...]
    layout: SampleLayout
    sizes: tuple[int, ...] | None

    @property
    def samples(self) -> int | None:
        """The samples of all folders; None if inputs cannot be cut into samples."""
        return None if self.sizes is None else sum(self.sizes)

    def pieces(self, rows: int, first: int = 0) -> Iterator[Batch]:
        """Yields one batch per folder, whatever `rows`; the first may begin inside its folder."""
        sizes = itertools.repeat(1) if self.sizes is None else self.sizes
        for path, skipped in parts_from(first, zip(self.paths, sizes, strict=False)):
            feeds = feedset.read_feeds(self.model, path)
            outputs = feedset.read_outputs(self.model, path)
            if not self.layout.rows:
                size = batch_of(self.model, feedset.FeedSet(feeds, None).shapes) or 1
            else:
                tensors = {**{n: v for n, v in feeds.items() if n in self.layout.rows}, **outputs}
                counts = {name: _rows(value) for name, value in tensors.items()}
                if len(set(counts.values())) != 1 or None in counts.values():
                    text = ", ".join(f"'{n}' has {count or 'no'}" for n, count in counts.items())
                    raise InputError(f"{path}: a sample is a row of each tensor, but {text}")
                size = next(iter(counts.values())) or 0
            batch = Batch(feeds, size, None, outputs or None)
            yield batch.part(skipped, batch.size, self.layout.rows)


def _rows(value: Any) -> int | None:
    return value.shape[0] if getattr(value, "ndim", 0) else None


def open_folder(path: Path, model: Model, layout: SampleLayout) -> TestDataFolders:
    """Returns the test_data_set folder `path`, or those inside it, ordered by number.

    Raises InputError if there is none.
    """
    paths = tuple(feedset.test_data_sets(path))
    if not paths:
        raise InputError(
            f"{path}: holds neither input_0.pb nor a test_data_set folder",
            "Name a folder as in ONNX's model zoo, or an .npz file.",
        )
    if not layout.rows:
        return TestDataFolders(model, paths, layout, None)
    names, sizes = [value.name for value in model.inputs], []
    for each in paths:  # from the first bytes of an input with a row for each sample
        rows = _leading_size(each / f"input_{min(map(names.index, layout.rows))}.pb")
        if rows is None:
            feeds = feedset.read_feeds(model, each)
            rows = max((_rows(v) or 0 for n, v in feeds.items() if n in layout.rows), default=0)
        sizes.append(rows)
    return TestDataFolders(model, paths, layout, tuple(sizes))


def _leading_size(file: Path) -> int | None:
    """Returns the first size of a tensor in a file; None where its first bytes do not say it.

    Field 1 of TensorProto, `dims`, is written first: its tag, then the size in groups of 7 bits.
    """
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        tag, *groups = stream.read(_SIZE_BYTES) or b"\0"
    last = next((place for place, group in enumerate(groups) if group < _MORE), None)
    if tag != _DIMS or last is None:
        return None
    return sum((group % _MORE) << (7 * place) for place, group in enumerate(groups[: last + 1]))
