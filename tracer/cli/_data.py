"""Options for the data set that a model runs on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import cloup

from tracer.cli._options import Decorator
from tracer.cli._types import Count, PathName
from tracer.errors import UsageError

if TYPE_CHECKING:
    from tracer.inputs.request import Samples

SOURCES = (
    "digits, cifar10, mnist, an .npz, .parquet or .tar file, text:FILE, FILE.py:NAME, or a folder "
    "of images or test_data_sets"
)

FOLDER = cloup.option(
    "--data-dir", type=PathName(), metavar="FOLDER", default=Path("data"), show_default=True,
    help="Folder with the files of cifar10 and mnist.",
)  # fmt: skip
TEST_LIMIT = cloup.option(
    "--test-limit", type=Count.of("test_limit"),
    help="Samples for measuring accuracy.  [default: all]",
)  # fmt: skip
LIMIT = cloup.option(
    "--limit", type=Count.of("limit"), help="Samples of --data to use.  [default: all]"
)


def data(required: bool) -> Decorator:
    """`--data`."""
    return cloup.option(
        "--data", required=required, metavar="DATA",
        help=f"Data set: {SOURCES}. digits:train is the training split of digits, digits*28 "
        "repeats digits 28 times.",
    )  # fmt: skip


def feeds(
    inputs: Sequence[Path], data: str | None, limit: int | None, data_dir: Path
) -> Samples | Sequence[Path]:
    """Returns the samples of `--data`, or the files of `--inputs`.

    Raises UsageError for options that exclude each other.
    """
    from tracer.inputs.request import Samples

    if data is None and limit is not None:
        raise UsageError("--limit needs --data", "Give --data as well.")
    if data is not None and inputs:
        raise UsageError("--inputs and --data together", "Leave out one of them.")
    return inputs if data is None else Samples(data, limit, data_dir)
