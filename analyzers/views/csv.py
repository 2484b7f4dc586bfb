"""`.csv`: the node table, or its folded form."""

from __future__ import annotations

import pandas as pd

from analyzers.views import ViewOptions
from analyzers.views._format import printable
from analyzers.views._tables import table
from tracer.records.trace import Trace

_FORMULA = ("=", "+", "-", "@")


def render(trace: Trace, options: ViewOptions) -> bytes:
    """UTF-8 CSV (RFC 4180) with a header; a missing value is an empty cell.

    Control characters in text are shown as escapes, for a terminal would obey them; text that a
    spreadsheet would run as a formula gets an apostrophe before it.
    """
    return encoded(table(trace, options))


def encoded(shown: pd.DataFrame) -> bytes:
    """Any table as CSV, nothing in it able to do harm (see `render`)."""
    shown = shown.copy()
    for column in shown.columns:
        if shown[column].dtype.kind not in "iufb":
            shown[column] = shown[column].map(_inert, na_action="ignore")
    return shown.to_csv(index=False, lineterminator="\n").encode()


def _inert(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    text = printable(cell)
    return f"'{text}" if text.startswith(_FORMULA) else text
