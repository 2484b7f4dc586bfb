"""`.csv`: the table of a result, safe to open in a spreadsheet or to print."""

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats import Format
from tracer.text import printable

_FORMULA = ("=", "+", "-", "@")
LONGEST_CELL = 32_767
"""Most characters of a cell in a spreadsheet; a longer text would spill into other cells."""


def render(table: pd.DataFrame, options: ViewOptions) -> bytes:
    """UTF-8 CSV (RFC 4180) with a header; a missing value is an empty cell.

    Control characters in text become escapes, because a terminal would obey them. Text that a
    spreadsheet would run as a formula starts with an apostrophe. A text longer than a cell can be
    loses its middle.
    """
    table = table.rename(columns=_inert)
    for column in table.columns:
        if table[column].dtype.kind not in "iufb":
            table[column] = table[column].map(_inert, na_action="ignore")
    return table.to_csv(index=False, lineterminator="\n").encode()


def _inert(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    text = printable(cell, LONGEST_CELL)
    return f"'{text}" if text.startswith(_FORMULA) else text


FORMATS = (Format("csv", "table", render),)
