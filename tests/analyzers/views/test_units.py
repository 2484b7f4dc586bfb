"""Times have the unit that fits them: each of a headline, one for a column; files keep µs."""

import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

import tracer
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import render, show
from tracer.analyzers.views.text import duration, time_number

STORED = Path(__file__).parents[2] / "fixtures" / "traces" / "profile.trace"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.00 µs"), (4.8, "4.80 µs"), (217.5, "217.5 µs"), (999.4, "999.4 µs"), (999.6, "1.00 ms"),
     (28_153, "28.2 ms"), (99_960, "100 ms"), (999_600, "1.00 s"), (1_240_000, "1.24 s"),
     (3.6e9, "3,600 s"), (-28_153, "-28.2 ms"), (math.nan, ""), (None, "")],
)  # fmt: skip
def test_a_time_has_its_unit(value, text):
    assert duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(12.345, "12.35"), (0.31, "0.31"), (0.0042, "0.004"), (0.0004, "0.0004"), (1e-9, "0.0000"),
     (0.0, "0.00")],
)  # fmt: skip
def test_small_times_of_a_large_unit_keep_a_digit(value, text):
    assert time_number(value) == text


def slowed(factor):
    """The stored runs, as if everything had taken longer."""
    trace = tracer.load(STORED)
    times = [name for name in trace.nodes if name.startswith("time_us")]
    times = trace.nodes[times].select_dtypes("float64").columns
    nodes = trace.nodes.assign(**{name: trace.nodes[name] * factor for name in times})
    runs = tuple(replace(run, wall_us=run.wall_us * factor) for run in trace.runs)
    return replace(trace, nodes=nodes, runs=runs)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("factor", "unit"), [(1, "µs"), (1e4, "ms"), (1e7, "s")])
def test_all_times_of_a_table_have_the_unit_of_the_largest(factor, unit):
    trace, stream = slowed(factor), io.StringIO()
    show(trace, Console(file=stream, width=200), ViewOptions(top=0))
    text = stream.getvalue()
    assert set(re.findall(r" (?:time|raw) (\w+) ", text.split("nodes:")[0])) == {unit}
    longest = trace.nodes.loc[trace.nodes["time_us"].idxmax()]
    scale = {"µs": 1, "ms": 1e3, "s": 1e6}[unit]
    assert f" {time_number(longest['time_us'] / scale)} " in text
    assert f"time {unit}" in render(trace, "md").decode()


def test_a_stalled_run_does_not_set_the_unit():
    trace, stream = slowed(1), io.StringIO()
    longest = trace.nodes["time_us"].idxmax()
    stalled = trace.nodes["time_us_p95"].where(trace.nodes.index != longest, 54_321.0)
    trace = replace(trace, nodes=trace.nodes.assign(time_us_p95=stalled))
    show(trace, Console(file=stream, width=200), ViewOptions(top=0))
    assert " time µs " in stream.getvalue() and " 54,321 " in stream.getvalue()


def test_files_for_programs_keep_microseconds():
    trace = slowed(1e4)
    csv = pd.read_csv(io.BytesIO(render(trace, "csv")))
    assert csv["time_us"].tolist() == pytest.approx(trace.nodes["time_us"].tolist(), nan_ok=True)
    rows = json.loads(render(trace, "json"))["runs"][0]["nodes"]
    assert rows[0]["time_us"] == pytest.approx(trace.nodes["time_us"].iloc[0])


@pytest.mark.one_in(5)
@pytest.mark.parametrize("sort", ["time", "time µs", "time ms", "raw s"])
def test_rows_are_sorted_by_a_header_in_any_unit(sort):
    show(slowed(1), Console(file=io.StringIO()), ViewOptions(sort=sort))
