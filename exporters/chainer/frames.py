"""Find the running line of user code, and the function of Chainer that it called."""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

from tracer.exporters.chainer import compat
from tracer.graph.provenance import is_installed, location

compat.load()
_CHAINERS = tuple(Path(importlib.import_module(p).__path__[0]) for p in ("chainer", "onnx_chainer"))
_OURS = Path(__file__).parent
_APPLYING = ("apply", "hooked_apply")  # the second is onnx_chainer's


@dataclass(frozen=True, slots=True)
class Caller:
    """The innermost line of user code (None if a link of Chainer calls) and the called function.

    `applied` is whether a function of Chainer's graph was being applied to an array.
    """

    source: str | None
    called: str
    applied: bool

    def __str__(self) -> str:
        prefix = "the array given to " if self.applied else ""
        return f"{prefix}Chainer's '{self.called}'" + (f" at {self.source}" if self.source else "")


def caller(called: str) -> Caller:
    """Returns the caller; `called` is the name to use if no frame is Chainer's."""
    frame = sys._getframe(1)
    while frame is not None and _within(frame.f_code.co_filename, _OURS):
        frame = frame.f_back  # type: ignore[assignment]
    applied = False
    while frame is not None:
        file = frame.f_code.co_filename
        if _within(file, _OURS):
            break
        if _within(file, *_CHAINERS):
            called = frame.f_code.co_name
            applied = applied or called in _APPLYING
        elif not (
            file.startswith("<") or is_installed(Path(file).absolute())
        ):  # "<": code from a string
            return Caller(location(file, frame.f_lineno), called, applied)
        frame = frame.f_back  # type: ignore[assignment]
    return Caller(None, called, applied)


def _within(file: str, *folders: Path) -> bool:
    return any(Path(file).is_relative_to(folder) for folder in folders)
