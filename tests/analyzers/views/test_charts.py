import re
import warnings
from dataclasses import replace

import pandas as pd
import pytest

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import render
from tracer.analyzers.views.trace import charts

pytest.importorskip("matplotlib")


def png(trace, tmp_path, **options):
    """The chart as an array (height × width × 4)."""
    from matplotlib.image import imread

    (tmp_path / "c.png").write_bytes(render(trace, "png", ViewOptions(**options)))
    return imread(tmp_path / "c.png")


def svg(trace, **options):
    """The chart's text, which an SVG keeps in comments, and whether a bar is red."""
    text = render(trace, "svg", ViewOptions(**options)).decode()
    return re.findall("<!-- (.*) -->", text), bool(re.search("<path [^>]*fill: #c44e52", text))


def test_charts_are_pictures_and_the_same_trace_gives_the_same_svg(trace):
    assert render(trace, "png")[:8] == b"\x89PNG\r\n\x1a\n"
    first, second = (render(trace, "svg", ViewOptions(threshold=1.0)) for _ in range(2))
    assert first == second
    assert first != render(trace, "svg", ViewOptions(threshold=1e6))


def test_the_chart_reddens_the_rows_of_half_of_the_work_and_says_so(counted):
    texts, red = svg(counted)
    macs = counted.nodes["macs"].sort_values(ascending=False)
    half = macs[macs.cumsum() - macs < macs.sum() / 2]
    red_macs = macs[macs >= 0.9 * half.min()]
    share = f"{red_macs.sum() / macs.sum():.0%} of the MACs"
    assert any(re.match(rf"red: ≥ .* MACs: {len(red_macs)} rows? holds? {share}", t) for t in texts)
    assert red


@pytest.mark.nightly
def test_a_chart_names_fifteen_rows_and_sums_the_rest(counted):
    nodes = pd.concat([counted.nodes] * 3, ignore_index=True)
    nodes["node"] = pd.array([f"n{place}" for place in range(len(nodes))], "string")
    nodes["macs"] = pd.array(range(100, 100 + len(nodes)), "Int64")
    many = replace(counted, nodes=nodes)
    texts, _ = svg(many)
    assert [text for text in texts if re.fullmatch(r"n\d+", text)] == [
        f"n{i}"
        for i in reversed(range(9, 24))  # the largest first
    ]
    rest, total = sum(range(100, 109)), sum(range(100, 124))
    assert f"9 more rows: {rest} MACs, {rest / total:.1%} of all" in texts
    assert any(text.startswith("20 more rows: ") for text in svg(many, top=4)[0])
    assert not any("more" in text for text in svg(many, top=0)[0])


def test_the_rest_flattens_no_bar_and_axes_have_units(counted):
    nodes = counted.nodes.assign(macs=pd.array([10, *[9] * 7], "Int64"))
    (panel,) = charts.times_figure(replace(counted, nodes=nodes), ViewOptions(top=1)).axes
    assert [bar.get_width() for bar in panel.patches] == [10]
    assert panel.get_xlim()[1] < 2 * 10 and panel.get_xlabel() == "MACs per run"
    assert all(label.get_rotation() == 0 for label in panel.get_yticklabels())


def test_bars_that_are_nearly_equal_are_all_plain(counted):
    nodes = counted.nodes.assign(macs=pd.array(range(100, 108), "Int64"))
    texts, red = svg(replace(counted, nodes=nodes))
    assert not red
    assert not any(text.startswith("red") for text in texts)


def test_rows_that_are_about_as_long_are_red_together(counted):
    for macs, is_red in (([90] * 6 + [10, 20], False), ([90] * 3 + [10] * 5, True)):
        nodes = counted.nodes.assign(macs=pd.array(macs, "Int64"))
        assert svg(replace(counted, nodes=nodes))[1] == is_red


def test_nodes_with_alike_names_have_labels_of_their_own(counted):
    names = [f"/model/encoder/layers.{n}/self_attention/query/MatMul" for n in range(8)]
    texts, _ = svg(replace(counted, nodes=counted.nodes.assign(node=pd.array(names, "string"))))
    assert all(any(text.startswith(f"…{n}/") for text in texts) for n in range(8))
    assert "… before a name stands for /model/encoder/layers." in texts


@pytest.mark.nightly
def test_a_threshold_is_one_of_time(trace, counted):
    assert any(text == "red: ≥ 0.50 µs" for text in svg(trace, threshold=0.5)[0])
    assert svg(counted, threshold=0.5) == svg(counted)


def test_a_chart_without_heights_begins_at_zero(counted):
    nodes = counted.nodes.assign(macs=pd.array([0] * 8, "Int64"))
    texts, red = svg(replace(counted, nodes=nodes))
    assert not red
    assert "0" in texts
    assert not any(text.startswith("\N{MINUS SIGN}") for text in texts)


@pytest.mark.nightly
def test_the_title_and_what_red_means_are_on_lines_of_their_own(counted, tmp_path):
    model = replace(counted.model, name="a long name of a model " * 8)
    named, plain = (png(t, tmp_path) for t in (replace(counted, model=model), counted))
    assert named.shape == plain.shape
    red = (named[..., 0] > 0.6) & (named[..., 1] < 0.5) & (named[..., 2] < 0.5)
    black = named[..., :3].max(axis=2) < 0.3
    first_red = int(red.any(axis=1).argmax())
    assert black[:first_red].any()  # the title, above
    assert not black[first_red : first_red + 8].any()  # and nothing of it beside


def test_letters_that_the_font_lacks_warn_nobody(counted, tmp_path):
    model = replace(counted.model, name="모델 \U0001f642")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        png(replace(counted, model=model), tmp_path)
