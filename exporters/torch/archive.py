"""Load a .pt2 file and refuse parts that could run code.

A .pt2 is a zip of JSON and tensors. torch.export.load unpickles some tensors and objects without
restriction and evaluates symbolic sizes as Python. All of this is refused unless the file is
trusted.
"""

import json
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils._sympy import functions as sizes

from tracer.errors import InputError, refusing
from tracer.exporters.torch.quiet import quiet

_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_TRUST = "Loading it runs code: give --trust if you know who wrote it."
_SIZE = re.compile(r"[\w\s'+*/%(),<>=-]*")
_WORD = re.compile(r"[A-Za-z_]\w*")
_SYMBOL = re.compile(r"[suz]\d+|int_oo|oo|True|False")
_SYMPY = ("Symbol", "Integer", "Rational", "Max", "Min", "Pow", "Add", "Mul")
_ASSUMED = ("positive", "nonnegative", "integer", "real", "finite")


def load_program(path: Path, *, trust: bool) -> torch.export.ExportedProgram:
    """Returns the exported program in `path`.

    Raises InputError if there is none, or if loading would run code without `trust`.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if not trust:
        _refuse_code(path)
    try:
        with quiet(), _weights_only(forced=not trust):
            return torch.export.load(path)
    except Exception as error:  # torch raises any kind of error for other files
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: not an exported program ({reason})") from error


def _refuse_code(path: Path) -> None:
    with (
        refusing(lambda why: InputError(f"{path}: not an exported program ({why})")),
        zipfile.ZipFile(path) as archive,
    ):
        for name in archive.namelist():
            if "custom_obj" in name or "opaque_obj" in name:
                raise InputError(f"{path}: holds a pickled object", _TRUST)
            if name.endswith(".json"):
                _check_json(path, json.loads(archive.read(name)))


def _check_json(path: Path, tree: Any) -> None:
    for key, value in _entries(tree):
        if key == "use_pickle" and value:
            raise InputError(f"{path}: holds a pickled tensor", _TRUST)
        if key == "expr_str" and not _is_size(str(value)):
            raise InputError(f"{path}: a size is not arithmetic: {str(value)[:60]!r}", _TRUST)


def _is_size(expression: str) -> bool:
    """Returns whether it has only symbols, numbers and torch's functions of sizes."""
    allowed = {*sizes.__all__, *_SYMPY, *_ASSUMED}
    words = _WORD.findall(expression)
    allowed_words = all(word in allowed or _SYMBOL.fullmatch(word) for word in words)
    return allowed_words and bool(_SIZE.fullmatch(expression))


def _entries(tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield key, value
            yield from _entries(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _entries(value)


@contextmanager
def _weights_only(*, forced: bool) -> Iterator[None]:
    """Makes torch.load refuse all but tensors, which torch.export does not request."""
    before = os.environ.get(_FORCE)
    if forced:
        os.environ[_FORCE] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_FORCE, None)
        else:
            os.environ[_FORCE] = before
