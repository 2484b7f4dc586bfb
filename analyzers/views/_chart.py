"""The bar chart: time of each layer in the order of the graph, the slow ones highlighted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analyzers.grouping import grouped
from analyzers.views import ViewOptions, _headline
from analyzers.views._format import micros, printable, si
from analyzers.views._tables import split
from tracer.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from tracer.trace import Run, Trace

_PLAIN, _HIGH = "#4878a8", "#c44e52"
_MOST_LABELS = 80
_MOST_CHARACTERS = 28
_HIGH_QUANTILE = 0.9
_DPI = 120


def draw(trace: Trace, options: ViewOptions, kind: str) -> bytes:
    """The chart as `png` or `svg`, a panel for each run.

    Bars at or above `options.threshold` µs are red; without one, the slowest tenth. Raises
    UsageError where matplotlib is not installed.
    """
    import io

    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UsageError(
            "charts need matplotlib", "Install it with: pip install 'tracer-onnx[plots]'."
        ) from error
    parts = split(trace.nodes)
    panels = [_bars(nodes, options) for nodes in parts]
    longest = max(len(rows) for rows in panels)
    width = min(max(8.0, 0.22 * longest + 2), 24.0)
    figure = Figure(figsize=(width, 4.6 * len(panels)), dpi=_DPI, layout="constrained")
    axes = figure.subplots(len(panels), squeeze=False)
    for index, rows in enumerate(panels):
        run = trace.runs[index] if trace.runs else None
        _panel(axes[index][0], rows, options, _title(trace, run, parts[index]))
    buffer = io.BytesIO()
    # A fixed salt and no date: the same trace gives the same file.
    with rc_context({"svg.hashsalt": "tracer"}):
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def _bars(nodes: pd.DataFrame, options: ViewOptions) -> pd.DataFrame:
    rows = grouped(nodes, options.by)
    rows["value"] = rows["time_us"] if rows["time_us"].notna().any() else rows["macs"]
    return rows[rows["value"].notna()].astype({"value": "float64"})


def _panel(axes: Any, rows: pd.DataFrame, options: ViewOptions, title: str) -> None:
    timed = rows["time_us"].notna().any()
    values = rows["value"]
    threshold = options.threshold
    label = "red"
    if threshold is None:
        threshold = float(values.quantile(_HIGH_QUANTILE)) if len(values) else 0.0
        label = "red, the highest tenth"
    colors = [_HIGH if value >= threshold else _PLAIN for value in values]
    positions = range(len(rows))
    axes.bar(positions, values, color=colors, width=0.8)
    axes.axhline(threshold, color=_HIGH, linewidth=0.8, linestyle="--")
    unit = f"{micros(threshold)} µs" if timed else f"{si(threshold)} MACs"
    axes.set_title(f"{label}: ≥ {unit}", fontsize=8, loc="right", color=_HIGH)
    axes.set_ylabel("time per run [µs]" if timed else "MACs")
    axes.set_title(title, fontsize=10, loc="left")
    axes.margins(x=0.01)
    axes.spines[["top", "right"]].set_visible(False)
    if len(rows) <= _MOST_LABELS:
        axes.set_xticks(positions, _labels(rows, options.by), rotation=90, fontsize=7)
    else:
        axes.set_xlabel(f"{len(rows):,} rows in the order of the graph")


def _labels(rows: pd.DataFrame, by: str) -> list[str]:
    field = {"node": "node", "op": "op_type", "module": "module"}[by]
    return [_short(printable(str(name))) for name in rows[field]]


def _short(name: str) -> str:
    """The end of a long name tells more than its beginning; `$` would start a formula."""
    name = name.replace("$", r"\$")
    return name if len(name) <= _MOST_CHARACTERS else "…" + name[1 - _MOST_CHARACTERS :]


def _title(trace: Trace, run: Run | None, nodes: pd.DataFrame) -> str:
    batch = nodes["batch"].iloc[0] if nodes["batch"].notna().any() else None
    return printable(_headline.headline(trace, run, batch)).replace("$", r"\$")
