"""A page: titled tables with lines about them, as a terminal, Markdown and HTML show them.

In a notebook, styles are in the elements, for light and dark themes: sites that show notebooks
remove sheets of styles. Some remove styles as well; what is left is a table.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from html import escape
from typing import Any, Literal, TypeAlias, get_type_hints

import pandas as pd

from tracer.analyzers.options import DEFAULT_TOP, ViewOptions
from tracer.analyzers.views.text import (
    FORMATS,
    FULL_FORMATS,
    plural,
    short_names,
    time_number,
    time_unit,
    without_prefix,
)
from tracer.records.columns import PAGE_RANK, ColumnSpec, Dtype, Fold
from tracer.records.trace import INCOMPLETE, plain_cells
from tracer.text import CHOSEN, brief, line

_ROOM, _GAP = 110, 2
"""Characters of a row in a cell of usual width, and those between two columns."""
_LONGEST_NAME = 44
_BAR = "bar"
_BAR_CELLS, _BAR_EM = 9, 5
"""Width of the longest bar, in characters and in the unit of its style."""
_TABLE = "border-collapse:collapse;margin:.4em 0;font-variant-numeric:tabular-nums"
_CELL = "white-space:nowrap;padding:.15em .6em;text-align:"
_DIM = "opacity:.7"


def html(page: "Page", top: int) -> str:
    """The tables and notes of `page`; long tables have `top` rows."""
    parts = []
    for table in page.tables:
        parts += [f"<p><b>{escaped(table.title)}</b></p>"] if table.title else []
        parts += map(_paragraph, table.head)
        columns, rows = table.cells(top, on_page=True)
        # An attribute rather than a style: the policy of a report forbids styles outside its sheet.
        aligned = ["" if c.is_name else ' align="right"' for c in columns]
        pairs = zip(columns, aligned, strict=True)
        heads = "".join(f"<th{side}>{escaped(c.header)}</th>" for c, side in pairs)
        parts.append(f"<table><tr>{heads}</tr>")
        for row in rows:
            texts = zip(row, aligned, strict=True)
            cells = "".join(f"<td{side}>{escaped(text)}</td>" for text, side in texts)
            parts.append(f"<tr>{cells}</tr>")
        parts.append("</table>")
        if len(rows) < len(table.rows):
            parts.append(_paragraph(f"… {plural(len(table.rows) - len(rows), 'more row')}"))
        parts += map(_paragraph, (*table.lines, *table.advice))
    parts += [_paragraph(f"note: {note}") for note in page.doubts]
    return "".join((*parts, _paragraph(page.foot) if page.foot else ""))


def _paragraph(text: str) -> str:
    return f"<p>{escaped(text)}</p>"


def escaped(text: str) -> str:
    """Returns text for HTML: nothing in a name of a model is an element."""
    return escape(line(text))


Fault = Literal["", "failure", "error"]


@dataclass(frozen=True, slots=True)
class Check:
    """A test of this name in a group, and the figures in words.

    It passed without a `fault`; an `error` is a test that could not decide.
    """

    group: str
    name: str
    text: str
    fault: Fault = ""


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


Cut = Literal["begin", "middle", "end", "text"]
"""The part of a long name that a narrow terminal leaves out; a text has lines instead."""

Row: TypeAlias = Mapping[Any, Any]
"""The cells of a row by their columns, numbers as floats."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, shown if any cell has text and the terminal has room for its rank.

    Columns with the lowest rank get their room first. A name may be cut, a number never; `cut`
    is where: of `folder/file.py:36` the end stays, of an operator the beginning.
    `times` are fields in µs whose largest value sets the unit of the column; columns with the same
    `times` have the same unit, and `text` reads these fields in it. So it reads the `bounds` of
    these times, which set no unit: those of few sessions are far away.
    """

    header: str
    field: str
    text: Callable[[Row], str]
    rank: int
    is_name: bool = False
    cut: Cut = "middle"
    times: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A title, the columns and the rows; `head` stands above, `lines` and `advice` below the rows.

    `is_long`: a terminal shows only the first rows. `weight` is the column that tells how much the
    hidden rows hold, and its name in words.
    """

    title: str
    columns: Sequence[Column]
    rows: pd.DataFrame
    lines: tuple[str, ...] = ()
    is_long: bool = False
    head: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    weight: tuple[str, str] | None = None

    def cells(
        self, top: int | None, on_page: bool = False
    ) -> tuple[list[Column], list[tuple[str, ...]]]:
        """The columns with any text, and the text of `top` rows (None or 0: all).

        With `on_page`, columns that only a wide terminal has room for are left out.
        """
        rows = self.rows.head(top) if self.is_long and top else self.rows
        cells = {name: plain_cells(rows[name]).tolist() for name in rows.columns}
        units = {}
        for times in {column.times for column in self.columns}:
            known = [name for name in times if name in cells]
            # one stalled run is a p95 of many times the time, and leaves the times no digits
            sizing = {"time_us"} & set(known) or known
            finite = [abs(x) for name in sizing for x in cells[name] if math.isfinite(x)]
            scale, units[times] = time_unit(max(finite, default=0.0))
            bounds = {name for each in self.columns if each.times == times for name in each.bounds}
            known += bounds & cells.keys()
            cells |= {name: [x / scale for x in cells[name]] for name in known}
        each_row = [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
        texts = [
            (
                replace(column, header=column.header.replace("µs", units[column.times])),
                [column.text(row) for row in each_row],
            )
            for column in self.columns
            if column.field in cells and not (on_page and column.rank >= PAGE_RANK)
        ]
        shown = [(column, text) for column, text in texts if any(map(str.strip, text))]
        return [c for c, _ in shown], list(zip(*(text for _, text in shown), strict=True))


_DOUBTS = (
    INCOMPLETE, "out of time", "no time was left", "profiler overhead was", "the nodes take",
    "work unknown", "energy unknown", "batch sizes differ", "recorded earlier", "ran no node",
    "how long a run takes is not known", "the peaks may be too low", "not compared", "not scored",
    "differs: ", "unlike ranges", "channels (axis", "do not fit together", "proves little",
    "saturates pairs of products", "one of its branches runs",
    "the trip count is unknown", "taken as an open size",
    "folds none of them, and may fuse less",
    "the plan was made for", "holds NaN",
)  # fmt: skip
"""What is in notes that make a number wrong or doubtful, and that a page therefore shows."""


@dataclass(frozen=True, slots=True)
class Page:
    """Tables, notes about them, and a line on the machine at the foot."""

    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    foot: str = ""

    @property
    def doubts(self) -> tuple[str, ...]:
        """The notes that make a number wrong or doubtful; a terminal counts the others."""
        return tuple(note for note in self.remarks if any(part in note for part in _DOUBTS))

    @property
    def leading(self) -> tuple[str, ...]:
        """The notes on what everything else depends on, which stand above the tables."""
        return tuple(note for note in self.notes if CHOSEN in note)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The other notes, below the tables."""
        return tuple(note for note in self.notes if CHOSEN not in note)


def facts(title: str, rows: pd.DataFrame) -> Page:
    """A page of one table with the columns `name` and `value`."""
    value = replace(name_column("value", "value", 1), cut="text")
    columns = (name_column("", "name", 0), value)
    return Page((Table(title, columns, rows),))


def specified(spec: ColumnSpec, full_numbers: bool = False) -> Column:
    """The column of the node table that `spec` describes."""
    write: Callable[[Any], str] = (FULL_FORMATS if full_numbers else FORMATS)[spec.format]
    times: tuple[str, ...] = ()
    if spec.format == "micros":
        write, times = time_number, _OF_RUN if spec.name in _OF_RUN else (spec.name,)
    return Column(
        spec.header or "",
        spec.name,
        time_text if spec.name == "time_us" else lambda row: write(row[spec.name]),
        spec.rank,
        spec.is_name,
        "begin" if spec.format == "path" else _cut_of(spec.name),
        times,
    )


_OF_RUN = (
    "time_us", "time_us_ci95_low", "time_us_ci95_high", "time_us_plus_minus", "time_us_p95",
    "time_us_raw", "time_us_split",
)  # fmt: skip
"""Times of the node table that have one unit."""


def time_text(row: Row) -> str:
    """The time of a row: `12.3`, or `< 0.8` where its interval begins at 0 and no more is known."""
    if row.get("time_us_ci95_low") == 0 and row["time_us"] < row["time_us_ci95_high"]:
        return f"< {time_number(row['time_us_ci95_high'])}"
    return time_number(row["time_us"])


_OPERATORS, _TEXTS = ("op_type", "kernel_op"), ("why",)


def number_column(
    header: str,
    field: str,
    text: Callable[[float], str],
    rank: int,
    times: tuple[str, ...] = (),
) -> Column:
    """A column of numbers; a missing number is an empty cell. See `Column` for `times`."""

    def write(row: Row) -> str:
        return "" if pd.isna(row[field]) else text(float(row[field]))

    return Column(header, field, write, rank, times=times)


def name_column(header: str, field: str, rank: int) -> Column:
    """A column of names, which a narrow terminal may cut."""
    return Column(
        header, field, lambda row: FORMATS["name"](row[field]), rank, True, _cut_of(field)
    )


def _cut_of(field: str) -> Cut:
    return "end" if field in _OPERATORS else "text" if field in _TEXTS else "middle"


def record_columns(
    record: type, formats: Mapping[Any, Callable[[Any], str]] = FORMATS, **words: str
) -> list[Column]:
    """The columns that the fields of a record class declare, with `records.columns.as_column`.

    `words` fill the places of headers, as `unit` that of `energy {unit}`.
    """
    return [
        name_column(header, name, spec.rank)
        if spec.format == "name"
        else number_column(header, name, formats[spec.format], spec.rank)
        for name, header, spec in _declared(record, words)
    ]


def record_specs(record: type, folds: Mapping[str, Fold]) -> tuple[ColumnSpec, ...]:
    """The same columns as a report shows them, with how its graph folds those in `folds`."""
    types = get_type_hints(record)
    return tuple(
        ColumnSpec(
            name, header, spec.rank, header, folds.get(name, "none"), unit="", format=spec.format,
            dtype="string" if spec.format == "name" else _DTYPES.get(types[name], "Int64"),
        )
        for name, header, spec in _declared(record, {})
    )  # fmt: skip


name_spec = partial(ColumnSpec, dtype="string", unit="", format="name")
"""Describes a column of names or sentences in a report."""


def _declared(record: type, words: Mapping[str, str]) -> Iterator[tuple[str, str, Any]]:
    """Yields the fields of a record class that declare a column, its header, and the rest of it."""
    for each in fields(record):
        spec = each.metadata.get("column")
        if spec is not None:
            yield each.name, spec.header.format(**words).strip(), spec


def record_table(record: type, rows: Iterable[Any]) -> pd.DataFrame:
    """A row for each record of a class, a column for each field, with the types of the fields."""
    types, names = get_type_hints(record), [each.name for each in fields(record)]
    table = pd.DataFrame([asdict(row) for row in rows], columns=names)
    return table.astype({name: _DTYPES[types[name]] for name in names if types[name] in _DTYPES})


_DTYPES: Mapping[Any, Dtype] = {int | None: "Int64", float | None: "float64", float: "float64"}


def signed_percent(value: float) -> str:
    """A share with its sign: `+12.3%`."""
    return f"{value:+.0%}" if abs(value) >= 10 else f"{value:+.1%}"


def notebook_html(page: Page, options: ViewOptions) -> str:
    """The tables of `page`, 10 rows unless `options.top` is set; folds notes without doubts."""
    top = DEFAULT_TOP if options.top is None else options.top
    parts = list(_lines(page.leading))
    for table in page.tables:
        parts += _lines([table.title] if table.title else [], "font-weight:bold;margin-top:.6em")
        parts += _lines(table.head)
        parts += _table(table, top)
        parts += _lines((*table.lines, *table.advice))
    parts += _lines(f"note: {note}" for note in page.doubts)
    others = [note for note in page.remarks if note not in page.doubts]
    if others:
        summary = f'<summary style="cursor:pointer">{plural(len(others), "more note")}</summary>'
        notes = "".join(_lines(others, "margin-left:1em"))
        parts.append(f'<details style="{_DIM}">{summary}{notes}</details>')
    parts += _lines([page.foot] if page.foot else [], _DIM)
    return f'<div style="line-height:1.5;overflow-x:auto">{"".join(parts)}</div>'


def _lines(texts: Iterable[str], style: str = "") -> Iterable[str]:
    return (f'<div style="{style}">{escaped(text)}</div>' for text in texts)


def _table(table: Table, top: int) -> list[str]:
    columns, rows = table.cells(top, on_page=True)
    if not columns:
        return []
    room, shown = _ROOM, list[int]()
    # by rank, as far as there is room; a bar comes first, so that there is room for names as well
    ranks = [0 if column.field == _BAR else column.rank for column in columns]
    for place in sorted(range(len(columns)), key=ranks.__getitem__):
        most = _BAR_CELLS if columns[place].field == _BAR else _LONGEST_NAME
        longest = max((len(row[place]) for row in rows), default=0)
        room -= max(len(columns[place].header), min(longest, most)) + _GAP
        if room < 0 and shown:
            break
        shown.append(place)
    cells = [
        _column(columns[place], [row[place] for row in rows], table) for place in sorted(shown)
    ]
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    hidden = len(table.rows) - len(rows)
    more = _lines([f"… {plural(hidden, 'more row')}"] if hidden > 0 else [], _DIM)
    return [f'<table style="{_TABLE}">{body}</table>', *more]


def _column(column: Column, texts: Sequence[str], table: Table) -> list[str]:
    """Returns the cells of a column: its header, then each text, name or bar."""
    side = "left" if column.is_name or column.field == _BAR else "right"
    style = f'align="{side}" style="{_CELL}{side}"'
    head = f"<th {style}>{escaped(column.header)}</th>"
    if column.field == _BAR:
        return [
            head,
            *(f"<td {style}>{_bar(share)}</td>" for share in table.rows[_BAR][: len(texts)]),
        ]
    if not column.is_name:
        return [head, *(f"<td {style}>{escaped(text)}</td>" for text in texts)]
    short = list(texts)
    if any(len(text) > _LONGEST_NAME for text in texts):
        short = short_names(without_prefix(texts)[0], _LONGEST_NAME)
    titles = (f' title="{escaped(t)}"' if t != s else "" for t, s in zip(texts, short, strict=True))
    pairs = zip(short, titles, strict=True)
    return [head, *(f"<td {style}{title}>{escaped(text)}</td>" for text, title in pairs)]


def _bar(share: float) -> str:
    if math.isnan(share):
        return ""
    width = f"width:{_BAR_EM * min(max(share, 0), 1):.2f}em"
    return f'<div style="background:#4878a8;height:.8em;{width}"></div>'
