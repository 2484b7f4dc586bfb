import itertools
from dataclasses import replace

import numpy as np
import pytest

import tracer
from tests.analyzers.views.conftest import HOSTILE
from tests.graphs import integers, residual
from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views import formats, render
from tracer.analyzers.views.trace import roofline
from tracer.errors import UsageError
from tracer.records.environment import Peak, Peaks
from tracer.records.trace import Trace

pytest.importorskip("matplotlib")

PEAKS = Peaks(1, Peak(100e9, "matmul"), Peak(20e9, "triad"), Peak(250e9, "int8 matmul"))


@pytest.fixture(scope="module")
def measured():
    """Every kernel took some time, so that all of them are points."""
    trace = tracer.profile(residual(), batch=[1, 4], runs=5, threads=1, peaks=lambda threads: PEAKS)
    return replace(trace, nodes=timed(trace.nodes))


def timed(nodes):
    known = nodes["time_us"].notna()
    rate = nodes["flops"].astype(float).where(known) / 10 / 1e3
    return nodes.assign(
        time_us=nodes["time_us"].mask(known, 10.0),
        time_share=nodes["time_share"].mask(known, 0.2),
        gflops_per_s=rate,
        gbytes_per_s=(rate / nodes["intensity"].astype(float)).where(rate > 0),
    )


def drawn(trace, **options):
    return roofline(trace, ViewOptions(**options))


@pytest.mark.nightly
def test_it_is_a_format_with_an_extension_of_two_parts(measured):
    assert {"roofline.png", "roofline.svg", "png"} <= set(formats(Trace))
    assert render(measured, "roofline.png")[:8] == b"\x89PNG\r\n\x1a\n"
    first, second = (render(measured, "roofline.svg") for _ in range(2))
    assert first == second
    assert first != render(measured, "svg")


@pytest.mark.filterwarnings("error")
def test_a_name_in_a_script_that_the_font_lacks_is_drawn_without_a_warning(measured):
    name = "\u6a21\u578b.onnx"
    nodes = measured.nodes.assign(node=name)
    named = replace(measured, model=replace(measured.model, name=name), nodes=nodes)
    assert render(named, "roofline.png")[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_panel_for_each_run_with_both_roofs_at_what_was_measured(measured):
    made = drawn(measured)
    assert len(made.axes) == 2
    for axes in made.axes:
        assert axes.get_xscale() == axes.get_yscale() == "log"
        texts = [text.get_text() for text in axes.texts]
        assert "memory 20 GB/s" in texts
        assert "float32 100 GFLOP/s" in texts
        slope, ceiling = (line.get_xydata() for line in axes.lines)
        np.testing.assert_allclose(slope[:, 1] / slope[:, 0], 20)
        np.testing.assert_allclose(ceiling[:, 1], 100)
        np.testing.assert_allclose(slope[-1], ceiling[0])  # they meet at the ridge
        np.testing.assert_allclose(slope[-1][0], 5)


@pytest.mark.nightly
def test_points_are_kernels_at_their_intensity_and_rate(measured):
    nodes = measured.nodes[measured.nodes["batch"] == 1]
    expected = {
        (round(float(row["gflops_per_s"] / row["gbytes_per_s"]), 6), round(row["gflops_per_s"], 6))
        for _, row in nodes.iterrows()
        if row["gflops_per_s"] > 0
    }
    points = np.concatenate([c.get_offsets() for c in drawn(measured).axes[0].collections])
    assert {(round(float(x), 6), round(float(y), 6)) for x, y in points} == expected


@pytest.mark.nightly
def test_labels_cover_neither_each_other_nor_what_is_written():
    from matplotlib.text import Text

    trace = tracer.profile(
        residual(), runs=5, threads=1, optimization="none", peaks=lambda threads: PEAKS
    )
    nodes = timed(trace.nodes).assign(gflops_per_s=30.0, gbytes_per_s=3.0)  # all in one place
    made = drawn(replace(trace, nodes=nodes), top=0)
    made.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in made.axes[0].texts]
    assert len(boxes) > 5
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


@pytest.mark.nightly
def test_labels_are_as_many_as_asked_for(measured):
    few = [text.get_text() for text in drawn(measured, top=1).axes[0].texts]
    assert len(few) == 3  # and the two roofs


@pytest.mark.nightly
def test_integers_have_a_roof_of_their_own():
    trace = tracer.profile(integers(), runs=5, threads=1, peaks=lambda threads: PEAKS)
    nodes = timed(trace.nodes)
    texts = [t.get_text() for t in drawn(replace(trace, nodes=nodes)).axes[0].texts]
    assert "int8 250 GOP/s" in texts


@pytest.mark.nightly
def test_without_peaks_there_are_points_alone(measured):
    bare = replace(measured, environment=replace(measured.environment, peaks=None))
    assert not drawn(bare).axes[0].lines


@pytest.mark.nightly
def test_names_of_files_are_shown_harmless(trace):
    nodes = timed(trace.nodes)
    texts = " ".join(t.get_text() for t in drawn(replace(trace, nodes=nodes), top=0).axes[0].texts)
    assert not any(char in texts for name in HOSTILE for char in name if ord(char) < 32)


def test_what_was_not_timed_has_no_roofline(counted, empty):
    for nothing in (counted, empty):
        with pytest.raises(UsageError, match="needs times and counts of work"):
            render(nothing, "roofline.png")


def test_a_profile_whose_times_are_all_unknown_has_its_roofs_and_says_so(measured):
    nodes = measured.nodes.assign(gflops_per_s=np.nan, gbytes_per_s=np.nan)
    made = drawn(replace(measured, nodes=nodes))
    assert all(len(axes.lines) == 2 for axes in made.axes)
    assert "too short to time, not shown (100.0% of the time)" in made.axes[0].get_xlabel()
