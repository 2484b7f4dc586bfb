"""`.xlsx`: the table with a chart, for spreadsheets (needs the `excel` extra)."""

import io
import math
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats import Extra, Format
from tracer.analyzers.views.file_formats.csv import LONGEST_CELL
from tracer.analyzers.views.page import longest_rows
from tracer.text import printable

_WIDEST = 40
_LARGEST_EXACT = 2**53
"""Spreadsheets compute in float64: a larger integer is a text, so that no digit is lost."""

_CREATED = datetime(2000, 1, 1, tzinfo=UTC)
"""Any fixed time: the same table gives the same file."""


def render(table: pd.DataFrame, options: ViewOptions) -> bytes:
    """An Office Open XML workbook; a missing value is an empty cell.

    Texts are cells of text, so one that begins with `=`, `+`, `-` or `@` is no formula, and no
    text is a link. Columns without any value are left out.
    """
    import xlsxwriter

    content = io.BytesIO()
    table = table.dropna(axis="columns", how="all")
    with xlsxwriter.Workbook(content, {"in_memory": True}) as book:
        book.set_properties({"created": _CREATED})
        sheet = book.add_worksheet("table")
        heading = book.add_format({"bold": True, "bottom": 1})
        for place, name in enumerate(table.columns):
            values = table[name].astype(object).where(table[name].notna(), None).tolist()
            sheet.write_string(0, place, printable(str(name)), heading)
            for row, value in enumerate(values, 1):
                _write(sheet, row, place, value)
            shown = [str(name), *(v for v in values[:100] if isinstance(v, str))]
            sheet.set_column(place, place, min(max(map(len, shown)) + 2, _WIDEST))
        sheet.freeze_panes(1, 1)
        if len(table.columns):
            sheet.autofilter(0, 0, len(table), len(table.columns) - 1)
        column, rows = longest_rows(table)
        if rows:
            sheet = book.add_worksheet("chart")
            sheet.set_column(0, 0, _WIDEST)
            sheet.write_string(0, 1, column)
            for row, (label, amount) in enumerate(rows, 1):
                sheet.write_string(row, 0, label)
                _write(sheet, row, 1, amount)
            chart = book.add_chart({"type": "bar"})
            labels, amounts = (["chart", 1, place, len(rows), place] for place in (0, 1))
            chart.add_series({"name": column, "categories": labels, "values": amounts})
            chart.set_y_axis({"reverse": True})
            chart.set_legend({"none": True})
            chart.set_title({"name": f"largest {column}"})
            sheet.insert_chart("D2", chart, {"x_scale": 1.5, "y_scale": 1.5})
    return content.getvalue()


def _write(sheet: Any, row: int, column: int, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        sheet.write_boolean(row, column, value)
    elif isinstance(value, int | float) and abs(value) <= _LARGEST_EXACT:
        sheet.write_number(row, column, value)
    elif not (isinstance(value, float) and math.isinf(value)):
        sheet.write_string(row, column, printable(str(value), LONGEST_CELL))


FORMATS = (Format("xlsx", "table", render, is_binary=True, needs=Extra("xlsxwriter", "excel")),)
