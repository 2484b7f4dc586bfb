"""Which samples a command runs a model on: options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracer.cli._options import PathName
from tracer.errors import UsageError

if TYPE_CHECKING:
    from tracer.inputs.request import Samples

FOLDER = click.option(
    "--data-dir", type=PathName(), default=Path("data"), show_default=True,
    help="Where the files of cifar10 and mnist lie.",
)  # fmt: skip
LIMIT = click.option(
    "--limit", type=click.IntRange(min=1), default=None,
    help="Samples of --data to run; all unless given.",
)  # fmt: skip


def data(required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--data`."""
    return click.option(
        "--data", required=required, default=None, metavar="DATA",
        help="digits, cifar10, mnist, an .npz file, or a folder with test_data_sets; "
             "digits*28 is the digits 28 times.",
    )  # fmt: skip


def feeds(
    inputs: Sequence[Path], name: str | None, limit: int | None, folder: Path
) -> Samples | Sequence[Path]:
    """What the options ask for. Raises UsageError for options that exclude each other."""
    from tracer.inputs.request import Samples

    if name is None and limit is not None:
        raise UsageError("--limit is about samples of a data set", "Give --data as well.")
    if name is not None and inputs:
        raise UsageError("--inputs and --data together", "Leave out one of them.")
    return inputs if name is None else Samples(name, limit, folder)
