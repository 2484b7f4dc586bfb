"""Samples from folders of protobufs, as ONNX keeps its test data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracer.errors import InputError
from tracer.graph.model import Model
from tracer.inputs import dims as dimensions
from tracer.inputs import files
from tracer.inputs.datasets.batch import Batch
from tracer.inputs.datasets.layout import Layout


@dataclass(frozen=True, slots=True)
class Folder:
    """The test_data_set folders in `paths`: `input_K.pb`, and perhaps `output_K.pb`, in each."""

    model: Model
    paths: tuple[Path, ...]
    layout: Layout

    @property
    def samples(self) -> int | None:
        """Not known before they are read, since a folder may hold several."""
        return None

    def pieces(self, rows: int) -> Iterator[Batch]:
        """One piece a folder, whatever `rows`."""
        for path in self.paths:
            feeds = files.read(self.model, path)
            outputs = files.read_outputs(self.model, path)
            yield Batch(feeds, self._size(path, feeds, outputs), None, outputs or None)

    def _size(self, path: Path, feeds: Mapping[str, Any], outputs: Mapping[str, Any]) -> int:
        if not self.layout.rows:
            shapes = {name: v.shape for name, v in feeds.items() if hasattr(v, "shape")}
            return dimensions.batch_of(self.model, shapes) or 1
        given = {**{n: v for n, v in feeds.items() if n in self.layout.rows}, **outputs}
        rows = {name: _rows(value) for name, value in given.items()}
        counts = set(rows.values())
        if len(counts) != 1 or None in counts:
            told = ", ".join(f"'{name}' has {count or 'no'}" for name, count in rows.items())
            raise InputError(f"{path}: a sample is a row of each tensor, but {told}")
        return counts.pop() or 0


def _rows(value: Any) -> int | None:
    return value.shape[0] if getattr(value, "ndim", 0) else None


def open_folder(path: Path, model: Model, layout: Layout) -> Folder:
    """A test_data_set folder, or the folders of that kind inside `path`, in their numbers' order.

    Raises InputError where there is none.
    """
    found = [path] if list(path.glob("input_*.pb")) else list(path.glob("test_data_set_*"))
    if not found:
        raise InputError(
            f"{path}: holds neither input_0.pb nor a test_data_set folder",
            "Give a folder as ONNX's model zoo has them, or an .npz file.",
        )
    return Folder(model, tuple(sorted(found, key=_as_counted)), layout)


def _as_counted(path: Path) -> tuple[tuple[int, str], ...]:
    """test_data_set_10 comes after test_data_set_9."""
    parts = re.split(r"([0-9]+)", path.name)
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in parts)
