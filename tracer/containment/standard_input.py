"""Standard input as a file: it can be read once, and a second run after a crash reads it again."""

import os
import sys
from pathlib import Path
from typing import BinaryIO

from tracer.errors import InputError
from tracer.support.temporary import TemporaryFolder, unnamed_file

NAME = "-"
"""What users call standard input."""

_FILE = "stdin.onnx"
_CHUNK = 1 << 20
_MOST = 1 << 31
"""Bytes of the largest model that is one stream: protobuf holds no more."""

_kept: BinaryIO | None = None
_folders: list[TemporaryFolder] = []
"""The folders of files that were spooled: they go when the program ends."""


def keep() -> None:
    """Makes room for what this process, and others that are forked from it, read."""
    global _kept
    _kept = unnamed_file()


def spooled() -> Path:
    """Returns a file with all of standard input. Raises InputError for a terminal, or too much."""
    if _kept is None:
        keep()
    assert _kept is not None
    if os.fstat(_kept.fileno()).st_size == 0:
        _copy(sys.stdin.buffer, _kept)
        _kept.flush()
    _kept.seek(0)
    folder = TemporaryFolder()
    _folders.append(folder)
    path = folder.path / _FILE
    with path.open("wb") as file:
        _copy(_kept, file)
    return path


def without_folders(text: str) -> str:
    """Returns a message with the files of standard input called stdin.onnx, without a folder."""
    for folder in _folders:
        text = text.replace(str(folder.path / _FILE), _FILE)
    return text


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    if source.isatty():
        raise InputError("-: standard input is a terminal", "Pipe a model: … | tracer count -")
    copied = 0
    while chunk := source.read(_CHUNK):
        target.write(chunk)
        copied += len(chunk)
        if copied > _MOST:
            raise InputError("-: more than 2 GB, which no model in one stream has", "Name a file.")
