import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import tracer
from tests.analyzers.views.conftest import HOSTILE
from tests.graphs import DATA_DEPENDENT, parse
from tracer.analyzers.grouping import grouped
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import render, show
from tracer.analyzers.views.text import bar, si
from tracer.errors import UsageError


def screen(trace, width, **options):
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False, force_terminal=False)
    show(trace, console, ViewOptions(**options))
    return stream.getvalue()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("width", [60, 80, 120, 160, 240])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(trace, width):
    lines = screen(trace, width).splitlines()
    assert max(map(len, lines)) <= width
    head = next(line for line in lines if re.search("time [µm]s", line))
    assert "share" in head
    assert bool(re.search("raw [µm]s", head)) == (width >= 160)


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
    text = render(trace, "csv").decode()
    again = pd.read_csv(io.StringIO(text))
    assert again["macs"].tolist() == trace.nodes["macs"].tolist()
    assert again["time_us"].tolist() == pytest.approx(trace.nodes["time_us"].tolist())
    names = [row["node"] for row in csv.DictReader(io.StringIO(text, newline=""))]
    assert names[0] == "'=1+1"


def test_no_name_in_a_csv_sends_a_terminal_escapes(counted):
    hostile = counted.nodes.assign(module="\x1b[2J\x00\r\n\u202e")
    data = render(replace(counted, nodes=hostile), "csv")
    assert not re.search(r"[^\n\x20-\x7e⏎]", data.decode())
    assert r"\x1b[2J\x00⏎\u202e" in data.decode()


def test_csv_of_a_grouping_has_a_row_a_group(trace):
    text = render(trace, "csv", ViewOptions(by="op", top=2)).decode()
    assert len(text.splitlines()) == 3


def test_markdown_escapes_what_would_end_a_cell_or_begin_a_tag(trace):
    text = render(trace, "md").decode()
    assert "a\\|b" in text
    assert "</script>" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1


def test_parquet_keeps_the_types(trace):
    pytest.importorskip("pyarrow")
    again = pd.read_parquet(io.BytesIO(render(trace, "parquet")))
    assert again["macs"].dtype == "Int64"
    assert again["node"].tolist() == trace.nodes["node"].tolist()


def test_json_holds_hostile_names_as_they_are(trace):
    data = json.loads(render(trace, "json"))
    names = [row["node"] for row in data["runs"][0]["nodes"]]
    assert names[: len(HOSTILE)] == HOSTILE


def test_a_format_there_is_none_of_is_refused_with_those_there_are(counted):
    with pytest.raises(UsageError, match=r"no format 'xls'.*csv, .*html, ipynb, json"):
        render(counted, "xls")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (1000, "1 k"), (2_359_296, "2.36 M"), (999_900, "1 M"),
     (999_999, "1 M"), (999.6, "1 k"), (2.5e15, "2500 T"),
     (1.8e9, "1.8 G"), (None, ""), (float("nan"), "")],
)  # fmt: skip
def test_counts_are_short(value, text):
    assert si(value) == text


def test_bars_grow_with_the_share():
    assert [len(bar(s, 8)) for s in (0.0, 0.5, 1.0, 2.0)] == [0, 4, 8, 8]
    assert bar(None, 8) == ""


def test_a_count_is_grouped_by_node_under_the_names_of_its_nodes(counted):
    rows = grouped(counted.nodes, "node")
    assert rows["node"].tolist() == ["c1", "r1", "c2", "sum", "r2", "pool", "flat", "y"]
    assert rows["nodes"].tolist() == [1] * 8
    assert "| c2 | Conv |" in render(counted, "md").decode()
    assert " node " in screen(counted, 80)


def test_a_node_that_is_called_as_a_kernel_is_not_taken_for_it(trace):
    nodes = trace.nodes.copy()
    nodes["kernels"] = "k"
    nodes.loc[1:, "kernels"] = None
    for name in ("k", "kernel k"):
        nodes.loc[3, "node"] = name
        assert len(grouped(nodes, "node")) == len(nodes)


def test_kernels_of_the_runtime_that_share_a_name_stay_apart(trace):
    own = trace.nodes.iloc[:2].assign(index=None, node=["runtime:k", "runtime:k#1"], kernels="k")
    folded = grouped(own.astype({"index": "Int64"}), "node")
    assert folded["nodes"].tolist() == [0, 0]  # they are no nodes of the model


