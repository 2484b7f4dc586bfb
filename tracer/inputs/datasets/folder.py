"""Reads samples from test_data_set folders of protobufs, ONNX's format for test data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracer.errors import InputError
from tracer.graph.model import Model
from tracer.inputs import dims as dimensions
from tracer.inputs import files
from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.layout import SampleLayout


@dataclass(frozen=True, slots=True)
class TestDataFolders:
    """The test_data_set folders `paths`, each with `input_K.pb` and optional `output_K.pb`."""

    model: Model
    paths: tuple[Path, ...]
    layout: SampleLayout

    @property
    def samples(self) -> int | None:
        """Unknown before reading, since a folder may hold several samples."""
        return None

    def pieces(self, rows: int) -> Iterator[Batch]:
        """Yields one batch per folder, whatever `rows`."""
        for path in self.paths:
            feeds = files.read(self.model, path)
            outputs = files.read_outputs(self.model, path)
            yield Batch(feeds, self._size(path, feeds, outputs), None, outputs or None)

    def _size(self, path: Path, feeds: Mapping[str, Any], outputs: Mapping[str, Any]) -> int:
        if not self.layout.rows:
            shapes = {name: v.shape for name, v in feeds.items() if hasattr(v, "shape")}
            return dimensions.batch_of(self.model, shapes) or 1
        tensors = {**{n: v for n, v in feeds.items() if n in self.layout.rows}, **outputs}
        rows = {name: _rows(value) for name, value in tensors.items()}
        counts = set(rows.values())
        if len(counts) != 1 or None in counts:
            text = ", ".join(f"'{name}' has {count or 'no'}" for name, count in rows.items())
            raise InputError(f"{path}: a sample is a row of each tensor, but {text}")
        return counts.pop() or 0


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
    return TestDataFolders(model, paths, layout)
