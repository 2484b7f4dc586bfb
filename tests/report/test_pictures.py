"""The pictures of a report in a browser: what they draw, and that each shares the selection."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tracer
from tests.graphs import integers
from tracer.analyzers.overflow import by_width
from tracer.analyzers.views.text import decibels
from tracer.records.whatif import WidthChoice
from tracer.storage import whatif_file

Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys

MARKS = "document.querySelectorAll('.view.{} [data-mark]')"
BOXES = """[...document.querySelectorAll('.graph [data-mark]')].map((mark) => {
  const {x, y, width, height} = mark.querySelector('rect:not(.sheet)').getBBox();
  return [mark.classList.contains('open'), x, y, x + width, y + height];
})"""


@pytest.fixture(scope="session")
def compared(tmp_path_factory):
    """The report of a comparison of two optimisation levels, and the comparison."""
    sides = ["models/lenet/lenet.onnx", "models/lenet/lenet.onnx@ort:none"]
    comparison = tracer.compare(sides)
    return comparison.save(tmp_path_factory.mktemp("compared") / "c.html"), comparison


@pytest.fixture(scope="session")
def summed(tmp_path_factory):
    """The report of narrow sums, and its trace."""
    trace = tracer.interpret(integers(), accumulator=15, batch=8)
    return trace.save(tmp_path_factory.mktemp("summed") / "s.html"), trace


def labels(browser, view, kind="[data-mark]"):
    return browser.ask(
        f"[...document.querySelectorAll('.view.{view} {kind}')].map((m) => m.ariaLabel)"
    )


@pytest.mark.one_in(5)
@pytest.mark.parametrize("view", ["graph", "roofline", "modules", "memory"])
def test_what_is_picked_in_a_picture_is_selected_everywhere(browser, resnet, view):
    path, trace = resnet
    browser.open(path, fragment=f"#by=node&view={view}&color=op_type")
    names = set(trace.nodes["node"])
    marks = labels(browser, view)
    at = next(i for i, label in enumerate(marks) if label.rpartition(": ")[0] in names)
    chosen = marks[at].rpartition(": ")[0]
    browser.driver.execute_script(
        f"{MARKS.format(view)}[arguments[0]].dispatchEvent("
        "new MouseEvent('click', {bubbles: true}))", at,
    )  # fmt: skip
    assert browser.texts(".details h2") == [chosen]
    assert browser.texts(".table tbody tr[aria-selected=true] th") == [chosen]
    assert marks[at] in labels(browser, view, "[aria-selected=true]")
    browser.click("#tab-graph")
    kinds = browser.texts(".graph .legend")[0].split()
    assert kinds == list(trace.nodes["op_type"].value_counts().index)[:8]
    assert [each.rpartition(": ")[0] for each in labels(browser, "graph", ".node.selected")] == [
        chosen
    ]


@pytest.fixture(scope="session")
def counted(tmp_path_factory):
    """The report of a count of ResNet-20, whose boxes open by MACs, and its trace."""
    trace = tracer.count("models/resnet_cifar/resnet20.onnx")
    return trace.save(tmp_path_factory.mktemp("counted") / "c.html"), trace


@pytest.mark.nightly
def test_a_row_deep_in_a_module_opens_what_holds_it_and_comes_back_after_a_reload(browser, counted):
    path, trace = counted
    row = int(trace.nodes.index[trace.nodes["module"] == "stage1.2.conv2"][0])  # of equal blocks
    browser.open(path, fragment=f"#view=graph&color=macs&selected={row}")
    browser.wait("location.hash.includes('open=')")
    browser.driver.refresh()
    browser.wait("document.querySelector('.graph .node.selected') !== null")
    (label,) = labels(browser, "graph", ".node.selected")
    assert label.startswith(trace.nodes["node"][row])
    assert "2.36 M" in label  # MACs, which give the colour


def test_open_modules_cover_no_neighbour_and_closed_ones_tell_their_sum(browser, resnet):
    path, trace = resnet
    browser.open(path, fragment="#view=graph&color=macs")
    macs = trace.nodes["macs"].where(trace.nodes["module"].str.startswith("stage1", na=False))
    (label,) = [text for text in labels(browser, "graph") if text.startswith("stage1")]
    million = float(re.search(r"([\d.]+) M", label)[1])
    assert million == pytest.approx(macs.sum() / 1e6, rel=1e-2)
    before = len(browser.ask(BOXES))
    while browser.ask("document.querySelector('.graph .closed .sign') !== null"):
        browser.click(".graph .closed .sign")
    boxes = np.array(browser.ask(BOXES))
    assert len(boxes) > before
    nodes = boxes[boxes[:, 0] == 0]
    assert len(nodes) == trace.model.nodes
    for box in nodes:
        beside = nodes[(nodes != box).any(axis=1)]
        apart = (
            (beside[:, 1] >= box[3]) | (beside[:, 3] <= box[1])
            | (beside[:, 2] >= box[4]) | (beside[:, 4] <= box[2])
        )  # fmt: skip
        assert apart.all()


def test_the_keyboard_walks_opens_and_selects_in_the_graph(browser, resnet):
    browser.open(resnet[0], fragment="#view=graph&selected=")
    browser.driver.execute_script("document.querySelector('svg.graph').focus()")
    current = "document.querySelector('.graph .current')?.ariaLabel"
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert browser.ask(current).startswith("node__native_batch_norm")  # below the convolution
    browser.press(Keys.ARROW_UP, Keys.SPACE)
    assert browser.texts(".details h2") == ["node_Conv_302"]
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert browser.ask(current).startswith("stage1") and browser.ask(current).endswith("open")
    browser.press(Keys.ENTER)
    assert browser.ask(current).endswith("closed")
    assert browser.ask("document.activeElement.matches('svg.graph')")  # the keys go on
    browser.press(Keys.ESCAPE)
    assert browser.texts(".details h2") == ["Selection"]


def test_a_node_is_found_by_its_module(browser, resnet):
    path, trace = resnet
    browser.open(path, fragment="#view=graph")
    browser.driver.find_element("css selector", ".graph input").send_keys("STAGE2.1.BN2\n")
    found = trace.nodes["node"][trace.nodes["module"] == "stage2.1.bn2"]
    assert browser.texts(".details h2") == list(found)


@pytest.fixture(scope="session")
def rounded(tmp_path_factory):
    """The report of LeNet's sums in a narrow float, and its trace."""
    trace = tracer.interpret("models/lenet/lenet.onnx", accumulator="fc*=fp32,*=e4m3", batch=4)
    return trace.save(tmp_path_factory.mktemp("rounded") / "f.html"), trace


