"""Traces that an earlier tracer wrote: every kind opens, and renders to the same table.

The fixtures were written by the last commit before the packages were rearranged, and the CSV
files beside them by its `tracer report`.
"""

import io
from pathlib import Path

import pandas as pd
import pytest

import tracer
import tracer.cli

TRACES = Path(__file__).parents[1] / "fixtures" / "traces"
KINDS = sorted(path.stem for path in TRACES.glob("*.trace"))


def test_there_is_a_fixture_of_each_kind():
    assert KINDS == ["count", "framework", "profile", "sums", "whatif"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
def test_an_older_trace_renders_to_the_same_rows(kind, tmp_path):
    written = tmp_path / "rows.csv"
    assert tracer.cli.main(["report", str(TRACES / f"{kind}.trace"), "-o", str(written)]) == 0
    expected = pd.read_csv(TRACES / f"{kind}.csv")
    rows = pd.read_csv(io.StringIO(written.read_text()))
    assert set(expected.columns) <= set(rows.columns)  # columns may be added, none may go
    pd.testing.assert_frame_equal(rows[expected.columns], expected)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "whatif"])
def test_an_older_trace_loads(kind):
    trace = tracer.load(TRACES / f"{kind}.trace")
    assert len(trace.nodes) == len(pd.read_csv(TRACES / f"{kind}.csv"))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [80, 160])
def test_an_older_trace_is_shown_in_the_terminal(kind, width, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    assert tracer.cli.main(["report", str(TRACES / f"{kind}.trace")]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) > 5
    assert max(map(len, lines)) <= width
