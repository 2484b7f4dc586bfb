"""The fence of a command: what it may write is what it was asked for, and what is temporary."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tracer.containment import activity, fence
from tracer.support.files import cache_folder

NO_FENCE = "TRACER_NO_FENCE"
"""Environment variable; where it is set, there is no fence."""

_OUTPUTS = ("outputs", "output", "exports", "plan", "certificate", "tensors")
"""Parameters with files that commands write."""
_CODE = (".py", ".so", ".pt2")
"""Endings of what is run, and may do anything."""
_LEVELS = ("none", "basic", "extended", "all")
_OPENING = ("scheduler", "opened", "register", "trust", "provider_options")
"""Parameters of commands that connect, start a browser, or load code."""
_OF_CPU = ("", "interpreter", "ort", *(f"ort:{level}" for level in _LEVELS))
"""What runs a side of a comparison without an accelerator or a framework."""
_DEVICES = ("null", "zero", "full", "tty", "shm", "nvidia*", "dri", "kfd", "accel", "dxg")
_DRAWN = (".png", ".svg", "/")
"""Ends of outputs that matplotlib draws."""


def build(parameters: Mapping[str, Any]) -> None:
    """Builds the fence for a command with these parameters, in a child process.

    A command that runs a user's code has none, nor one on an accelerator, whose libraries write
    caches of their own.
    """
    if activity.page() is None or os.environ.get(NO_FENCE) or _is_open(parameters):
        return
    fence.build(_writable(parameters))


def _is_open(parameters: Mapping[str, Any]) -> bool:
    values = [text for value in parameters.values() for text in _texts(value)]
    names_code = any(text.partition(":")[0].endswith(_CODE) or ".py:" in text for text in values)
    elsewhere = parameters.get("provider") not in (None, "cpu")
    sides = (text.partition("@")[2] for text in _texts(parameters.get("sides")))
    elsewhere |= any(side not in _OF_CPU for side in sides)
    return names_code or elsewhere or any(parameters.get(name) for name in _OPENING)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str | Path):
        yield str(value)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _texts(each)


def _writable(parameters: Mapping[str, Any]) -> Iterator[Path]:
    written = [text for name in _OUTPUTS for text in _texts(parameters.get(name))]
    for text in written:
        for name in {text, text.partition(":")[2] or text}:  # svg:FILE, or a colon in a name
            path = Path(name)
            yield path.parent
            yield path.resolve().parent
    yield Path(tempfile.gettempdir())
    named = os.environ.get("NUMBA_CACHE_DIR")  # see `kernels.machine_code`
    compiled = Path(named) if named else Path(__file__).parents[1] / "__pycache__" / "compiled"
    yield from filter(_is_made, (cache_folder(), compiled))
    if any(text.endswith(_DRAWN) for text in written):
        yield from filter(_is_made, _of_matplotlib())
    for name in _DEVICES:
        yield from Path("/dev").glob(name)


def _of_matplotlib() -> Iterator[Path]:
    if "MPLCONFIGDIR" in os.environ:
        yield Path(os.environ["MPLCONFIGDIR"])
        return
    with contextlib.suppress(RuntimeError):  # no home
        for variable, folder in (("XDG_CACHE_HOME", ".cache"), ("XDG_CONFIG_HOME", ".config")):
            base = Path(os.environ.get(variable) or Path.home() / folder)
            yield base / "matplotlib"


def _is_made(folder: Path) -> bool:
    """Whether a folder of a cache is there; makes it where that is possible."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder.is_dir() and sys.platform == "linux"
