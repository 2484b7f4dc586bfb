"""Messages on stderr: one line each, safe to show whatever names they hold."""

import contextlib

import click

from tracer.text import message


def tell(text: str) -> None:
    """Writes a line to stderr, if anybody is left to read it."""
    with contextlib.suppress(OSError, ValueError):  # a closed pipe, or a closed stream
        click.echo(message(text), err=True)
