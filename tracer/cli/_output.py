"""Where results go: checked before the work begins, written completely or not at all.

A command in a child process has a fence besides: it can write nothing else.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.analyzers.options import ViewOptions
from tracer.cli._messages import is_quiet, tell, tell_written
from tracer.cli._next_step import show_next_step
from tracer.containment import activity, fence, signals
from tracer.errors import InputError, TracerError, UsageError
from tracer.executors.settings import OPTIMIZATIONS
from tracer.support.files import cache_folder, check_writable, untold, write_atomically
from tracer.text import suggest

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
        formats = self._formats(kind)
        targets = self._targets(formats)
        paths = [target.path and target.path.absolute() for target in targets]
        for index, path in enumerate(paths):
            if path is None and None in paths[:index]:
                raise UsageError("two outputs for stdout", "Write one of them to a file with -o.")
            if path in paths[:index]:
                where = targets[index].path
                raise UsageError(f"two outputs for {where}", "Give each a file of its own.")
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

    def split(
        self, kind: type[Result], extension: str, what: str, hint: str
    ) -> tuple[Path | None, Output]:
        """Separates the one file of a format, None where there is none.

        Raises UsageError, which says `what` and `hint`, for several and for standard output, and
        for an unknown format.
        """
        formats = self._formats(kind)
        single = {n: parse(n, formats) for n in self.files if not _holds_every(n)}
        own = [n for n in self.files if n in single and single[n].extension == extension]
        paths = [single[name].path for name in own]
        if len(paths) > 1 or None in paths:
            raise UsageError(what, hint)
        others = replace(self, files=tuple(name for name in self.files if name not in own))
        return next(iter(paths), None), others

    def keep(self, result: Result, *extensions: str) -> None:
        """Writes `result`, which is incomplete, to the files of these formats alone."""
        from tracer.analyzers import views

        targets = self._targets(self._formats(type(result)))
        for extension in extensions:
            for path in (t.path for t in targets if t.extension == extension and not t.every):
                if path is not None:
                    self._store(path, views.render(result, extension, self._at(path)))
                    activity.stand(str(path))

    def emit(self, result: Result) -> None:
        """Writes every file, then the terminal's page unless a file is stdout.

        What one file cannot hold, or a full disk, loses no other file and not the page: their error
        is raised at the end, and names all of several.
        """
        from tracer.analyzers import views

        failures = list[TracerError]()
        rendered = list[tuple[Target, bytes]]()
        for target in self._targets(self._formats(type(result))):
            try:
                data = views.render(result, target.extension, self._at(target.path))
            except TracerError as error:
                if target.every:
                    tell(f"left out .{target.extension}: {error.what}")
                else:
                    failures.append(error)
            else:
                rendered.append((target, data))
        signals.lift_limit()
        for target, data in rendered:
            if target.path is not None:
                self._write(target, target.path, data, failures)
        for target, data in rendered:  # after the files: a closed pipe must not lose them
            if target.path is None:
                write_stdout(data)
        report = next((t.path for t, _ in rendered if t.path and t.extension == REPORT), None)
        if self.opened and report is not None and not failures:
            open_in_browser(report)
        self.show(result)
        if len(failures) > 1:
            whats, hints = ([*dict.fromkeys(texts)] for texts in zip(
                *((each.what, each.hint) for each in failures), strict=True))  # fmt: skip
            raise type(failures[0])("; ".join(whats), " ".join(filter(None, hints)))
        if failures:
            raise failures[0]

    def _write(self, target: Target, path: Path, data: bytes, failures: list[TracerError]) -> None:
        try:
            if target.folder is not None:
                target.folder.mkdir(exist_ok=True)
            self._store(path, data)
        except InputError as error:
            failures.append(error)
        else:
            tell_written(path)

    def _store(self, path: Path, data: bytes) -> None:
        """Writes a file, or again what this command has kept in it."""
        write_atomically(path, data, self.force or path in untold())

    def _formats(self, kind: type[Result]) -> Mapping[str, Format]:
        """Returns the formats of a result; none where no file is written, which saves 0.1 s."""
        from tracer.analyzers import views

        return views.formats(kind) if self.files else {}

    def _targets(self, formats: Mapping[str, Format]) -> list[Target]:
        """Returns all files to write; of a folder for every format, a file of each.

        These have the name of the folder.
        """
        targets = list[Target]()
        for name in self.files:
            if _holds_every(name):
                folder = Path(name)
                files = {each: folder / f"{folder.name}.{each}" for each in formats}
                targets += [Target(each, file, folder, True) for each, file in files.items()]
            else:
                targets.append(parse(name, formats))
        return targets

    def _at(self, path: Path | None) -> ViewOptions:
        """Returns the options of a file at `path`."""
        return replace(self.options, folder=None if path is None else path.parent)

    def show(self, result: Result) -> None:
        """Writes the terminal's page and the next step, unless a file is stdout.

        A quiet command shows no next step, and no page beside files.
        """
        from tracer.analyzers import views

        def show(console: Console) -> None:
            views.show(result, console, self.options)
            show_next_step(result, console)

        if self.files and is_quiet():
            return
        targets = self._targets(self._formats(type(result)))
        if all(target.path is not None for target in targets):
            write_screen(show)


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
            f"{suggest(Path(name).suffix.lstrip('.'), known)}The formats are {', '.join(known)}; "
            "FORMAT:FILE sets one for any name.",
        )
    return Target(longest, Path(name))


def _is_folder(name: str) -> bool:
    return name.endswith(("/", os.sep)) and name.strip("./\\") != ""


def _holds_every(name: str) -> bool:
    """Whether a name is that of a folder for files of every format."""
    folder = Path(name)
    return _is_folder(name) and folder.name != _BOARD and folder.suffix != f".{_BOARD}"


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


def open_in_browser(path: Path) -> None:
    """Opens `path` in a browser. Without a screen or a browser, says what to open instead."""
    whole = path.absolute()
    # Without a screen, a text browser would take the terminal instead.
    has_screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if not (has_screen and webbrowser.open(whole.as_uri())):
        tell(f"no browser here: open {whole}")


NO_FENCE = "TRACER_NO_FENCE"
"""Environment variable; where it is set, there is no fence."""

_OUTPUTS = ("outputs", "output", "exports", "plan", "certificate", "tensors")
"""Parameters with files that commands write."""
_CODE = (".py", ".so", ".pt2")
"""Endings of what is run, and may do anything."""
_OPENING = ("scheduler", "ort", "opened", "register", "trust", "provider_options")
"""Parameters of commands that connect, start a browser, or load code."""
_OF_CPU = ("", "interpreter", "ort", *(f"ort:{level}" for level in OPTIMIZATIONS))
"""What runs a side of a comparison without an accelerator or a framework."""
_DEVICES = ("null", "zero", "full", "tty", "shm", "nvidia*", "dri", "kfd", "accel", "dxg")
_DRAWN = (".png", ".svg", "/")
"""Ends of outputs that matplotlib draws."""


def build_fence(parameters: Mapping[str, Any]) -> None:
    """Builds the fence of a command with these parameters, in a child process.

    What the command may write is what it was asked for, and what is temporary. A command that runs
    a user's code has no fence, nor one on an accelerator, whose libraries write caches of their
    own.
    """
    if activity.page() is None or os.environ.get(NO_FENCE):
        return
    values = [text for value in parameters.values() for text in _texts(value)]
    names_code = any(text.partition(":")[0].endswith(_CODE) or ".py:" in text for text in values)
    elsewhere = parameters.get("provider") not in (None, "cpu")
    sides = (text.partition("@")[2] for text in _texts(parameters.get("sides")))
    elsewhere |= any(side not in _OF_CPU for side in sides)
    elsewhere |= bool(parameters.get("ort")) or "==" in str(parameters.get("against"))
    if not (names_code or elsewhere or any(parameters.get(name) for name in _OPENING)):
        fence.build(_writable(parameters))


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
    with contextlib.suppress(OSError):  # nor may it be looked for
        folder.mkdir(parents=True, exist_ok=True)
        return folder.is_dir() and sys.platform == "linux"
    return False
