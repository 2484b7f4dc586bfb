"""Messages on stderr: one line each, safe to show whatever names they hold."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

import click

from tracer.errors import InputError, refusing
from tracer.support.files import told_of, untold
from tracer.text import message


def tell(text: str) -> None:
    """Writes a line to stderr, if anybody is left to read it."""
    with contextlib.suppress(OSError, ValueError):  # a closed pipe, or a closed stream
        click.echo(message(text), err=True)


def tell_written(path: Path, what: str = "") -> None:
    """Tells that a file was written; `what` says more of it."""
    tell(f"wrote {path}{what}")
    told_of(path)


def tell_standing() -> None:
    """Tells the files that stand, and are whole, although the command failed afterwards."""
    for path in untold():
        tell_written(path)


def reading(files: Iterable[object]) -> contextlib.AbstractContextManager[None]:
    """Refuses files that pass all checks, and hold what no view can show."""
    names = ", ".join(map(str, files))
    return refusing(
        lambda why: InputError(
            f"{names}: holds what cannot be shown ({why})",
            "If tracer wrote it as it is, please report this; --debug shows the traceback.",
        )
    )
