"""Tensors as files: an .npz by name, or test_data_set folders as ONNX's own tests have them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracer.errors import InputError, UsageError
from tracer.support.files import check_writable, write_atomically

if TYPE_CHECKING:
    import onnx

    from tracer.graph.model import Model
    from tracer.inputs.feedset import FeedSet

_NPZ = ".npz"


def named(output: str) -> bool:
    """Whether an output of this name is for tensors, and not for a table or a picture."""
    return Path(output).suffix in ("", _NPZ) and output != "-" and ":" not in Path(output).name


def place(outputs: Sequence[str], force: bool) -> Path | None:
    """Where the tensors go. Raises UsageError or InputError, before any work."""
    if len(outputs) > 1:
        raise UsageError(
            f"{len(outputs)} places for the model's outputs", "Give one .npz file, or one folder."
        )
    for output in outputs:
        _check(Path(output), force)
    return Path(outputs[0]) if outputs else None


class Writer:
    """Writes the outputs of batches: into an .npz joined, into a folder each as a test of its own.

    One batch fills the folder itself, several fill test_data_set folders in it.
    """

    def __init__(self, path: Path, model: Model) -> None:
        self._path = path
        self._model = model
        self._count = 0
        self._held: list[tuple[FeedSet, Mapping[str, Any]]] = []

    def receive(self, feedset: FeedSet, outputs: Sequence[Any]) -> None:
        """Take in the outputs of the model, in their order, for one batch."""
        names = (value.name for value in self._model.graph.output)
        self._held.append((feedset, dict(zip(names, outputs, strict=True))))
        self._count += 1
        if self._path.suffix != _NPZ and self._count > 1:
            self._spill()

    def finish(self) -> None:
        """Write what is left, and say so. Raises InputError for outputs the file cannot hold."""
        if self._path.suffix == _NPZ:
            write_atomically(self._path, _npz(self._path, self._joined()))
        elif self._count == 1:
            self._folder(self._path, *self._held[0])
        click.echo(f"wrote {self._path}", err=True)

    def _spill(self) -> None:
        """Memory stays flat however many batches there are."""
        self._path.mkdir(exist_ok=True)
        for place, held in enumerate(self._held, self._count - len(self._held)):
            self._folder(self._path / f"test_data_set_{place}", *held)
        self._held.clear()

    def _joined(self) -> Mapping[str, Any]:
        """The outputs of all batches one after the other along the first axis."""
        import numpy as np

        if self._count == 1:
            return self._held[0][1]
        values = [values for _, values in self._held]
        try:
            return {name: np.concatenate([each[name] for each in values]) for name in values[0]}
        except ValueError as error:
            raise InputError(
                f"{self._path}: outputs of {self._count} batches cannot be joined ({error})",
                "Write a folder, which has each of them.",
            ) from error

    def _folder(self, path: Path, feedset: FeedSet, values: Mapping[str, Any]) -> None:
        path.mkdir(exist_ok=True)
        for place, value in enumerate(self._model.inputs):
            if value.name in feedset.feeds:
                data = _proto(feedset.feeds[value.name], value)
                write_atomically(path / f"input_{place}.pb", data)
        for place, value in enumerate(self._model.graph.output):
            write_atomically(path / f"output_{place}.pb", _proto(values[value.name], value))


def _npz(path: Path, values: Mapping[str, Any]) -> bytes:
    import numpy as np

    for name, value in values.items():
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            raise InputError(
                f"{path}: output '{name}' is no tensor of numbers, which is all an .npz holds",
                "Write a test_data_set folder.",
            )
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **values)
    return stream.getvalue()


def _proto(value: Any, declared: onnx.ValueInfoProto) -> bytes:
    import onnx

    helper = onnx.numpy_helper
    if declared.type.WhichOneof("value") == "optional_type":
        return bytes(helper.from_optional(value, declared.name).SerializeToString())
    if isinstance(value, list):
        return bytes(helper.from_list(value, declared.name).SerializeToString())
    return bytes(helper.from_array(value, declared.name).SerializeToString())


def _check(path: Path, force: bool) -> None:
    """Raise UsageError or InputError, before any work, for a place that cannot be written to."""
    if path.suffix == _NPZ:
        check_writable(path, force)
    elif path.suffix:
        raise UsageError(
            f"{path}: outputs are written as .npz, or into a folder",
            "Name a file that ends in .npz, or a folder such as test_data_set_0; tables of sums "
            "need --accumulator.",
        )
    elif path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file", "Name a folder, or a file that ends in .npz.")
    elif path.is_dir() and any(path.iterdir()) and not force:
        raise InputError(f"{path}: the folder is not empty", "Name another, or give --force.")
    elif not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist", "Make it first.")
