"""Where results go: checked before the work begins, written whole or not at all."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracer.errors import UsageError
from tracer.files import check_writable, write_atomically

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


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command's result goes, and what of it to show."""

    targets: tuple[Target, ...]
    options: ViewOptions

    def emit(self, trace: Trace) -> None:
        """Write every target, then the terminal's table unless stdout was one of them."""
        from analyzers.views import renderer

        rendered = [(t, renderer(t.format)(trace, self.options)) for t in self.targets]
        for target, data in rendered:
            if target.path is None:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            else:
                write_atomically(target.path, data)
                click.echo(f"wrote {target.path}", err=True)
        if all(target.path is not None for target in self.targets):
            self._show(trace)

    def _show(self, trace: Trace) -> None:
        from rich.console import Console

        from analyzers.views import terminal

        terminal.render(trace, self.options, Console(highlight=False))


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
    if target.path is not None:
        check_writable(target.path, force)
    elif target.format in _BINARY and sys.stdout.isatty():
        raise UsageError(f"{target.format} is not text", "Redirect it, or name a file with -o.")
