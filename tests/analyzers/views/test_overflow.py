"""Narrow accumulators in every view."""

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
from tests import graphs
from tests.graphs import integers
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import render, show
from tracer.analyzers.views.trace import overflow
from tracer.storage import trace_file


@pytest.fixture(scope="module")
def narrow():
    return tracer.interpret(integers(), accumulator="c=14,*=40", batch=8)


def screen(trace, width, **options):
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False, force_terminal=False)
    show(trace, console, ViewOptions(**options))
    return stream.getvalue()


@pytest.mark.parametrize("width", [40, 80, 120, 160])
def test_the_table_fits_and_says_the_most_important_first(narrow, width):
    lines = screen(narrow, width).splitlines()
    assert max(map(len, lines)) <= width
    head = next(line for line in lines if "bits  " in line)
    for column, least in (
        ("overflow", 40), ("observed", 80), ("guaranteed", 80), ("transient", 80),
        ("max error", 120), ("partial sums", 160),
    ):  # fmt: skip
        assert (column in head) or width < least
    first = lines[lines.index(head) + 2].split()
    assert first[0] == "c"  # the node with the larger share of overflows


def test_words_come_first(narrow):
    nodes = narrow.nodes.set_index("node")
    first, second = overflow.sums_words(narrow.nodes)
    over = nodes.loc["c", "overflow_outputs"]
    assert first.startswith(f"1 of 2 nodes overflows at their widths, in {over} of ")
    assert second == (
        f"{nodes['bits_observed'].max()} bits suffice for this data, "
        f"{nodes['bits_guaranteed'].max()} bits for any input"
    )
    text = screen(narrow, 200)
    assert text.index(first) < text.index(second) < text.index("bits  ") < text.index(" time ")


def test_a_trace_that_lost_the_widths_is_shown_without_them(narrow):
    lost = narrow.nodes.assign(bits=pd.NA, bits_guaranteed=pd.NA).astype({"bits": "Int64"})
    first, second = overflow.sums_words(lost)
    assert "at their widths" in first
    assert second.endswith("no width is guaranteed for 2 nodes")
    assert "2 nodes with narrow accumulators" in screen(replace(narrow, nodes=lost), 160)


def test_words_for_what_never_overflows_and_what_is_not_guaranteed(narrow):
    wide = tracer.interpret(integers(), accumulator=30)
    assert overflow.sums_words(wide.nodes)[0] == "nothing overflows at 30 bits: 2 nodes, 53 outputs"
    nodes = narrow.nodes.copy()
    nodes.loc[nodes["node"] == "m", "bits_guaranteed"] = pd.NA
    assert overflow.sums_words(nodes)[1].endswith("; no width is guaranteed for 1 node")


PARTLY = """<ir_version: 9, opset_import: ["": 20]>
g (int8[4,8] a, float[8,39] b) => (float[4,2] y, float[4,39] z) {
  ad = DequantizeLinear (a, s)  wd = DequantizeLinear (w, s)
  y = MatMul (ad, wd)  z = MatMul (ad, b) }"""


def test_a_width_holds_for_any_input_of_those_nodes_alone_that_are_narrow():
    w = np.ones((8, 2), np.int8)
    model = graphs.parse(PARTLY, s=np.float32(0.5), w=w)
    partly = tracer.interpret(model, accumulator=20, in_process=True)
    # 4 x 8 x 2 = 64 MACs are narrow, and 4 x 8 x 39 = 1,248 are not: 64 / 1,312 = 4.9 %
    assert overflow.sums_words(partly.nodes)[1].endswith(
        "; guaranteed at 11 bits for any input: 1 of 2 nodes that multiply, with 4.9% of the MACs"
    )
    unknown = partly.nodes.copy()
    unknown.loc[unknown["node"] == "MatMul_3", "macs"] = pd.NA
    assert overflow.sums_words(unknown)[1].endswith(": 1 of 2 nodes that multiply")
    alone = partly.nodes[partly.nodes["node"] != "MatMul_3"]
    assert overflow.sums_words(alone)[1].endswith(", 11 bits for any input")


def test_words_for_pairs_that_saturate(narrow):
    assert "inner" not in overflow.sums_words(narrow.nodes)[1]
    nodes = narrow.nodes[narrow.nodes["bits"].notna()].assign(bits=32)
    assert overflow.sums_words(nodes)[1].endswith(
        "; no width keeps inner registers from overflowing"
    )
    known = overflow.sums_words(nodes.assign(bits_guaranteed_inner=17))[1]
    assert known.endswith("from overflowing, which need 17 bits for any input")


def test_a_trace_without_accumulators_says_nothing_of_them(counted):
    assert "overflow" not in screen(counted, 240)
    assert "overflow" not in render(counted, "md").decode()


