"""Tells whether the weights beside a model are the same in another process, or on another machine.

A model that is sent elsewhere has its graph with it, and reads weights in other files there.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tracer.errors import InputError
from tracer.graph import data_file
from tracer.graph.model import Model


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """The SHA-256 of each file beside a model that has weights of it, by its place."""

    hashes: Mapping[str, str]

    @classmethod
    def of(cls, model: Model) -> "WeightFiles":
        """Returns the files of `model` as they are here. Raises InputError for a missing one."""
        if model.path is None:
            return cls({})
        places = sorted(set(data_file.locations(model.proto)))
        return cls({place: _hash(model, model.path.parent / place) for place in places})

    def check(self, model: Model) -> None:
        """Raises InputError where `model` has other weights here, or lacks some."""
        for place, other in WeightFiles.of(model).hashes.items():
            if self.hashes.get(place) != other:
                raise InputError(
                    f"{model.name}: the weights in {place} are not those of the process that "
                    "shares its work out",
                    "Copy the model together with its files of weights.",
                )


def findable(model: Model) -> Model:
    """Returns `model` with the whole path of its file, which a process in any folder finds."""
    if model.path is None:
        return model
    return replace(model, path=model.path.absolute(), subject=model.name)


def _hash(model: Model, file: Path) -> str:
    try:
        status = file.stat()
        return _hash_of(file.resolve(), status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise InputError(
            f"{model.name}: its weights in {file} cannot be read ({error.strerror})",
            "Copy the model together with its files of weights.",
        ) from error


@cache
def _hash_of(file: Path, size: int, modified_ns: int) -> str:
    """The hash of a file; it is read again when its size or its time has changed."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