@pytest.mark.nightly
def test_the_errors_of_sums_in_floats_are_shown_by_node(browser, rounded):
    path, trace = rounded
    browser.open(path, fragment="#view=errors")
    assert any(text.startswith("sums of ") for text in browser.texts(".head p"))  # a sentence
    rows = trace.nodes[trace.nodes["rel_error_p99"].notna()]
    marks = labels(browser, "errors")
    assert [mark.partition(",")[0] for mark in marks] == list(rows["node"])
    for mark, (_, row) in zip(marks, rows.iterrows(), strict=True):
        half, most, share = (float(n) for n in re.findall(r"[\d.]+(?:e-?\d+)?(?= in |%)", mark)[:3])
        assert half == pytest.approx(row["rel_error_p50"], rel=0.01)
        assert most == pytest.approx(row["rel_error_p99"], rel=0.01)
        assert share == pytest.approx(100 * row["swamped_share"], abs=0.06)
    places = "[...document.querySelectorAll('.errors .node {}')].map((e) => e.getBBox().x)"
    seen, sure = (browser.ask(places.format(kind)) for kind in (".seen", ".sure"))
    assert all(left <= right for left, right in zip(seen, sure, strict=True))
    assert np.argmax(sure) == rows["rel_error_p99"].to_numpy().argmax()
    assert [x for x, _ in sorted(zip(seen, rows["rel_error_p50"], strict=True))] == sorted(seen)


def test_a_run_without_sums_in_floats_has_no_chart_of_errors(browser, summed):
    browser.open(summed[0], fragment="#view=overflow")
    assert "Errors" not in browser.texts("[role=tab]")


def test_the_slider_counts_what_overflows_at_every_width(browser, summed):
    path, trace = summed
    browser.open(path, fragment="#view=overflow&width=9")
    bits, over, persistent = by_width(trace.runs[0].sums)
    slider = browser.driver.find_element("css selector", "input[type=range]")
    for _ in range(4):
        at = bits.index(int(slider.get_attribute("value")))
        counts = (over[:, at].sum(), (over - persistent)[:, at].sum(), persistent[:, at].sum())
        told = [int(n.replace(",", "")) for n in re.findall(r"[\d,]+\d|\d", shown(browser))]
        assert told[0] == bits[at] and told[3] == counts[0] and told[-2:] == list(counts[1:])
        slider.send_keys(Keys.ARROW_RIGHT)
    browser.open(path, fragment="#view=overflow&width=40")
    assert shown(browser) == f"Nothing overflows at {bits[-1]} bits on this data."


def shown(browser):
    return browser.texts(".overflow .words")[0]


