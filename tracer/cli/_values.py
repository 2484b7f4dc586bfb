"""Write the outputs of a model: an .npz file, or test_data_set folders in ONNX's own format."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.cli._messages import tell_written
from tracer.errors import InputError, UsageError
from tracer.support.files import check_place, check_writable, errors_naming, write_atomically
from tracer.support.temporary import TemporaryFolder

if TYPE_CHECKING:
    import onnx

    from tracer.graph.model import Model
    from tracer.inputs.feedset import FeedSet

_NPZ = ".npz"


def tensor_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Takes the outputs for tensors out of `-o`; the command takes their path as `tensors`.

    Raises UsageError or InputError before any work for a path that cannot be written.
    """

    @functools.wraps(command)
    def split(*, outputs: tuple[str, ...], force: bool, **arguments: Any) -> Any:
        paths = [Path(output) for output in outputs if _holds_tensors(output)]
        if len(paths) > 1:
            raise UsageError(
                f"{len(paths)} places for the model's outputs", "Name one .npz file, or one folder."
            )
        for path in paths:
            _check(path, force)
        tables = tuple(output for output in outputs if not _holds_tensors(output))
        tensors = paths[0] if paths else None
        return command(tensors=tensors, outputs=tables, force=force, **arguments)

    return split


def _holds_tensors(output: str) -> bool:
    return Path(output).suffix in ("", _NPZ) and output != "-" and ":" not in Path(output).name


class Writer:
    """Writes the outputs of all batches, joined in one .npz or each as a test_data_set.

    One batch fills the folder itself; several fill test_data_set folders in it.
    """

    _model: Model

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        self._spilled: TemporaryFolder | None = None
        self._held: list[tuple[FeedSet, Mapping[str, Any]]] = []

    def start(self, model: Model) -> None:
        """Takes the model of the run."""
        self._model = model

    def receive(self, feedset: FeedSet, outputs: Sequence[Any]) -> None:
        """Adds the outputs of the model, in their order, for one batch."""
        names = (value.name for value in self._model.graph.output)
        self._held.append((feedset, dict(zip(names, outputs, strict=True))))
        self._count += 1
        if self._path.suffix != _NPZ and self._count > 1:
            self._spill()

    def finish(self) -> None:
        """Writes the rest. Raises InputError for outputs that the file cannot hold."""
        if self._path.suffix == _NPZ:
            write_atomically(self._path, _npz(self._path, self._all_batches()))
        else:
            if self._count == 1:
                self._folder(self._place(), *self._held[0])
            _move(self._place(), self._path)
        tell_written(self._path)

    def _place(self) -> Path:
        """Returns a folder beside the one that is asked for, which gets its name at the end."""
        if self._spilled is None:
            self._spilled = TemporaryFolder(self._path.resolve().parent)
        made = self._spilled.path / "made"  # with the permissions of any new folder
        made.mkdir(exist_ok=True)
        return made

    def _spill(self) -> None:
        """Writes the batches in memory, so that memory stays flat."""
        for index, held in enumerate(self._held, self._count - len(self._held)):
            self._folder(self._place() / f"test_data_set_{index}", *held)
        self._held.clear()

    def _all_batches(self) -> Mapping[str, Any]:
        """Returns the outputs of all batches, joined along the first axis."""
        import numpy as np

        if self._count == 1:
            return self._held[0][1]
        values = [values for _, values in self._held]
        try:
            return {name: np.concatenate([each[name] for each in values]) for name in values[0]}
        except ValueError as error:
            raise InputError(
                f"{self._path}: outputs of {self._count} batches cannot be joined ({error})",
                "Write a folder, with a test_data_set for each batch.",
            ) from error

    def _folder(self, path: Path, feedset: FeedSet, values: Mapping[str, Any]) -> None:
        path.mkdir(exist_ok=True)
        for index, value in enumerate(self._model.inputs):
            if value.name in feedset.feeds:
                data = _proto(feedset.feeds[value.name], value)
                write_atomically(path / f"input_{index}.pb", data)
        for index, value in enumerate(self._model.graph.output):
            write_atomically(path / f"output_{index}.pb", _proto(values[value.name], value))


def _move(made: Path, target: Path) -> None:
    """Moves a folder to its place; files in a folder that is there are replaced one by one."""
    with errors_naming(target):
        if not target.exists() or not any(target.iterdir()):
            made.replace(target)
            return
        for file in sorted(made.rglob("*.pb")):
            place = target / file.relative_to(made)
            place.parent.mkdir(exist_ok=True)
            file.replace(place)


def _npz(path: Path, values: Mapping[str, Any]) -> bytes:
    import numpy as np

    for name, value in values.items():
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            raise InputError(
                f"{path}: output '{name}' is not a tensor of numbers, as an .npz needs",
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
    if path.suffix == _NPZ:
        check_writable(path, force)
    elif path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file", "Name a folder, or a file that ends in .npz.")
    elif path.is_dir() and any(path.iterdir()) and not force:
        raise InputError(f"{path}: the folder is not empty", "Name another, or give --force.")
    elif not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist", "Make it first.")
    else:
        check_place(path / "input_0.pb" if path.is_dir() else path)
