"""`.json`: one object with `model`, `environment`, `settings`, `notes` and `runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pandas as pd

    from analyzers.views import ViewOptions
    from tracer.trace import Run, Trace


def render(trace: Trace, options: ViewOptions) -> bytes:
    """UTF-8 JSON, indented; a missing value is null, and NaN never appears."""
    plain = {
        "model": trace.model,
        "environment": trace.environment,
        "settings": trace.settings,
        "notes": trace.notes,
        "runs": [_run(run, _rows_of(trace.nodes, run)) for run in trace.runs]
        or [{"batch": _batch(trace.nodes), "executor": None, "nodes": _records(trace.nodes)}],
    }
    return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"


def _run(run: Run, nodes: pd.DataFrame) -> dict[str, Any]:
    from analyzers.timing import coverage, wall

    return {
        "batch": run.batch,
        "executor": run.executor,
        "inputs": run.inputs,
        "wall_us": wall(run),
        "coverage": coverage(run, nodes),
        "nodes": _records(nodes),
    }


def _rows_of(nodes: pd.DataFrame, run: Run) -> pd.DataFrame:
    from analyzers.selection import rows_of

    return rows_of(nodes, run)


def _batch(nodes: pd.DataFrame) -> int | None:
    known = nodes["batch"].dropna()
    return int(known.iloc[0]) if len(known) else None


def _records(nodes: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows with plain Python values; pandas' kinds of missing become None."""
    plain = nodes.astype(object).where(nodes.notna(), None)
    return [{str(k): v for k, v in row.items()} for row in plain.to_dict("records")]
