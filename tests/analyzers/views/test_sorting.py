"""Rows in the order of a column that the user names."""

import csv
import io
import json

import pandas as pd
import pytest
from rich.console import Console

import tracer
from tests.graphs import integers
from tracer.analyzers.grouping import grouped
from tracer.analyzers.options import NODE_GROUPINGS, ViewOptions, sort_column
from tracer.analyzers.views import render, show
from tracer.analyzers.views.trace import page
from tracer.errors import UsageError


def column(result, name, extension="csv", **options):
    """The column `name` of a file, missing cells left out."""
    data = render(result, extension, ViewOptions(**options)).decode()
    if extension == "json":
        rows = json.loads(data)["runs"][0]["nodes"]
    else:
        rows = list(csv.DictReader(io.StringIO(data)))
    return [row[name] for row in rows if row[name] not in ("", None)]


def screen(result, **options):
    console = Console(width=200, record=True, file=io.StringIO())
    show(result, console, ViewOptions(**options))
    return console.export_text()


@pytest.mark.one_in(5)
@pytest.mark.parametrize("extension", ["csv", "json"])
@pytest.mark.parametrize("by", ["node", "op"])
@pytest.mark.parametrize("name", ["macs", "params", "bytes_written", "time_us"])
def test_amounts_go_downwards(trace, extension, by, name):
    values = [float(v) for v in column(trace, name, extension, by=by, sort=name)]
    assert values == sorted(values, reverse=True)
    assert len(values) > 1


def test_names_and_positions_go_upwards(trace):
    positions = [int(v) for v in column(trace, "index", sort="index")]
    assert positions == list(range(len(positions)))
    names = column(trace, "op_type", by="op", sort="op")
    assert names == sorted(names)


@pytest.mark.parametrize("typed", ["time_us_total", "total µs", "total", "TOTAL"])
def test_a_column_is_named_as_in_files_or_as_its_header(typed):
    assert sort_column(typed, "kernel").name == "time_us_total"


def test_the_first_rows_are_those_of_the_chosen_order(counted):
    everything = column(counted, "params", sort="params")
    assert column(counted, "params", sort="params", top=2) == everything[:2]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("sort", ["op", "max error", "node"])
def test_every_table_of_a_page_is_in_the_chosen_order(sort):
    narrow = tracer.interpret(integers(), accumulator=14)
    spec = sort_column(sort, "node")
    tables = page(narrow, ViewOptions(sort=sort)).tables
    assert len(tables) == 2
    for table in tables:
        values = table.rows[spec.name].dropna()
        assert len(values) > 1
        assert values.is_monotonic_increasing if spec.is_name else values.is_monotonic_decreasing
    lines = screen(narrow, sort=sort).splitlines()
    shown = [line.split()[0] for line in lines if line[:3] in (" c ", " f ", " m ", " r ")]
    assert shown == [str(node) for table in tables for node in table.rows["node"]]


def test_rows_without_a_value_stay_in_their_usual_order(counted):
    assert "no row has a value of time, so the rows are in their usual order" in screen(
        counted, sort="time"
    )
    assert column(counted, "node", sort="time_us", top=9) == column(counted, "node", top=9)


@pytest.mark.parametrize("by", NODE_GROUPINGS)
def test_a_column_that_the_rows_lack_is_refused_with_those_they_have(trace, by):
    with pytest.raises(UsageError, match=f"rows by {by} have no column 'speed'") as caught:
        render(trace, "csv", ViewOptions(by=by, sort="speed"))
    assert "time µs" in str(caught.value.hint)
    other = {"node": "total µs", "kernel": "index"}.get(by, "index")
    with pytest.raises(UsageError, match="no column"):
        sort_column(other, by)


@pytest.mark.parametrize("by", NODE_GROUPINGS)
def test_every_column_of_grouped_rows_can_be_sorted_by(trace, by):
    (run,) = trace.runs
    rows = grouped(trace.nodes, by, run)
    unsorted = ["also_holds", "timed_in", *(["nodes"] if by == "kernel" else [])]
    for name in rows.columns.drop(unsorted, errors="ignore"):
        assert sort_column(name, by).name == name


def test_the_share_of_the_total_is_of_the_time_of_all_kernels(trace):
    rows = pd.read_csv(io.BytesIO(render(trace, "csv", ViewOptions(by="kernel"))))
    share = rows["time_us_total"] / rows["time_us"].sum()
    assert rows["time_total_share"].tolist() == pytest.approx(share.tolist(), nan_ok=True)