@pytest.mark.one_in(5)
@pytest.mark.parametrize("by", ["node", "op", "module", "source"])
@pytest.mark.parametrize("extension", ["csv", "json", "md", "parquet", "png", "svg"])
def test_every_view_takes_a_model_without_nodes(by, extension, empty):
    pytest.importorskip({"parquet": "pyarrow", "png": "matplotlib", "svg": "matplotlib"}.get(
        extension, "csv"))  # fmt: skip
    assert render(empty, extension, ViewOptions(by=by))


def test_a_model_without_nodes_still_has_its_wall_and_totals(empty):
    for text in (screen(empty, 80), render(empty, "md").decode()):
        assert "5 runs" in text
        assert "wall" in text
        assert "0 nodes: 0 MACs, 0 flops, 0 parameters, 0 B moved" in text
    assert json.loads(render(empty, "json"))["runs"][0]["wall_us"]["mean"] > 0


def test_json_is_folded_and_shortened_as_it_is_asked_to_be(counted):
    data = json.loads(render(counted, "json", ViewOptions(by="op", top=2)))
    (run,) = data["runs"]
    assert run["by"] == "op"
    assert [(row["op_type"], row["nodes"]) for row in run["nodes"]] == [("Conv", 2), ("Gemm", 1)]
    assert (run["wall_us"], run["coverage"], run["inputs"]) == (None, None, None)


@pytest.mark.parametrize("by", ["op", "module"])
def test_groups_of_a_count_are_sorted_by_macs_in_files_too(counted, by):
    rows = list(csv.DictReader(io.StringIO(render(counted, "csv", ViewOptions(by=by)).decode())))
    macs = [int(row["macs"]) for row in rows]
    assert macs == sorted(macs, reverse=True)
    assert by == "module" or rows[0]["op_type"] == "Conv"


def test_the_top_of_a_file_are_its_largest_rows(counted):
    rows = csv.DictReader(io.StringIO(render(counted, "csv", ViewOptions(top=2)).decode()))
    assert [row["node"] for row in rows] == ["c2", "c1"]


def test_what_is_not_known_makes_a_total_a_lower_bound(counted):
    assert "8 nodes: 701 k MACs, " in screen(counted, 80)
    nodes = counted.nodes.copy()
    nodes.loc[0, ["macs", "flops", "bytes_read"]] = None
    text = screen(replace(counted, nodes=nodes), 160)
    assert "at least 590 k MACs, at least 1.2 M flops, " in text
    assert re.search("at least [0-9]+ kB moved", text)
    nodes["macs"] = pd.array([None] * len(nodes), "Int64")
    assert "8 nodes: unknown MACs" in screen(replace(counted, nodes=nodes), 160)


def test_work_that_depends_on_the_data_is_at_least_what_is_known():
    assert re.search("at least .* moved", screen(tracer.count(parse(DATA_DEPENDENT)), 160))


def test_numbers_stand_apart_from_their_unit_and_one_is_singular():
    text = '<ir_version: 8, opset_import: ["": 16]> g (float[2] x) => (float[2] y) { y = Relu (x) }'
    trace = tracer.profile(parse(text), runs=1, threads=1)
    shown = screen(trace, 160)
    assert "1 node: " in shown
    assert "16 B moved" in shown
    assert "1 thread · 1 run\n" in shown


def test_what_did_not_run_has_no_calls(trace):
    nodes = trace.nodes.copy()
    nodes.loc[2, ["calls", "time_us", "time_share"]] = None
    assert "nan" not in screen(replace(trace, nodes=nodes), 300)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("width", [20, 30, 40, 60, 120])
def test_a_narrow_terminal_shows_times_and_cuts_names(trace, width):
    nodes = trace.nodes.assign(
        op_type="AnOperatorOf25Characters!", module="a.module.of.a.long.name"
    )
    lines = screen(replace(trace, nodes=nodes), width).splitlines()
    head = next(line for line in lines if re.search("time [µm]s", line))
    assert max(map(len, lines)) <= width
    for column, least in (
        ("node", 20), ("share", 30), ("op", 40), ("module", 60), ("±", 120), ("MACs", 120),
    ):  # fmt: skip
        assert (column in head) or width < least


