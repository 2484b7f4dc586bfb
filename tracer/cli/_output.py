"""Where results go: checked before the work begins, written whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracer.errors import InputError, UsageError

if TYPE_CHECKING:
    from analyzers.views import ViewOptions
    from tracer.trace import Trace

STDOUT = "-"
_NEEDS = {"parquet": ("pyarrow", "parquet"), "png": ("matplotlib", "plots")}
_NEEDS["svg"] = _NEEDS["png"]
_BINARY = frozenset({"trace", "parquet", "png"})


@dataclass(frozen=True, slots=True)
class Target:
    """A format and the file it goes to; None is standard output."""

    format: str
    path: Path | None


def targets(
    outputs: Sequence[str], as_json: bool = False, as_csv: bool = False, force: bool = False
) -> tuple[Target, ...]:
    """Every target, checked: known format, its package installed, the file free and writable.

    Raises UsageError or InputError before any work is done.
    """
    wanted = [*outputs, *(["json:-"] if as_json else []), *(["csv:-"] if as_csv else [])]
    found = tuple(_parse(output) for output in wanted)
    if sum(target.path is None for target in found) > 1:
        raise UsageError("two outputs for stdout", "Write one of them to a file with -o.")
    for target in found:
        _check(target, force)
    return found


def emit(trace: Trace, found: Sequence[Target], options: ViewOptions) -> None:
    """Write every target, then the terminal's table unless stdout was one of them."""
    from analyzers.views import renderer

    rendered = [(target, renderer(target.format)(trace, options)) for target in found]
    for target, data in rendered:
        if target.path is None:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            write_atomically(target.path, data)
            click.echo(f"wrote {target.path}", err=True)
    if all(target.path is not None for target in found):
        show(trace, options)


def show(trace: Trace, options: ViewOptions) -> None:
    """The table on the terminal."""
    from rich.console import Console

    from analyzers.views import terminal

    terminal.render(trace, options, Console(highlight=False))


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` so that `path` holds all of it or what it held before."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """mkstemp makes files private; a result is as readable as any file of the user's."""
    current = os.umask(0)
    os.umask(current)
    return current


def _parse(output: str) -> Target:
    from analyzers.views import formats

    name, colon, rest = output.partition(":")
    if colon and name in formats():
        return Target(name, None if rest == STDOUT else Path(rest))
    if output == STDOUT:
        return Target("json", None)
    extension = Path(output).suffix.removeprefix(".")
    if extension not in formats():
        raise UsageError(
            f"{output}: the extension names no format",
            f"The formats are {', '.join(formats())}; FORMAT:FILE sets one for any name.",
        )
    return Target(extension, Path(output))


def _check(target: Target, force: bool) -> None:
    import importlib.util

    package, extra = _NEEDS.get(target.format, (None, None))
    if package is not None and importlib.util.find_spec(package) is None:
        raise UsageError(
            f"{target.format} needs {package}",
            f"Install it with: pip install 'tracer-onnx[{extra}]'.",
        )
    path = target.path
    if path is None:
        if target.format in _BINARY and sys.stdout.isatty():
            raise UsageError(f"{target.format} is not text", "Redirect it, or name a file with -o.")
        return
    if path.is_dir():
        raise InputError(f"{path}: is a folder", "Name a file.")
    if path.exists() and not force:
        raise InputError(f"{path}: exists", "Add --force to overwrite it.")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist", "Make it first.")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: the folder {path.parent} cannot be written to")