def test_hidden_rows_are_told(narrow):
    assert "… 1 more; --top 0 shows all" in screen(narrow, 80, top=1)
    assert "1 more; " not in screen(narrow, 80, top=0)


def test_json_tells_accumulators_widths_and_channels(narrow):
    (run,) = json.loads(render(narrow, "json"))["runs"]
    conv, matmul = run["sums"]
    assert (conv["node"], matmul["node"]) == ("c", "m")
    assert conv["accumulator"] == {
        "bits": 14, "overflow": "saturate", "order": "sequential", "product_bits": None,
        "bias": "first", "convention": "twos-complement", "zero_points": "before",
    }  # fmt: skip
    rows = {row["node"]: row for row in run["nodes"]}
    at = {row["bits"]: row["overflow_outputs"] for row in conv["widths"]}
    assert at[14] == rows["c"]["overflow_outputs"]
    assert sum(row["outputs_changed"] for row in conv["channels"]) == rows["c"]["outputs_changed"]
    assert 0 < conv["mean_abs_error"] <= rows["c"]["max_abs_error"]
    assert (rows["f"]["bits"], rows["f"]["overflow_outputs"]) == (None, None)


def test_csv_has_whole_numbers_and_empty_cells(narrow):
    text = render(narrow, "csv").decode()
    rows = {row["node"]: row for row in csv.DictReader(io.StringIO(text))}
    assert rows["c"]["bits"] == "14"
    assert re.fullmatch("-[0-9]+", rows["c"]["acc_min"])
    assert rows["f"]["bits"] == rows["f"]["outputs"] == ""


def test_parquet_has_the_columns_as_integers(narrow):
    pytest.importorskip("pyarrow")
    again = pd.read_parquet(io.BytesIO(render(narrow, "parquet")))
    pd.testing.assert_frame_equal(again, narrow.nodes)


def test_markdown_has_the_words_and_the_columns(narrow):
    text = render(narrow, "md").decode()
    assert "- 1 of 2 nodes overflows at their widths" in text
    assert "| transient | persistent |" in text


@pytest.mark.one_in(3)
@pytest.mark.parametrize("by", ["op", "module"])
@pytest.mark.parametrize("extension", ["csv", "json", "md"])
def test_groups_are_shown_too(narrow, by, extension):
    assert render(narrow, extension, ViewOptions(by=by))
    assert "overflow" in screen(narrow, 100, by=by)


@pytest.mark.nightly
def test_a_saved_trace_shows_the_same(narrow, tmp_path):
    (tmp_path / "n.trace").write_bytes(trace_file.dumps(narrow))
    again = trace_file.load(tmp_path / "n.trace")
    assert screen(again, 160) == screen(narrow, 160)
    assert render(again, "json") == render(narrow, "json")
    pytest.importorskip("matplotlib")
    assert render(again, "svg") == render(narrow, "svg")


def svg(trace, **options):
    pytest.importorskip("matplotlib")
    text = render(trace, "svg", ViewOptions(**options)).decode()
    return re.findall("<!-- (.*) -->", text)


@pytest.mark.nightly
def test_the_picture_is_a_histogram_for_each_node(narrow):
    texts = svg(narrow)
    nodes = narrow.nodes.set_index("node")
    over, outputs = nodes.loc["c", ["overflow_outputs", "outputs"]]
    assert {"c", "m", "final sums", "beyond the accumulator"} <= set(texts)
    assert any(t.startswith(f"14 bits: {over:,} of {outputs:,} overflow; ") for t in texts)
    assert any(t.startswith("40 bits: 0 of 40 overflow; ") for t in texts)


def test_the_picture_can_be_of_the_widest_nodes_only(narrow):
    texts = svg(narrow, top=1)
    widest = narrow.nodes.set_index("node")["bits_observed"].idxmax()
    assert any(text.endswith("1 of 2 nodes") for text in texts)
    assert (widest in texts) and ({"c", "m"} - {widest}).isdisjoint(texts)


def test_a_hostile_name_is_drawn_as_text(narrow):
    run = narrow.runs[0]
    sums = tuple(replace(each, node="$\\frac{\x1b[31m") for each in run.sums)
    texts = svg(replace(narrow, runs=(replace(run, sums=sums),)))
    assert any("x1b" in text for text in texts)


def test_a_node_without_outputs_is_drawn(narrow):
    from tracer.accumulators.spec.accumulator import Accumulator
    from tracer.accumulators.statistics.partial_sums import PartialSums, Tally

    run = replace(narrow.runs[0], sums=(PartialSums("n", Tally.empty(2, Accumulator(64))),))
    assert any("no output" in text for text in svg(replace(narrow, runs=(run,))))