@pytest.mark.nightly
def test_two_runs_have_a_ratio_for_each_layer_and_noise_is_grey(browser, compared):
    path, comparison = compared
    browser.open(path)  # this picture is in front
    layers = comparison.layers[comparison.layers[["time_us_a", "time_us_b"]].gt(0).any(axis=1)]
    marks = labels(browser, "ratios")
    assert [label.partition(":")[0] for label in marks] == list(layers["layer"])
    grey = browser.ask(
        "[...document.querySelectorAll('.ratios .layer')].map(e => e.classList.contains('noise'))"
    )
    assert grey == [not significant for significant in layers["significant_b"]]
    number = int((layers["layer"] != "(runtime)").to_numpy().argmax())  # a layer of the graph
    pressed = f"document.querySelectorAll('.ratios .layer')[{number}].dispatchEvent"
    browser.ask(f"{pressed}(new MouseEvent('click', {{bubbles: true}}))")
    assert browser.texts(".details h2")[0].startswith(layers["layer"].iloc[number])
    nodes = set(layers["nodes_a"].iloc[number].split("; "))
    assert set(browser.texts(".table tbody tr[aria-selected=true] th")) <= {
        f"{node}{more}" for node in nodes for more in ("", f" +{len(nodes) - 1}")
    }


def test_both_sides_of_a_comparison_can_be_shown(browser, compared):
    path, comparison = compared
    browser.open(path, fragment="#run=1&view=graph")
    layers = comparison.layers[comparison.layers["layer"] != "(runtime)"]  # kernels of no node
    changes = layers["change_us_b"][layers["significant_b"]]
    told = [re.search(r"Δ µs (-?[\d.]+) µs", text) for text in labels(browser, "graph", ".node")]
    found = [float(match[1]) for match in told if match]
    assert sorted(found) == pytest.approx(sorted(changes), rel=1e-2)


def test_a_what_if_shows_the_score_and_the_answers(browser, tmp_path):
    path = tmp_path / "w.html"
    result = whatif_file.load(Path("tests/fixtures/traces/whatif.trace"))
    result.save(path)
    row = result.variants[0].answer.rows[0]
    browser.open(path, fragment=f"#width={row.bits}")
    over = sum(each.overflow_outputs for each in row.overflows.values())
    assert f"{over:,} of" in shown(browser)
    assert f"{row.score:.4g}" in shown(browser)
    scores = browser.ask("document.querySelectorAll('.overflow .score').length")
    assert scores == len(result.variants[0].answer.rows)


def test_narrow_answers_stand_beside_the_names_of_the_nodes(browser, tmp_path):
    result = whatif_file.load(Path("tests/fixtures/traces/whatif.trace"))
    (variant, *_) = result.variants
    each = WidthChoice((18,) * len(variant.work), 1.0, variant.answer.score, None)
    rows = tuple(row for row in variant.answer.rows if row.bits > 20)
    swept = replace(variant, answer=replace(variant.answer, rows=rows, each=each))
    browser.open(replace(result, variants=(swept,)).save(tmp_path / "w.html"))
    places = "[...document.querySelectorAll('.overflow .answer')].map((e) => e.getBBox().x)"
    names = "[...document.querySelectorAll('.overflow .node text:not(.answer):not(.share)')]"
    ends = browser.ask(f"{names}.map((e) => e.getBBox().x + e.getBBox().width)")
    assert len(ends) == len(variant.work)
    assert min(browser.ask(places)) > max(ends)


def test_fusions_show_what_became_of_each_node(browser, tmp_path):
    result = tracer.fusions("models/lenet/lenet.onnx")
    browser.open(result.save(tmp_path / "f.html"), fragment="#by=node&every=true")
    fates = {row.node: row.fate for row in result.nodes}
    cells = browser.ask(
        "[...document.querySelectorAll('.table tbody tr')].map((row) => "
        "[...row.children].map((cell) => cell.textContent))"
    )
    assert {row[0]: fates[row[0]] in row for row in cells if row[0] in fates} == dict.fromkeys(
        fates, True
    )
    assert json.dumps(labels(browser, "graph")).count("group") >= 2


def test_a_quantisation_shows_the_error_of_each_node(browser, tmp_path):
    result = tracer.quantize("models/lenet/lenet.onnx", "digits", limit=32, test_limit=32)
    browser.open(result.save(tmp_path / "q.html"), fragment="#by=node&every=true")
    cells = browser.ask(
        "[...document.querySelectorAll('.table tbody tr')].map((row) => "
        "[...row.children].map((cell) => cell.textContent))"
    )
    shown = {row[0]: row for row in cells}
    assert set(result.model.topology.nodes) <= set(shown)
    for layer in result.layers:
        for noise in (layer.sqnr_db, layer.worst_channel.sqnr_db):  # as the terminal shows them
            assert decibels(noise) in shown[layer.node]
        assert f"{100 * layer.added_noise:.2g} %" in shown[layer.node]
    text = browser.ask("document.body.textContent")
    assert "output linear_2: SQNR" in text
    assert len(labels(browser, "graph")) > len(result.layers)
    colours = browser.ask(
        "[...document.querySelectorAll('.tools option')].map((o) => o.textContent)"
    )
    assert {"added noise", "SQNR dB", "worst channel dB"} <= set(colours)
