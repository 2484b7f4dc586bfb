"""Where results go: checked before the work begins, written completely or not at all."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.options import ViewOptions
from tracer.cli import _browser
from tracer.cli._messages import tell
from tracer.errors import InputError, UsageError
from tracer.support.files import check_writable, write_atomically

if TYPE_CHECKING:
    from rich.console import Console

    from analyzers.views.format import Format
    from tracer.records.result import Result

STDOUT = "-"
REPORT = "html"


@dataclass(frozen=True, slots=True)
class Target:
    """The extension of a format, and the file to write; None is standard output."""

    extension: str
    path: Path | None


@dataclass(frozen=True, slots=True)
class Output:
    """What to show of a result, and the files to write, as on the command line.

    `opened`: a browser opens the report that is written.
    """

    options: ViewOptions
    files: tuple[str, ...] = ()
    force: bool = False
    opened: bool = False

    def check(self, kind: type[Result]) -> None:
        """Checks, before any work, that a result of class `kind` can be written to every file.

        Raises UsageError for an unknown format, a missing package, or two results for one file;
        InputError for a file that exists or cannot be written.
        """
        formats = _formats(kind)
        targets = [parse(name, formats) for name in self.files]
        _refuse_duplicates(targets)
        self._refuse_misplaced(targets)
        if sys.stdout is None and (not targets or None in [target.path for target in targets]):
            raise InputError("stdout is closed", "Open it, or write to a file with -o.")
        for target in targets:
            formats[target.extension].check()
            if target.path is not None:
                check_writable(target.path, self.force)
            elif formats[target.extension].is_binary and sys.stdout.isatty():
                raise UsageError(
                    f"{target.extension} is not text", "Redirect it, or name a file with -o."
                )

    def _refuse_misplaced(self, targets: Sequence[Target]) -> None:
        """Raises UsageError where an option is about a report, and none is written."""
        reports = [target for target in targets if target.extension == REPORT]
        if self.options.redact and not reports:
            raise UsageError("--redact is about a report", "Write one with -o report.html.")
        if self.opened and not any(target.path for target in reports):
            raise UsageError("--open needs a report", "Write one with -o report.html.")

    def split(self, kind: type[Result], extension: str) -> tuple[list[Path | None], Output]:
        """Separates the files of one format. Raises UsageError for an unknown format."""
        formats = _formats(kind)
        targets = [(name, parse(name, formats)) for name in self.files]
        rest = tuple(name for name, target in targets if target.extension != extension)
        paths = [target.path for _, target in targets if target.extension == extension]
        return paths, replace(self, files=rest)

    def keep(self, result: Result, extension: str) -> None:
        """Writes `result`, which is incomplete, to the files of one format alone."""
        from analyzers import views

        for path in self.split(type(result), extension)[0]:
            if path is not None:
                write_atomically(path, views.render(result, extension, self._at(path)))

    def emit(self, result: Result) -> None:
        """Writes every file, then the terminal's page unless a file is stdout."""
        from analyzers import views

        formats = _formats(type(result))
        targets = [parse(name, formats) for name in self.files]
        rendered = [views.render(result, t.extension, self._at(t.path)) for t in targets]
        pairs = list(zip(targets, rendered, strict=True))
        failures = []
        for target, data in pairs:
            if target.path is not None:
                try:
                    write_atomically(target.path, data)
                except (
                    InputError
                ) as error:  # a full disk must not lose the other files, or the page
                    failures.append(error)
                else:
                    tell(f"wrote {target.path}")
        for target, data in pairs:  # after the files: a closed pipe must not lose them
            if target.path is None:
                write_stdout(data)
        report = next((t.path for t in targets if t.path and t.extension == REPORT), None)
        if self.opened and report is not None and not failures:
            _browser.show(report)
        self.show(result)
        if failures:
            raise failures[0]

    def _at(self, path: Path | None) -> ViewOptions:
        """Returns the options of a file at `path`."""
        return replace(self.options, folder=None if path is None else path.parent)

    def show(self, result: Result) -> None:
        """Writes the terminal's page, unless a file is stdout."""
        from analyzers import views

        formats = _formats(type(result))
        if all(parse(name, formats).path is not None for name in self.files):
            write_screen(lambda console: views.show(result, console, self.options))


def write_stdout(data: bytes) -> None:
    """Writes all of `data` to standard output. Raises InputError where that is impossible.

    A reader that stops reading, such as `head`, is not an error.
    """
    sys.stdout.flush()
    try:
        descriptor = sys.stdout.fileno()
    except io.UnsupportedOperation:  # in memory, such as in a test
        sys.stdout.write(data.decode())
        return
    try:
        # Unbuffered: Python would write the rest of its buffer again on exit, and fail again.
        with open(descriptor, "wb", buffering=0, closefd=False) as stream:
            rest = memoryview(data)
            while rest:
                rest = rest[stream.write(rest) :]
    except BrokenPipeError:
        return
    except OSError as error:
        raise InputError(f"stdout: cannot be written ({error.strerror or error})") from error


def parse(name: str, known: Mapping[str, Format]) -> Target:
    """Returns the target that FILE.png or png:FILE names. Raises UsageError if there is none."""
    from analyzers import views

    extension, colon, rest = name.partition(":")
    if colon and extension in known:
        return Target(extension, None if rest == STDOUT else Path(rest))
    if name == STDOUT:
        return Target("json", None)
    longest = views.extension_of(Path(name), known)
    if longest is None:
        raise UsageError(
            f"{name}: the extension names no format",
            f"The formats are {', '.join(known)}; FORMAT:FILE sets one for any name.",
        )
    return Target(longest, Path(name))


def _formats(kind: type[Result]) -> Mapping[str, Format]:
    from analyzers import views

    return views.formats(kind)


def _refuse_duplicates(targets: Sequence[Target]) -> None:
    paths = [target.path and target.path.absolute() for target in targets]
    for index, path in enumerate(paths):
        if path not in paths[:index]:
            continue
        if path is None:
            raise UsageError("two outputs for stdout", "Write one of them to a file with -o.")
        raise UsageError(f"two outputs for {targets[index].path}", "Give each a file of its own.")


def write_screen(show: Callable[[Console], None]) -> None:
    """Writes what `show` prints to standard output, in its width and colours.

    A pipe or a file has no width, unless the variable COLUMNS sets one.
    """
    from rich.console import Console

    from analyzers.views.terminal import WITHOUT_EDGE

    if sys.stdout is None:  # closed by the user, who named a file
        return
    page = io.BytesIO()
    stream = io.TextIOWrapper(page, sys.stdout.encoding, "replace")
    is_terminal = sys.stdout.isatty()
    columns = os.environ.get("COLUMNS", "")
    is_set = columns.isdecimal() and int(columns) > 0
    width = int(columns) if is_set else None if is_terminal else WITHOUT_EDGE
    show(Console(file=stream, force_terminal=is_terminal or None, highlight=False, width=width))
    stream.flush()
    write_stdout(page.getvalue())
