import csv
import io
import json

import pandas as pd
import pytest
from rich.console import Console

import tracer
from analyzers.grouping import grouped
from analyzers.views import ViewOptions, _format, renderer, terminal
from tests.graphs import residual
from tracer.errors import UsageError

HOSTILE = ["=1+1", "\x1b[31mred", "[bold]x[/bold]", "</script>", "a|b", "\u202ereversed", "x" * 300]


@pytest.fixture(scope="module")
def trace():
    proto = residual()
    for node, name in zip(proto.graph.node, HOSTILE, strict=False):
        node.name = name
    return tracer.profile(proto, runs=5, threads=1, optimization="none")


def screen(trace, width, **options):
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False, force_terminal=False)
    terminal.render(trace, ViewOptions(**options), console)
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120, 160, 240])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(trace, width):
    lines = screen(trace, width).splitlines()
    assert max(map(len, lines)) <= width
    head = next(line for line in lines if "time µs" in line)
    assert "share" in head
    assert ("raw µs" in head) == (width >= 120)


def test_escape_sequences_and_direction_marks_are_shown_and_markup_is_text(trace):
    text = screen(trace, 160)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31mred" in text
    assert "[bold]x[/bold]" in text


def test_rows_are_sorted_by_time_and_what_is_hidden_is_told(trace):
    text = screen(trace, 100, top=3)
    assert "5 more" in text
    everything = screen(trace, 100, top=0)
    assert "more (" not in everything


def test_groupings_keep_the_totals(trace):
    for by in ("node", "op", "module"):
        folded = grouped(trace.nodes, by)
        for column in ("time_us", "macs", "flops", "bytes_read"):
            assert folded[column].sum() == pytest.approx(trace.nodes[column].sum())
    assert grouped(trace.nodes, "op").set_index("op_type").loc["Conv", "nodes"] == 2
    with pytest.raises(UsageError, match="cannot group by 'colour'"):
        grouped(trace.nodes, "colour")


def test_csv_is_read_back_and_no_cell_is_a_formula(trace):
    text = renderer("csv")(trace, ViewOptions()).decode()
    again = pd.read_csv(io.StringIO(text))
    assert again["macs"].tolist() == trace.nodes["macs"].tolist()
    assert again["time_us"].tolist() == pytest.approx(trace.nodes["time_us"].tolist())
    names = [row["node"] for row in csv.DictReader(io.StringIO(text, newline=""))]
    assert names[0] == "'=1+1"


def test_csv_of_a_grouping_has_a_row_a_group(trace):
    text = renderer("csv")(trace, ViewOptions(by="op", top=2)).decode()
    assert len(text.splitlines()) == 3


def test_markdown_escapes_what_would_end_a_cell_or_begin_a_tag(trace):
    text = renderer("md")(trace, ViewOptions()).decode()
    assert "a\\|b" in text
    assert "</script>" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1


def test_parquet_keeps_the_types(trace):
    pytest.importorskip("pyarrow")
    again = pd.read_parquet(io.BytesIO(renderer("parquet")(trace, ViewOptions())))
    assert again["macs"].dtype == "Int64"
    assert again["node"].tolist() == trace.nodes["node"].tolist()


def test_charts_are_pictures_and_the_same_trace_gives_the_same_svg(trace):
    pytest.importorskip("matplotlib")
    assert renderer("png")(trace, ViewOptions())[:8] == b"\x89PNG\r\n\x1a\n"
    first, second = (renderer("svg")(trace, ViewOptions(threshold=1.0)) for _ in range(2))
    assert first == second
    assert first != renderer("svg")(trace, ViewOptions(threshold=1e6))


def test_json_holds_hostile_names_as_they_are(trace):
    data = json.loads(renderer("json")(trace, ViewOptions()))
    names = [row["node"] for row in data["runs"][0]["nodes"]]
    assert names[: len(HOSTILE)] == HOSTILE


def test_a_format_there_is_none_of_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match=r"no format 'xls'.*csv, json"):
        renderer("xls")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (1000, "1 k"), (2_359_296, "2.36 M"), (999_900, "1000 k"),
     (1.8e9, "1.8 G"), (None, ""), (float("nan"), "")],
)  # fmt: skip
def test_counts_are_short(value, text):
    assert _format.si(value) == text


def test_bars_grow_with_the_share():
    assert [len(_format.bar(s, 8)) for s in (0.0, 0.5, 1.0, 2.0)] == [0, 4, 8, 8]
    assert _format.bar(None, 8) == ""
