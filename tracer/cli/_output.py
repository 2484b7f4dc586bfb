"""Where results go: checked before the work begins, written completely or not at all."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.analyzers.options import ViewOptions
from tracer.cli import _browser
from tracer.cli._messages import tell, tell_written
from tracer.containment import activity, signals
from tracer.errors import InputError, TracerError, UsageError
from tracer.support.files import check_writable, write_atomically

if TYPE_CHECKING:
    from rich.console import Console

    from tracer.analyzers.views.file_formats import Format
    from tracer.records.result import Result

STDOUT = "-"
_EVENTS, _BOARD = "tfevents", "tb"
"""The format of TensorBoard, and the name or the suffix of a folder for it."""

REPORT = "html"


@dataclass(frozen=True, slots=True)
class Target:
    """The extension of a format, and the file to write; None is standard output.

    A file in a `folder` that the user named has a name of tracer's choice, and the folder is made.
    Of `every` format that fits, those that do not are left out.
    """

    extension: str
    path: Path | None
    folder: Path | None = None
    every: bool = False


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
        targets = self._targets(formats)
        _refuse_duplicates(targets)
        reports = [target for target in targets if target.extension == REPORT]
        if self.opened and not any(target.path for target in reports):
            raise UsageError("--open needs a report", "Write one with -o report.html.")
        if sys.stdout is None and (not targets or None in [target.path for target in targets]):
            raise InputError("stdout is closed", "Open it, or write to a file with -o.")
        for target in targets:
            if not target.every:
                formats[target.extension].check()
            if target.folder is not None:
                _check_folder(target, self.force)
            elif target.path is not None:
                check_writable(target.path, self.force)
            elif formats[target.extension].is_binary and sys.stdout.isatty():
                raise UsageError(
                    f"{target.extension} is not text", "Redirect it, or name a file with -o."
                )

    def split(self, kind: type[Result], extension: str) -> tuple[list[Path | None], Output]:
        """Separates the files of one format. Raises UsageError for an unknown format."""
        formats = _formats(kind)
        single = [name for name in self.files if not _holds_every(name)]
        targets = [(name, parse(name, formats)) for name in single]
        own = [name for name, target in targets if target.extension == extension]
        paths = [target.path for _, target in targets if target.extension == extension]
        return paths, replace(self, files=tuple(n for n in self.files if n not in own))

    def with_file(self, name: str | None) -> Output:
        """Returns this with one more file; None names none."""
        return self if name is None else replace(self, files=(*self.files, name))

    def keep(self, result: Result, extension: str) -> None:
        """Writes `result`, which is incomplete, to the files of one format alone."""
        from tracer.analyzers import views

        for path in self.split(type(result), extension)[0]:
            if path is not None:
                write_atomically(path, views.render(result, extension, self._at(path)))
                activity.stand(str(path))

    def emit(self, result: Result) -> None:
        """Writes every file, then the terminal's page unless a file is stdout.

        What one file cannot hold, or a full disk, loses no other file and not the page: their error
        is raised at the end, the first of several.
        """
        failures = list[TracerError]()
        pairs = [
            (target, data)
            for target in self._targets(_formats(type(result)))
            if (data := self._rendered(result, target, failures)) is not None
        ]
        signals.lift_limit()
        for target, data in pairs:
            if target.path is not None:
                self._write(target, target.path, data, failures)
        for target, data in pairs:  # after the files: a closed pipe must not lose them
            if target.path is None:
                write_stdout(data)
        report = next((t.path for t, _ in pairs if t.path and t.extension == REPORT), None)
        if self.opened and report is not None and not failures:
            _browser.show(report)
        self.show(result)
        if failures:
            raise failures[0]

    def _write(self, target: Target, path: Path, data: bytes, failures: list[TracerError]) -> None:
        try:
            if target.folder is not None:
                target.folder.mkdir(exist_ok=True)
            write_atomically(path, data)
        except InputError as error:
            failures.append(error)
        else:
            tell_written(path)

    def _targets(self, formats: Mapping[str, Format]) -> list[Target]:
        """Returns all files to write; of a folder for every format, a file of each."""
        return [
            target
            for name in self.files
            for target in (_every(name, formats) if _holds_every(name) else [parse(name, formats)])
        ]

    def _rendered(
        self, result: Result, target: Target, failures: list[TracerError]
    ) -> bytes | None:
        """Returns the content of a file; None for one that cannot hold the result."""
        from tracer.analyzers import views

        try:
            return views.render(result, target.extension, self._at(target.path))
        except TracerError as error:
            if target.every:
                tell(f"left out .{target.extension}: {error.what}")
            else:
                failures.append(error)
            return None

    def _at(self, path: Path | None) -> ViewOptions:
        """Returns the options of a file at `path`."""
        return replace(self.options, folder=None if path is None else path.parent)

    def show(self, result: Result) -> None:
        """Writes the terminal's page, unless a file is stdout."""
        from tracer.analyzers import views

        formats = _formats(type(result))
        if all(target.path is not None for target in self._targets(formats)):
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
    from tracer.analyzers import views

    if _is_folder(name) and _EVENTS in known:
        return Target(_EVENTS, Path(name) / f"events.out.{_EVENTS}", Path(name))
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


def _is_folder(name: str) -> bool:
    return name.endswith(("/", os.sep)) and name.strip("./\\") != ""


def _holds_every(name: str) -> bool:
    """Whether a name is that of a folder for files of every format."""
    folder = Path(name)
    return _is_folder(name) and folder.name != _BOARD and folder.suffix != f".{_BOARD}"


def _every(name: str, formats: Mapping[str, Format]) -> list[Target]:
    """Returns a file of every format in a folder, with the name of the folder."""
    folder = Path(name)
    return [Target(each, folder / f"{folder.name}.{each}", folder, every=True) for each in formats]


def _check_folder(target: Target, force: bool) -> None:
    """Raises InputError where a folder cannot be made, or a file in it not written."""
    folder, path = target.folder, target.path
    assert folder is not None and path is not None
    if folder.is_dir():
        check_writable(path, force)
    elif folder.exists():
        raise InputError(f"{folder}: is a file, not a folder", "Choose another name.")
    else:
        check_writable(folder.parent / path.name, force=True)


def _formats(kind: type[Result]) -> Mapping[str, Format]:
    from tracer.analyzers import views

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

    from tracer.analyzers.views.terminal import WITHOUT_EDGE

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
