"""Notebooks and spreadsheets: read by nbformat and openpyxl, which wrote neither."""

import io
import json
import xml.etree.ElementTree as ElementTree

import pandas as pd
import pytest

from tests.formats.test_hostile import NAMES, hostile
from tracer.analyzers import views
from tracer.analyzers.options import ViewOptions


def workbook(trace, options=ViewOptions()):  # noqa: B008
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("xlsxwriter")
    return openpyxl.load_workbook(io.BytesIO(views.render(trace, "xlsx", options)))


@pytest.mark.parametrize("name", ["profile", "framework", "sums", "count"])
def test_a_sheet_holds_every_value_of_the_table(name, request):
    trace = request.getfixturevalue(name)
    book = workbook(trace)
    header, *rows = book["table"].iter_rows(values_only=True)
    table = trace.nodes.dropna(axis="columns", how="all")
    assert list(header) == list(table.columns) and len(rows) == len(table)
    for place, column in enumerate(header):
        for cell, value in zip((row[place] for row in rows), table[column], strict=True):
            if pd.isna(value) or value == "":
                assert cell in (None, "")
            else:
                assert cell == value if isinstance(value, str) else cell == pytest.approx(value)


def test_the_chart_is_of_the_longest_rows(profile):
    sheet = workbook(profile)["chart"]
    longest = profile.nodes.sort_values("time_us", ascending=False)
    rows = list(sheet.iter_rows(min_row=2, max_col=2, values_only=True))
    assert [row[0] for row in rows] == longest["node"][: len(rows)].tolist()
    assert [row[1] for row in rows] == pytest.approx(longest["time_us"][: len(rows)].tolist())
    assert len(sheet._charts) == 1


def test_no_cell_is_a_formula_or_a_link(sums):
    book = workbook(hostile(sums))
    texts = [cell for sheet in book for row in sheet.iter_rows() for cell in row if cell.value]
    assert all(cell.data_type in ("s", "n") and cell.hyperlink is None for cell in texts)
    found = {cell.value for cell in texts}
    assert {name for name in NAMES if name[0] in "=+-@"} <= found


def test_a_spreadsheet_is_the_same_each_time(profile):
    pytest.importorskip("xlsxwriter")
    assert views.render(profile, "xlsx") == views.render(profile, "xlsx")


@pytest.mark.parametrize("name", ["profile", "framework", "sums", "count"])
def test_a_notebook_is_valid_and_its_data_are_the_table(name, request):
    trace = request.getfixturevalue(name)
    content = views.render(trace, "ipynb")
    notebook = json.loads(content)
    names = {}
    exec(notebook["cells"][1]["source"], names)
    table = trace.nodes.dropna(axis="columns", how="all")
    again = names["table"]
    assert list(again.columns) == list(table.columns)
    for column in again.columns:
        if table[column].dtype.kind in "iuf":
            expected = table[column].astype("float64").to_numpy(na_value=float("nan"))
            assert again[column].to_numpy("float64") == pytest.approx(expected, nan_ok=True)
    assert notebook["cells"][2]["outputs"][0]["data"]["image/svg+xml"].startswith("<svg")
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.reads(content.decode(), 4))


def test_what_a_notebook_shows_is_text(sums):
    notebook = json.loads(views.render(hostile(sums), "ipynb"))
    html = notebook["cells"][1]["outputs"][0]["data"]["text/html"]
    tags = {element.tag for element in ElementTree.fromstring(html).iter()}
    assert tags == {"table", "thead", "tbody", "tr", "th", "td"}
    picture = notebook["cells"][2]["outputs"][0]["data"]["image/svg+xml"]
    kinds = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(picture).iter()}
    assert kinds == {"svg", "text", "rect"}
