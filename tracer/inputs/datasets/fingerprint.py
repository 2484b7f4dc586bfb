"""A hash of a data set's samples, independent of how they are stored."""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from tracer.inputs.datasets.batch import Batch


def fingerprint(pieces: Iterable[Batch], rows: frozenset[str]) -> str:
    """Returns the SHA-256, in hexadecimal, of all samples in order.

    Each input, expected output and the labels has its own hash over element type, shape and bytes
    (per row for inputs in `rows`); the result hashes all names and hashes.
    """
    hashes: dict[str, Any] = {}
    for piece in pieces:
        for name, value in _tensors(piece):
            digest = hashes.setdefault(name, hashlib.sha256())
            shared = name in {f"input {own}" for own in piece.inputs if own not in rows}
            for each in value if rows and not shared else [value]:
                _add(digest, each)
    total = hashlib.sha256()
    for name in sorted(hashes):
        total.update(f"{name}\0{hashes[name].hexdigest()}\0".encode())
    return total.hexdigest()


def _tensors(piece: Batch) -> Iterable[tuple[str, Any]]:
    yield from ((f"input {name}", value) for name, value in piece.inputs.items())
    yield from ((f"output {name}", value) for name, value in (piece.outputs or {}).items())
    if piece.labels is not None:
        yield "labels", piece.labels


def _add(digest: Any, value: Any) -> None:
    if value is None or isinstance(value, list):
        digest.update(b"absent" if value is None else f"sequence of {len(value)}".encode())
        for each in value or ():
            _add(digest, each)
        return
    array = np.asarray(value)
    digest.update(f"{array.dtype}{array.shape}".encode())
    if array.dtype.hasobject:  # strings
        for text in array.ravel():
            digest.update(f"{len(str(text))}:{text}".encode())
    else:
        digest.update(np.ascontiguousarray(array).data)
