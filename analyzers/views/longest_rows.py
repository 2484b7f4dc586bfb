"""The rows that a small chart beside a table shows, and the column it draws."""

from __future__ import annotations

import pandas as pd

from tracer.text import brief

_PREFERRED = ("time_us", "macs", "flops", "params")
_ROWS = 15


def longest_rows(table: pd.DataFrame) -> tuple[str, list[tuple[str, float]]]:
    """Returns the name of a column, and names and values of its largest rows, largest first.

    The column is the time, else the work, else the first with numbers; '' and no row without any.
    """
    numbers = [name for name in table.columns if table[name].dtype.kind in "iuf"]
    filled = [
        name for name in (*_PREFERRED, *numbers) if name in table and table[name].notna().any()
    ]
    if not filled:
        return "", []
    column = filled[0]
    rows = table[table[column].notna()].sort_values(column, ascending=False, kind="stable")[:_ROWS]
    names = rows.iloc[:, 0].astype(object).map(lambda name: brief(str(name)))
    return column, list(zip(names.tolist(), rows[column].astype(float).tolist(), strict=True))
