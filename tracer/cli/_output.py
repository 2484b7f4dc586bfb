"""Where results go: checked before the work begins, written whole or not at all."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracer.errors import InputError, UsageError
from tracer.support.files import check_writable, write_atomically

if TYPE_CHECKING:
    from rich.console import Console

    from analyzers.views import ViewOptions
    from tracer.records.trace import Trace
    from tracer.records.whatif import WhatIf

STDOUT = "-"
_NEEDS = {"parquet": ("pyarrow", "parquet"), "png": ("matplotlib", "plots")}
_NEEDS["svg"] = _NEEDS["png"]
_BINARY = frozenset({"trace", "parquet", "png"})


@dataclass(frozen=True, slots=True)
class Target:
    """A format and the file it goes to; None is standard output."""

    format: str
    path: Path | None


_SCREEN = Target("terminal", None)


def targets(
    outputs: Sequence[str],
    as_json: bool = False,
    as_csv: bool = False,
    force: bool = False,
    known: Sequence[str] | None = None,
) -> tuple[Target, ...]:
    """Every target, checked: known format, its package installed, the file free and writable.

    `known` are the formats there are, those of a trace unless given. Raises UsageError or
    InputError before any work is done.
    """
    from analyzers.views import formats

    known = formats() if known is None else known
    wanted = [*outputs, *(["json:-"] if as_json else []), *(["csv:-"] if as_csv else [])]
    found = tuple(parse(output, known) for output in wanted)
    _refuse_twice(found)
    if sys.stdout is None and any(target.path is None for target in found or [_SCREEN]):
        raise InputError("stdout is closed", "Open it, or write to a file with -o.")
    for target in found:
        _check(target, force)
    return found


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

    def emit(self, trace: Trace) -> None:
        """Write every target, then the terminal's table unless stdout was one of them."""
        from analyzers.views import renderer, terminal

        write(
            [(t, renderer(t.format)(trace, self.options)) for t in self.targets],
            lambda console: terminal.render(trace, self.options, console),
        )


def show_what_if(found: WhatIf, targets: Sequence[Target], top: int | None) -> None:
    """The same for a what-if: every target, and its page unless stdout was one of them."""
    from analyzers.whatif.views import renderer, terminal

    write(
        [(target, renderer(target.format)(found)) for target in targets],
        lambda console: terminal.render(found, top, console),
    )


def write(rendered: Sequence[tuple[Target, bytes]], on_screen: Callable[[Console], None]) -> None:
    """Write every target, then the terminal's view unless stdout was one of them."""
    for target, data in rendered:
        if target.path is not None:
            write_atomically(target.path, data)
            click.echo(f"wrote {target.path}", err=True)
    for target, data in rendered:  # after the files, which a full pipe is not to cost
        if target.path is None:
            write_stdout(data)
    if all(target.path is not None for target, _ in rendered):
        write_screen(on_screen)


def _refuse_twice(found: Sequence[Target]) -> None:
    seen: set[Path | None] = set()
    for target in found:
        place = target.path.absolute() if target.path else None
        if place in seen and place is None:
            raise UsageError("two outputs for stdout", "Write one of them to a file with -o.")
        if place in seen:
            raise UsageError(f"two outputs for {target.path}", "Give each a file of its own.")
        seen.add(place)


def parse(output: str, known: Sequence[str]) -> Target:
    """The target that FILE.png or png:FILE names. Raises UsageError for an unknown format."""
    name, colon, rest = output.partition(":")
    if colon and name in known:
        return Target(name, None if rest == STDOUT else Path(rest))
    if output == STDOUT:
        return Target("json", None)
    extension = _extension(Path(output), known)
    if extension is None:
        raise UsageError(
            f"{output}: the extension names no format",
            f"The formats are {', '.join(known)}; FORMAT:FILE sets one for any name.",
        )
    return Target(extension, Path(output))


def _extension(path: Path, known: Sequence[str]) -> str | None:
    """The longest format that the name ends with, or that it is: `roofline.png` is one."""
    if not path.suffix:
        return None
    found = [name for name in known if f".{path.name}".endswith(f".{name}")]
    return max(found, key=len, default=None)


def _kind(extension: str) -> str:
    """What sort of file a format is: `roofline.png` is a `png`."""
    return extension.rpartition(".")[2]


def _check(target: Target, force: bool) -> None:
    import importlib.util

    package, extra = _NEEDS.get(_kind(target.format), (None, None))
    if package is not None and importlib.util.find_spec(package) is None:
        raise UsageError(
            f"{target.format} needs {package}",
            f"Install it with: pip install 'tracer-onnx[{extra}]'.",
        )
    if target.path is not None:
        check_writable(target.path, force)
    elif _kind(target.format) in _BINARY and sys.stdout.isatty():
        raise UsageError(f"{target.format} is not text", "Redirect it, or name a file with -o.")
