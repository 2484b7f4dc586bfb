"""Where results go: checked before the work begins, written whole or not at all."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracer.errors import InputError, UsageError
from tracer.support.files import check_writable, write_atomically

if TYPE_CHECKING:
    from rich.console import Console

    from analyzers.options import ViewOptions
    from analyzers.views.format import Format
    from tracer.records.result import Result

STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Target:
    """A format and the file it goes to; None is standard output."""

    format: str
    path: Path | None


def targets(
    outputs: Sequence[str],
    as_json: bool = False,
    as_csv: bool = False,
    force: bool = False,
    known: Mapping[str, Format] | None = None,
) -> tuple[Target, ...]:
    """Every target, checked: the format exists, its package is installed, the file is writable.

    `known` are the formats of the result [default: formats of a Trace]. Raises UsageError or
    InputError before any work is done.
    """
    if known is None:
        from analyzers.views import formats
        from tracer.records.trace import Trace

        known = formats(Trace)
    names = [*outputs, *(["json:-"] if as_json else []), *(["csv:-"] if as_csv else [])]
    chosen = tuple(parse(output, known) for output in names)
    _refuse_twice(chosen)
    if sys.stdout is None and (not chosen or any(target.path is None for target in chosen)):
        raise InputError("stdout is closed", "Open it, or write to a file with -o.")
    for target in chosen:
        _check(target, known[target.format], force)
    return chosen


def write_stdout(data: bytes) -> None:
    """Write all of `data` to standard output. Raises InputError where that cannot be written.

    A reader that goes away, as `head` does, has had what it wanted: that is no error.
    """
    sys.stdout.flush()
    try:
        # Past Python's buffer: what it could not write it would try again, and fail, on exit.
        with open(sys.stdout.fileno(), "wb", buffering=0, closefd=False) as stream:
            rest = memoryview(data)
            while rest:
                rest = rest[stream.write(rest) :]
    except BrokenPipeError:
        return
    except OSError as error:
        raise InputError(f"stdout: cannot be written ({error.strerror or error})") from error


def write_screen(render: Callable[[Console], None]) -> None:
    """Write what `render` prints to standard output, as wide and as coloured as it can be."""
    from rich.console import Console

    if sys.stdout is None:  # closed by the user, who has named a file
        return
    page = io.BytesIO()
    stream = io.TextIOWrapper(page, sys.stdout.encoding, "replace")
    render(Console(file=stream, force_terminal=sys.stdout.isatty() or None, highlight=False))
    stream.flush()
    write_stdout(page.getvalue())


@dataclass(frozen=True, slots=True)
class Output:
    """Where a command's result goes, and what of it to show."""

    targets: tuple[Target, ...]
    options: ViewOptions

    def emit(self, result: Result) -> None:
        """Write every target, then print the page unless stdout was one of the targets."""
        from analyzers.views import render, show

        rendered = [(t.path, render(result, t.format, self.options)) for t in self.targets]
        for path, data in rendered:
            if path is not None:
                write_atomically(path, data)
                click.echo(f"wrote {path}", err=True)
        for path, data in rendered:  # files first: a full pipe must not cost them
            if path is None:
                write_stdout(data)
        if all(path is not None for path, _ in rendered):
            write_screen(lambda console: show(result, console, self.options))


def _refuse_twice(found: Sequence[Target]) -> None:
    seen: set[Path | None] = set()
    for target in found:
        place = target.path.absolute() if target.path else None
        if place in seen and place is None:
            raise UsageError("two outputs for stdout", "Write one of them to a file with -o.")
        if place in seen:
            raise UsageError(f"two outputs for {target.path}", "Give each a file of its own.")
        seen.add(place)


def parse(output: str, known: Mapping[str, Format]) -> Target:
    """The target that FILE.png or png:FILE names. Raises UsageError for an unknown format."""
    name, colon, rest = output.partition(":")
    if colon and name in known:
        return Target(name, None if rest == STDOUT else Path(rest))
    if output == STDOUT:
        return Target("json", None)
    from analyzers.views import extension_of

    extension = extension_of(Path(output), known)
    if extension is None:
        raise UsageError(
            f"{output}: the extension names no format",
            f"The formats are {', '.join(known)}; FORMAT:FILE sets one for any name.",
        )
    return Target(extension, Path(output))


def _check(target: Target, form: Format, force: bool) -> None:
    form.check()
    if target.path is not None:
        check_writable(target.path, force)
    elif form.is_binary and sys.stdout.isatty():
        raise UsageError(f"{target.format} is not text", "Redirect it, or name a file with -o.")
