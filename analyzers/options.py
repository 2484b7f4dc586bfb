"""What a view shows: the options and their allowed values.

Imports nothing heavy, because every `--help` imports this module.
"""

import pkgutil
from pathlib import Path

from tracer.errors import UsageError
from tracer.records.columns import SPECS, ColumnSpec
from tracer.records.result import ViewOptions as ViewOptions
from tracer.text import suggest

KERNEL, SAMPLE = "kernel", "sample"
NAMES = {
    "node": "node", "op": "op_type", "module": "module", "source": "source", KERNEL: "op_type",
    SAMPLE: SAMPLE,
}  # fmt: skip
"""What a row may stand for, and the column that then names the rows."""

GROUPINGS = tuple(NAMES)
NODE_GROUPINGS = tuple(name for name in NAMES if name != SAMPLE)
"""Those of any run; samples are those of a run in narrow accumulators."""

ADDITION_CONVENTIONS = ("plain", "channelwise")
"""How the additions of a convolution are counted: the names in `analyzers.cost.count`."""

METRIC = (
    "Accuracy metric: top1, top5, mse, perplexity; noise, channel-noise, agreement (with wide "
    "accumulators); or FILE.py:NAME.  [default: chosen by the data]"
)
"""The help of the option of several commands."""
DEFAULT_ENERGY_MODEL = "lab"
"""The energy model of narrow accumulators unless `--energy` names another."""

OF_KERNELS = ("time_us_total", "time_total_share", "time_us_per_call")
"""Columns of the table by kernel that other groupings lack."""

_OF_NODES = (
    "bits", "bits_guaranteed", "bits_guaranteed_inner", "bits_datatype", "operands", "terms",
    "swamped_share", "rel_error_p50", "rel_error_p99",
)  # fmt: skip
"""Columns of overflows that samples lack."""

_OF_SUMS = ("bytes_moved", "overflow_share")
"""Columns that views compute from columns that add up, in every grouping."""
_UNORDERED = ("bar", "partial_sums")

DEFAULT_TOP = 10
"""Rows that a terminal shows unless `--top` sets another number."""

CHART_TOP = 15
"""Rows, and sums of nodes, that a chart shows unless `--top` sets another number."""


def refuse_depth(by: str, depth: int | None) -> None:
    """Raise UsageError where a depth is set and rows are not modules."""
    if depth is not None and by != "module":
        raise UsageError("a depth counts levels of modules", "Give --by module with --depth.")


def energy_models() -> tuple[str, ...]:
    """Returns the names of the energy models: the modules of `tracer.analyzers.energy.models`."""
    folder = Path(__file__).parent / "energy" / "models"
    return tuple(sorted(module.name for module in pkgutil.iter_modules([str(folder)])))


def format_lines() -> tuple[tuple[str, str], ...]:
    """Returns the extensions of each module of `analyzers.views.file_formats`, and what they are.

    Both are in the first line of its text; so nothing is imported.
    """
    folder = Path(__file__).parent / "views" / "file_formats"
    lines = [file.open(encoding="utf-8").readline() for file in sorted(folder.glob("[!_]*.py"))]
    pairs = (line.strip().strip('"').replace("`", "").partition(": ") for line in lines)
    return tuple(sorted((extensions, text.removesuffix(".")) for extensions, _, text in pairs))


def sort_column(sort: str, by: str) -> ColumnSpec:
    """Returns the column that `sort` names, as files (`time_us`) or tables (`time`, `MACs`) do.

    Raises UsageError for a name that no column has in a table of these rows.
    """
    columns = [spec for spec in SPECS if spec.name not in _UNORDERED and _has(by, spec)]
    for spec in columns:
        if sort == spec.name:
            return spec
    for spec in columns:
        header = None if spec.header is None else spec.header.lower()
        # a table of long times has these
        asked = sort.lower().removesuffix(" ms").removesuffix(" s")
        if header is not None and asked in (header, header.removesuffix(" µs")):
            return spec
    headers = ", ".join(dict.fromkeys(spec.header or spec.name for spec in columns))
    short = [s.name for s in columns] + [s.header.removesuffix(" µs") for s in columns if s.header]
    near = suggest(sort, {each.lower(): each for each in short}.values())
    what = f"rows by {by} have no column '{sort}'"
    raise UsageError(what, near.rstrip() or f"Sort by one of: {headers}.")


def _has(by: str, spec: ColumnSpec) -> bool:
    """Returns whether the rows of a grouping have a column."""
    if by == KERNEL:
        summed = spec.kind == "stored" and spec.fold == "sum"
        return summed or spec.name in (NAMES[by], *OF_KERNELS)
    if by == SAMPLE:
        return spec.table == "overflow" and spec.name not in _OF_NODES
    if by == "node":
        return spec.kind != "folded" or spec.name == "nodes"
    return spec.fold != "none" or spec.name in (NAMES[by], *_OF_SUMS)
