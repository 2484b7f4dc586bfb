"""Reads samples from test_data_set folders of protobufs, ONNX's format for test data."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracer.errors import InputError
from tracer.graph.model import Model
from tracer.inputs import files
from tracer.inputs.datasets.batch import Batch, SampleLayout, find_start
from tracer.inputs.sizes import batch_of

_DIMS = 0x08
"""The tag of field 1 as a number, in the wire format of protobuf."""
_MORE = 0x80
"""Bit of a byte that another byte of the same number follows."""
_SIZE_BYTES = 11
"""A tag and the 10 bytes that a number has at most."""


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
        begun, skipped = find_start(first, self.sizes or ()) if first else (0, 0)
        for path in self.paths[begun:]:
            feeds = files.read_feeds(self.model, path)
            outputs = files.read_outputs(self.model, path)
            if not self.layout.rows:
                shapes = {name: v.shape for name, v in feeds.items() if hasattr(v, "shape")}
                size = batch_of(self.model, shapes) or 1
            else:
                tensors = {**{n: v for n, v in feeds.items() if n in self.layout.rows}, **outputs}
                counts = {name: _rows(value) for name, value in tensors.items()}
                if len(set(counts.values())) != 1 or None in counts.values():
                    text = ", ".join(f"'{n}' has {count or 'no'}" for n, count in counts.items())
                    raise InputError(f"{path}: a sample is a row of each tensor, but {text}")
                size = next(iter(counts.values())) or 0
            batch = Batch(feeds, size, None, outputs or None)
            yield batch.part(skipped, batch.size, self.layout.rows)
            skipped = 0


def _rows(value: Any) -> int | None:
    return value.shape[0] if getattr(value, "ndim", 0) else None


def open_folder(path: Path, model: Model, layout: SampleLayout) -> TestDataFolders:
    """Returns the test_data_set folder `path`, or those inside it, ordered by number.

    Raises InputError if there is none.
    """
    paths = tuple(files.test_data_sets(path))
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
            feeds = files.read_feeds(model, each)
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
