"""`.ipynb`: the table with a chart, for Jupyter.

The format is nbformat 4.5. The notebook holds the data and what its cells print, so that it shows
without being run.
"""

import base64
import gzip
from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats import Format
from tracer.analyzers.views.file_formats.json import compact
from tracer.analyzers.views.page import longest_rows
from tracer.text import printable

_READ = """\
import base64, gzip, io
import pandas as pd

DATA = "{data}"
table = pd.read_csv(io.BytesIO(gzip.decompress(base64.b64decode(DATA))))
table.head({rows})"""

_PLOT = """\
largest = table.nlargest({rows}, "{column}")[::-1]
largest.plot.barh(x=table.columns[0], y="{column}", legend=False, xlabel="{column}");"""

_SHOWN_ROWS = 20
_WIDTH, _BAR, _LABEL = 720, 18, 300
_BLUE = "#0072b2"


def render(table: pd.DataFrame, options: ViewOptions) -> bytes:
    """A notebook in JSON (ASCII); columns without any value are left out."""
    table = table.dropna(axis="columns", how="all")
    data = base64.b64encode(gzip.compress(table.to_csv(index=False).encode(), mtime=0)).decode()
    title = f"# tracer\n\n{len(table):,} rows, {len(table.columns)} columns, in `table`."
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "id": "title", "metadata": {}, "source": title},
        _code("table", _READ.format(data=data, rows=_SHOWN_ROWS), {"text/html": _html(table)}),
    ]
    column, rows = longest_rows(table)
    if rows:
        plot = _PLOT.format(rows=len(rows), column=column)
        cells.append(_code("chart", plot, {"image/svg+xml": _bars(column, rows)}))
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return compact({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def _bars(column: str, rows: Sequence[tuple[str, float]]) -> str:
    """A bar for each row, as SVG."""
    most = max(value for _, value in rows) or 1.0
    parts = [f'<text x="{_LABEL}" y="14" font-weight="bold">{escape(column)}</text>']
    for place, (name, value) in enumerate(rows, 1):
        top, length = place * (_BAR + 4), max(value, 0.0) / most * (_WIDTH - _LABEL - 80)
        parts += [
            f'<text x="{_LABEL - 6}" y="{top + 13}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{_LABEL}" y="{top}" width="{length:.1f}" height="{_BAR}" fill="{_BLUE}"/>',
            f'<text x="{_LABEL + length + 4:.1f}" y="{top + 13}">{value:.4g}</text>',
        ]
    size = f'width="{_WIDTH}" height="{(len(rows) + 1) * (_BAR + 4) + 6}"'
    style = 'font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(parts)}</svg>'


def _code(name: str, source: str, shown: dict[str, str]) -> dict[str, Any]:
    output = {
        "output_type": "display_data", "metadata": {}, "data": {"text/plain": name, **shown},
    }  # fmt: skip
    return {
        "cell_type": "code", "id": name, "metadata": {}, "execution_count": None, "source": source,
        "outputs": [output],
    }  # fmt: skip


def _html(table: pd.DataFrame) -> str:
    """The first rows as a table, in which every text is text."""
    head = table.head(_SHOWN_ROWS)
    names = "".join(f"<th>{escape(printable(str(name)))}</th>" for name in head.columns)

    def cell(value: Any) -> str:
        if pd.isna(value):
            return ""
        return f"{value:.6g}" if isinstance(value, float) else printable(str(value))

    rows = (
        "".join(f"<td>{escape(cell(value))}</td>" for value in row)
        for row in head.astype(object).itertuples(index=False, name=None)
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


FORMATS = (Format("ipynb", "table", render),)
