"""Which rows a view shows. Imports little, because every `--help` imports this module."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """Which rows a view shows: the grouping, the number of rows, the chart's threshold in µs.

    `sort` names the column that orders the rows, None for the view's own order. `top` is None for
    the view's default, 0 for all rows. `expand` shows fused nodes, constants and conversions in
    rows of their own. `depth` is the number of module levels that stay apart, None
    for all. `notes` shows every note instead of the most important ones. `full_numbers` shows every
    digit of large numbers. `redact` leaves out what tells of this machine: paths, the system, and
    the text of source lines; `with_paths` keeps absolute paths in a .trace and a .json. `model` is
    the file of the model, None for where the trace says it is. `folder` is where the file will be,
    for formats that refer to other files; None
    where it is not known, as for standard output.
    """

    by: str = "node"
    top: int | None = None
    threshold: float | None = None
    depth: int | None = None
    notes: bool = False
    sort: str | None = None
    full_numbers: bool = False
    redact: bool = False
    expand: bool = False
    model: Path | None = None
    folder: Path | None = None
    with_paths: bool = False
