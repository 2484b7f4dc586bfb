"""`.json`: one object with `model`, `environment`, `settings`, `notes` and `runs`."""

from __future__ import annotations

from typing import Any

import msgspec
import pandas as pd

from analyzers.advice import advise
from analyzers.overflow import channels, widths
from analyzers.timing import coverage, empty, wall
from analyzers.views import ViewOptions
from analyzers.views._tables import Section, rows, sections
from tracer.accumulators.spec import plain_values
from tracer.records.trace import PartialSums, Trace


def render(trace: Trace, options: ViewOptions) -> bytes:
    """UTF-8 JSON, indented; a missing value is null, and NaN never appears.

    `nodes` of a run are its rows of the node table, or what `by` says they are folded into.
    `advice` are sentences, each with the rule, the nodes and the figures it rests on. `sums` tell
    more of nodes with narrow accumulators: what these are, overflow at every width, and the
    overflow columns by output channel.
    """
    plain = {
        "model": trace.model,
        "environment": trace.environment,
        "settings": trace.settings,
        "notes": trace.notes,
        "runs": [_run(trace, section, options) for section in sections(trace)],
    }
    return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"


def _run(trace: Trace, section: Section, options: ViewOptions) -> dict[str, Any]:
    run = section.run
    return {
        "batch": section.batch,
        "executor": run.executor if run else None,
        "inputs": run.inputs if run else None,
        "wall_us": wall(run) if run else None,
        "empty_us": empty(run) if run else None,
        "coverage": coverage(run, section.nodes) if run else None,
        "by": options.by,
        "nodes": records(rows(section, options)),
        "advice": advise(trace, run, section.nodes),
        "sums": [_sums(each) for each in run.sums] if run else [],
    }


def _sums(sums: PartialSums) -> dict[str, Any]:
    return {
        "node": sums.node,
        "accumulator": plain_values.dumped(sums.tally.accumulator),
        "bits_guaranteed_any_order": sums.guaranteed_any_order,
        "mean_abs_error": None if sums.tally.missing.any() else sums.tally.mean_abs_error,
        "widths": records(widths(sums)),
        "channels": records(channels(sums)),
    }


def records(nodes: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows with plain Python values; what is missing or infinite becomes None."""
    plain = nodes.astype(object).where(nodes.notna(), None)
    return [{str(k): v for k, v in row.items()} for row in plain.to_dict("records")]