def test_a_kernel_fused_across_modules_names_them_all(trace):
    nodes = trace.nodes.assign(module=["a", "a", "b", "c", "", "d", "d", "e"])
    nodes["kernels"] = ["k1", "k1", "k2", "k2", "k3", "k3", "k4", "k5"]
    nodes.loc[[1, 3, 5], "time_us"] = None
    folded = grouped(nodes, "module").set_index("module")
    assert list(folded.index) == ["a", "b", "c", "(root)", "d", "e"]
    assert folded["time_us"].sum() == pytest.approx(nodes["time_us"].sum())
    assert folded["also_holds"].dropna().to_dict() == {"b": "c", "(root)": "d"}
    assert folded["timed_in"].dropna().to_dict() == {"c": "b", "d": "(root)"}
    assert folded["time_us"].isna().tolist() == [False, False, True, False, False, False]


@pytest.fixture
def fused(trace):
    """Nodes of nested modules and several lines, every two of them run by one kernel."""
    nodes = trace.nodes.assign(
        module=["a.0", "a.1", "a.1", "b.0", "b.0", "b.0", None, ""],
        source=[f"folder/of/nets/net.py:{line}" for line in (3, 4, 4, 3, 9, 9, 9)] + [None],
    )
    nodes["kernels"] = ["k1", "k1", "k2", "k2", "k3", "k3", "k4", "k5"]
    nodes.loc[[1, 3, 5], ["time_us", "time_us_raw", "time_share"]] = None
    return replace(trace, nodes=nodes)


@pytest.mark.nightly
def test_every_view_tells_of_kernels_fused_across_modules_and_not_of_those_within_one(fused):
    for shown in (screen(fused, 160, by="module"), md(fused, by="module")):
        assert "also holds" in shown and "timed in" in shown
        assert "2 modules also hold time of others" in shown
    for shown in (screen(fused, 160, by="module", depth=1), md(fused, by="module", depth=1)):
        assert "1 module also holds time of others" in shown
    data = json.loads(render(fused, "json", ViewOptions(by="module", depth=1)))
    rows = {row["module"]: row for row in data["runs"][0]["nodes"]}
    # on a busy machine, of some no more is known than a bound: these follow in the model's order
    told = [name for name, row in rows.items() if row["time_us_ci95_low"] != 0]
    assert told == sorted(told, key=lambda name: rows[name]["time_us"], reverse=True)
    assert told == list(rows)[: len(told)]
    assert set(rows) == {"a", "b", "(no module)", "(root)"}
    assert (rows["a"]["also_holds"], rows["b"]["timed_in"]) == ("b", "a")
    assert rows["a"]["timed_in"] is None
    whole = fused.nodes["time_us"].sum()
    assert sum(row["time_us"] for row in rows.values()) == pytest.approx(whole)


@pytest.mark.parametrize("width", [80, 160])
def test_of_a_source_that_must_be_cut_the_file_and_line_stay(fused, width):
    long = fused.nodes.assign(source="a_long_folder/" * 12 + fused.nodes["source"])
    shown = screen(replace(fused, nodes=long), width, by="source")
    assert max(map(len, shown.splitlines())) <= width
    for line in (3, 4, 9):
        assert f"net.py:{line} " in shown
    assert "(no source)" in shown


def md(trace, **options):
    return render(trace, "md", ViewOptions(**options)).decode()


@pytest.mark.parametrize("extension", ["csv", "json", "md", "parquet", "png", "svg"])
def test_no_view_shows_a_depth_of_anything_but_modules(trace, extension):
    pytest.importorskip({"parquet": "pyarrow", "png": "matplotlib", "svg": "matplotlib"}.get(
        extension, "csv"))  # fmt: skip
    with pytest.raises(UsageError, match="--by module"):
        render(trace, extension, ViewOptions(depth=2))


def test_nodes_that_took_longer_than_the_wall_are_no_share_of_it():
    """The interpreter times a whole run, and the nodes of another."""
    trace = tracer.interpret("models/lenet/lenet.onnx", in_process=True)
    (run,) = trace.runs
    nodes_us = float(trace.nodes["time_us"].sum())
    for wall_us, shown in ((nodes_us / 2, "in a slower run"), (nodes_us * 2, "50% of wall")):
        timed = replace(trace, runs=(replace(run, wall_us=np.array([wall_us])),))
        assert f", {shown}" in render(timed, "md", ViewOptions()).decode()
