"""The view of a BitComparison: the first node of each side whose bits differ, and its cause."""

import math
from dataclasses import asdict, replace
from typing import Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.page import Page, Table, name_column, number_column
from tracer.analyzers.views.text import exponent, plural
from tracer.records.bits import BitComparison, OutputDifference


def page(result: BitComparison, options: ViewOptions) -> Page:
    """A sentence and the rules of each side, and a table of the outputs."""
    columns = (
        name_column("side", "side", 0),
        name_column("output", "output", 1),
        number_column("equal bits", "share", "{:.2%}".format, 0),
        number_column("largest difference", "largest", exponent, 0),
        number_column("ulp", "ulps", "{:,.0f}".format, 2),
        name_column("classes that change", "classes", 1),
    )
    lines = list[str]()
    for side in result.sides:
        lines.append(f"{side.side}: {side.sentence}")
        if side.exact:
            lines.append("  proof: the replay has the SHA-256 of the outputs of the other machine")
        first = side.first
        if first is not None:
            share = f"{first.size - first.equal:,} of {plural(first.size, 'result')} differ"
            by = f"by {first.ulps:,.0f} ulp at most"
            if math.isinf(first.ulps):
                by = "in shape, or one side is no number"
            lines += [
                f"  there, {share}, {by}",
                f"  A: {first.here}",
                f"  B: {first.there}",
            ]
    title = f"Bits against {result.reference}"
    rows = table(result, replace(options, top=None))
    return Page((Table(title, columns, rows, is_long=True, head=tuple(lines)),), result.notes)


def table(result: BitComparison, options: ViewOptions) -> pd.DataFrame:
    """A row for each output of each side, with the first node that differs and its cause."""
    rows = []
    for side in result.sides:
        first = side.first
        for output in side.outputs or _NO_OUTPUTS:
            rows.append(
                {
                    "side": side.side,
                    "output": output.output,
                    "share": output.equal / output.size if output.size else float("nan"),
                    "largest": output.largest,
                    "ulps": output.ulps,
                    "classes": ""
                    if output.classes is None
                    else f"{output.classes} of {output.rows}",
                    "node": first.node if first else "",
                    "cause": first.cause if first else "",
                    "reason": first.reason if first else "",
                }
            )
    return pd.DataFrame(rows[: options.top or None])


def document(result: BitComparison, options: ViewOptions) -> dict[str, Any]:
    """All that was found."""
    sides = [{**asdict(side), "summary": side.sentence} for side in result.sides]
    return {**asdict(result), "sides": sides}


_NO_OUTPUTS = (OutputDifference(largest=None, ulps=None),)
